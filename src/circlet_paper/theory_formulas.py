"""The formulas of docs/theory.md: bounds on similarities, distributions of scores, retrieval and capacity.

Throughout, d is the dimension, k the number of stored labels, L the number of labels and M the length of a
spectral codebook; M is None for independent angles. "Angles" are superpositions of which only the angles are kept,
as in the paper; "sums" are kept with their amplitudes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from circlet_paper.stability import chrr_theory

#: The largest k for which the integrals over Bessel functions are evaluated; beyond it, their limit is used.
EXACT_K = 60
#: Points of the grid on which the distributions of two order statistics are compared.
GRID = 1001
#: Nodes of the Gauss–Hermite rule for what stored scores have in common.
NODES = 9

Floats = npt.NDArray[np.float64]


class Scores(NamedTuple):
    """Means and variances of the scores of stored and of absent labels, and how two stored ones are correlated."""

    stored_mean: float
    stored_variance: float
    absent_mean: float
    absent_variance: float
    correlation: float


def tail(epsilon: float, dim: int) -> float:
    """A bound on P(sim ≥ ε) for two independent codes: E e^{t cos U} = I₀(t) ≤ e^{t²/4} for a uniform angle U."""
    return math.exp(-dim * epsilon**2)


def largest_independent(n_labels: int, dim: int, delta: float) -> float:
    """A bound on the largest similarity of two of L independent codes, exceeded with probability ≤ δ."""
    return math.sqrt(math.log(n_labels * (n_labels - 1) / (2 * delta)) / dim)


def difference_tail(epsilon: float, dim: int, length: int, order: int) -> float:
    """A bound on P(K(n) ≥ ε) for random frequencies; `order` is M / gcd(n, M), the number of different angles.

    The smaller of two: that of sampling with replacement, which is as for independent codes unless there are only
    two or three different angles, and Serfling's for sampling without replacement.
    """
    exponent = {2: 1 / 2, 3: 8 / 9}.get(order, 1.0)
    population = length // 2 - 1
    serfling = 1 / (2 * (1 - (dim - 1) / population))
    return math.exp(-max(exponent, serfling) * dim * epsilon**2)


def spectral_tail(epsilon: float, dim: int, length: int) -> float:
    """A bound on P(max K(n) ≥ ε) over all differences n ≠ 0: the sum over n = 1…M/2, since K is even."""
    special = [2, 3] if length % 3 == 0 else [2]
    usual = length // 2 - len(special)
    return usual * difference_tail(epsilon, dim, length, length) + sum(
        difference_tail(epsilon, dim, length, order) for order in special
    )


def largest_spectral(length: int, dim: int, delta: float) -> float:
    """A bound on the largest similarity of two codes of M slots, exceeded with probability ≤ δ."""
    low, high = 0.0, 2.0 + math.sqrt(2 * math.log(length / delta) / dim)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if spectral_tail(middle, dim, length) > delta else (low, middle)
    return high


@cache
def _exact() -> tuple[Floats, Floats]:
    return chrr_theory(EXACT_K, dim=1)


def signal(k: int) -> tuple[float, float]:
    """Mean a and variance v of cos(angle of the sum − angle of a part), for k independent uniform angles."""
    mean, variance = _exact()
    if k > EXACT_K:
        # The leading terms of the same integrals for large k.
        return math.sqrt(math.pi / (4 * k)) * (1 + 1 / (16 * k)), 0.5 - (math.pi - 1) / (4 * k)
    return float(mean[k - 1]), float(variance[k - 1])


def efficiency(k: int) -> float:
    """κ = (E|S|)² / E|S|² = k a²: angles are worth this part of the dimensions of a sum; π/4 for large k."""
    return k * signal(k)[0] ** 2


def angle_scores(k: int, dim: int, length: int | None = None) -> Scores:
    """Scores when only the angles of the sum of k codes are kept."""
    mean, variance = signal(k)
    # The scores of a set add up to the mean of |S|, whose variance 1 − κ (times k/d) is known.
    correlation = 0.0 if k == 1 else (1 - efficiency(k) - variance) / ((k - 1) * variance)
    if length is None:
        return Scores(mean, variance / dim, 0.0, 1 / (2 * dim), correlation)
    # Distinct slots: E|S|² is k (M − k)/(M − 1) instead of k.
    mean *= math.sqrt((length - k) / (length - 1))
    # Of the N frequencies d are drawn without replacement; even all N leave the noise of the lost amplitudes.
    population, lost = length // 2 - 1, (1 - efficiency(k)) / length
    drawn = (variance - lost) / dim * (population - dim) / max(population - 1, 1)
    stored = max(lost + drawn, 0.0)
    # Over all M slots the scores have the mean 0 and the mean square 1/2d, exactly (Parseval).
    absent = -k * mean / (length - k)
    square = (length / (2 * dim) - k * (mean**2 + stored)) / (length - k)
    return Scores(mean, stored, absent, square - absent**2, correlation)


def sum_scores(k: int, dim: int, length: int | None = None) -> Scores:
    """Scores when the sum of k codes is kept as it is, with amplitudes; exact for random sets."""
    # Two stored scores share one of their k − 1 terms, the similarity of the two labels.
    correlation = 0.0 if k == 1 else 1 / (k - 1)
    if length is None:
        return Scores(1.0, (k - 1) / (2 * dim), 0.0, k / (2 * dim), correlation)
    others = length - 1
    variance = (length - 2 * dim) / others / (2 * dim) - others**-2
    # Differences of slots are drawn without replacement from the M − 1 others.
    stored = (k - 1) * variance * (1 - (k - 2) / (others - 1)) if k > 1 else 0.0
    absent = k * variance * (1 - (k - 1) / (others - 1))
    return Scores(1 - (k - 1) / others, stored, -k / others, absent, correlation)


def _independent(scores: Scores) -> list[tuple[float, Scores]]:
    """Weights and scores without correlation whose weighted sum stands for the correlated ones.

    A positive correlation is a common shift of all stored scores. A negative one takes away such a shift; there
    the first two terms of its Taylor series are used.
    """
    shared = scores.correlation * scores.stored_variance
    own = scores._replace(stored_variance=max(scores.stored_variance - shared, 1e-3 * scores.stored_variance))

    def shifted(by: float) -> Scores:
        return own._replace(stored_mean=own.stored_mean + by)

    if shared > 0:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        return [
            (float(weight), shifted(math.sqrt(shared) * float(node)))
            for node, weight in zip(nodes, weights / weights.sum(), strict=True)
        ]
    step = math.sqrt(-shared)
    return [(2.0, own), (-0.5, shifted(step)), (-0.5, shifted(-step))]


def _grid(scores: Scores) -> tuple[Floats, Floats]:
    """P(a stored score ≤ t) and P(an absent score > t) on a grid of t, for normal scores."""
    from scipy.special import ndtr  # slow to import

    sds = [math.sqrt(max(variance, 1e-12)) for variance in (scores.stored_variance, scores.absent_variance)]
    # Only where the stored scores lie does anything have to be integrated.
    t = scores.stored_mean + sds[0] * np.linspace(-9, 9, GRID)
    return ndtr((t - scores.stored_mean) / sds[0]), ndtr(-(t - scores.absent_mean) / sds[1])


def retrieved(scores: Scores, k: int, n_labels: int) -> float:
    """The expected share of the k stored labels among the k best of L, for normal scores.

    At least m labels are missed if and only if the m-th best absent label is ahead of the m-th worst stored one.
    """
    return 1 - sum(weight * _missed(part, k, n_labels) for weight, part in _independent(scores)) / k


def _missed(scores: Scores, k: int, n_labels: int) -> float:
    """The expected number of stored labels that are not among the k best, for independent normal scores."""
    from scipy.special import betainc

    stored, absent = _grid(scores)
    missed = 0.0
    for m in range(1, min(k, n_labels - k) + 1):
        worst = betainc(m, k - m + 1, stored)
        ahead = betainc(m, n_labels - k - m + 1, absent)
        term = _expectation(worst, ahead)
        missed += term
        if term < 1e-9:
            break
    return missed


def failure(scores: Scores, k: int, n_labels: int) -> float:
    """P(the k best of L are not the k stored labels), for normal scores."""
    return sum(weight * _fails(part, k, n_labels) for weight, part in _independent(scores))


def _fails(scores: Scores, k: int, n_labels: int) -> float:
    stored, absent = _grid(scores)
    worst = -np.expm1(k * np.log1p(-np.minimum(stored, 1 - 1e-16)))
    ahead = -np.expm1((n_labels - k) * np.log1p(-np.minimum(absent, 1 - 1e-16)))
    return _expectation(worst, ahead)


def _expectation(distribution: Floats, values: Floats) -> float:
    """The mean of values on a grid, whose points have this distribution function."""
    return float((np.diff(distribution) * (values[1:] + values[:-1]) / 2).sum())


def capacity(dim: int, n_labels: int, delta: float, length: int | None = None, *, angles: bool = True) -> int:
    """The largest k whose probability of failure is at most δ, by the normal approximation."""
    scores = angle_scores if angles else sum_scores

    def fails(k: int) -> bool:
        return failure(scores(k, dim, length), k, n_labels) > delta

    # The more is stored, the more often it fails: double k until it does, then halve the interval.
    held, k = 0, 1
    while k < n_labels and not fails(k):
        held, k = k, 2 * k
    lost = min(k, n_labels)
    while lost - held > 1:
        middle = (held + lost) // 2
        held, lost = (held, middle) if fails(middle) else (middle, lost)
    return held


def guaranteed(dim: int, n_labels: int, delta: float) -> int:
    """The largest k that angles of independent codes hold with P(failure) ≤ δ, proved without approximation.

    Absent scores are below √(ln(2(L − k)/δ)/d), and by Hoeffding's inequality for numbers between −1 and 1 stored
    ones are above a − √(2 ln(2k/δ)/d), each but for a probability of δ/2.
    """
    k = 0
    while k + 1 < n_labels:
        absent = math.sqrt(math.log(2 * (n_labels - k - 1) / delta) / dim)
        stored = signal(k + 1)[0] - math.sqrt(2 * math.log(2 * (k + 1) / delta) / dim)
        if stored < absent:
            break
        k += 1
    return k
