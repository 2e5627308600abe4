"""The formulas of docs/theory.md: bounds on similarities, distributions of scores, retrieval and capacity.

And what the experiment `theory` measures beside them: similarities of codes, scores of stored sets, and sets with
a pattern. Every measure is taken for many codebooks with different seeds. Codebooks are independent of one another
and the sets of one codebook are not, so standard errors are those of the codebooks' means.

Throughout, d is the dimension, k the number of stored labels, L the number of labels and M the length of a
spectral codebook; M is None for independent angles. "Angles" are superpositions of which only the angles are kept,
as in the paper; "sums" are kept with their amplitudes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet_paper.codebooks import InOrder
from circlet_paper.stability import chrr_theory

#: The largest k for which the integrals over Bessel functions are evaluated; beyond it, their limit is used.
EXACT_K = 60

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
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
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
    t = scores.stored_mean + sds[0] * np.linspace(-9, 9, 1001)
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


#: Label sets stored with each codebook.
SETS = 20
#: Similarities are counted above these multiples of 1/√d; the bound there is e^{−x²}.
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
#: What is measured of the scores of a set: moments in the order of `Scores`, then what ranking by them gives.
MEASURED = (*Scores._fields[:4], "retrieved", "failed")
#: How the superposition is kept, and the scores that the formulas expect.
WAYS = {"angles": angle_scores, "sums": sum_scores}


def seed_of(*parts: int) -> int:
    """A seed for a codebook or a generator, from the numbers that name it."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def make(n_labels: int, dim: int, seed: int, length: int | None) -> Codebook:
    """A spectral codebook of this length, or an independent one."""
    if length is None:
        return IndependentCodebook(n_labels, dim, seed, cache=True)
    return SpectralCodebook(n_labels, dim, seed, length=length, cache=True)


def similarities(n_labels: int, dim: int, seed: int, length: int | None) -> Tensor:
    """All similarities of two independent codes; for spectral codes those of the differences 1…M/2."""
    if length is not None:
        frequencies = SpectralCodebook(1, dim, seed, length=length).frequencies
        spectrum = torch.zeros(length // 2 + 1, dtype=torch.complex128)
        spectrum[torch.from_numpy(frequencies)] = 1 / (2 * dim)
        values: Tensor = torch.fft.irfft(spectrum, n=length, norm="forward")
        return values[1 : length // 2 + 1]
    codes: Tensor = IndependentCodebook(n_labels, dim, seed).codes(torch.arange(n_labels))
    pairs = torch.triu_indices(n_labels, n_labels, offset=1)
    return (codes @ codes.mT / dim)[pairs[0], pairs[1]]


def measure_similarities(
    n_labels: int, dim: int, length: int | None, repetitions: int, seed: int
) -> dict[str, Any]:
    """Tails and the largest similarity, over codebooks."""
    above, largest, squares, half = np.zeros(len(THRESHOLDS)), [], [], []
    for number in range(repetitions):
        found = similarities(n_labels, dim, seed_of(seed, dim, length or 0, number), length)
        above += [float((found >= x / dim**0.5).double().mean()) for x in THRESHOLDS]
        largest.append(float(found.max()))
        squares.append(_mean_square(found, length))
        half.append(float(found[-1]) ** 2)
    return {
        "labels": n_labels,
        "dim": dim,
        "M": length,
        "codebooks": repetitions,
        "tails": _digits(above / repetitions),
        "largest": _digits(np.array(largest)),
        "mean_square": summary(np.array(squares)),
        # The difference M/2, whose angles are 0 and π, is twice as noisy; independent codes have no such pair.
        "half_square": None if length is None else summary(np.array(half)),
    }


def _mean_square(found: Tensor, length: int | None) -> float:
    if length is None:
        return float(found.double().square().mean())
    # Over 1…M − 1: all differences occur twice, except for M/2.
    return float((2 * found.square().sum() - found[-1] ** 2) / (length - 1))


def measure_sets(
    n_labels: int, dim: int, length: int | None, stored: Sequence[int], repetitions: int, seed: int
) -> dict[str, Any]:
    """Moments of the scores, and what is retrieved, for angles and for sums, by k."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for number in range(repetitions):
        own = seed_of(seed, dim, length or 0, number)
        book = make(n_labels, dim, own, length)
        generator = torch.Generator().manual_seed(own)
        order = torch.rand(SETS, n_labels, generator=generator).argsort(-1)
        for k in stored:
            sums = book.superpose(order[:, :k].flatten(), torch.arange(0, SETS * k, k))
            for way, memory in (("angles", circular.pack(circular.unpack(sums))), ("sums", sums)):
                expected = WAYS[way](k, dim, length)
                found.setdefault((way, k), []).append(_of_scores(book.scores(memory), order[:, :k], expected))
    ways: dict[str, Any] = {way: {} for way in WAYS}
    for (way, k), values in found.items():
        ways[way][str(k)] = dict(zip(MEASURED, map(summary, np.array(values).T), strict=True))
    return {"dim": dim, "M": length, "ways": ways}


def _of_scores(scores: Tensor, sets: Tensor, expected: Scores) -> list[float]:
    """The numbers named by `MEASURED`, for the sets of one codebook."""
    scores, k = scores.double(), sets.shape[1]
    is_stored = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, sets, True)
    moments = []
    for part, mean in ((scores[is_stored], expected.stored_mean), (scores[~is_stored], expected.absent_mean)):
        # Deviations from the expected mean: their square is unbiased, however few sets a codebook has.
        moments += [float(part.mean()), float((part - mean).square().mean())]
    hits = is_stored.gather(1, scores.topk(k).indices).sum(1)
    return [*moments, float(hits.sum()) / sets.numel(), float((hits < k).double().mean())]


def patterns(n_labels: int, k: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Sets of k labels, `(SETS, k)`: random ones, and ones whose ids have a pattern; k is a power of two."""

    def start(end: int) -> Tensor:
        return torch.randint(end, (SETS, 1), generator=generator)

    def steps(step: int) -> Tensor:
        return start(n_labels - step * (k - 1)) + step * torch.arange(k)

    bits = n_labels.bit_length() - 1
    free = bits - (k.bit_length() - 1)
    # Subcubes: some bits take all values and the others are fixed, which is what XOR and masks might preserve.
    cubes = []
    for _ in range(SETS):
        places = torch.randperm(bits, generator=generator)
        value = torch.arange(k)
        moving = torch.zeros_like(value)
        for i, place in enumerate(places[free:]):
            moving |= ((value >> i) & 1) << int(place)
        fixed = sum(int(torch.randint(2, (), generator=generator)) << int(place) for place in places[:free])
        cubes.append(moving + fixed)
    return {
        "random": torch.rand(SETS, n_labels, generator=generator).argsort(-1)[:, :k],
        "runs": steps(1),
        "every 2nd": steps(2),
        "every 7th": steps(7),
        "every 30th": steps(30),
        f"aligned blocks of {k}": k * start(n_labels // k) + torch.arange(k),
        "subcubes of the bits": torch.stack(cubes),
    }


def measure_patterns(n_labels: int, dim: int, k: int, repetitions: int, seed: int) -> dict[str, Any]:
    """Percentage retrieved for sets with a pattern, and its difference to random sets, over codebooks."""
    found: dict[str, list[float]] = {}
    for number in range(repetitions):
        own = seed_of(seed, n_labels, number)
        generator = torch.Generator().manual_seed(own)
        book, ordered = (
            kind(n_labels, dim, own, length=n_labels, cache=True) for kind in (SpectralCodebook, InOrder)
        )
        sets = patterns(n_labels, k, generator)
        for name, ids in sets.items():
            found.setdefault(name, []).append(_percent(book, ids))
        found.setdefault("runs, slots in order", []).append(_percent(ordered, sets["runs"]))
        # Someone who knows the seed picks the labels whose slots are a run.
        by_slot = book.slots(torch.arange(n_labels)).argsort()
        found.setdefault("runs of slots, chosen with the seed", []).append(_percent(book, by_slot[sets["runs"]]))
    random = np.array(found["random"])
    return {
        "labels": n_labels,
        "dim": dim,
        "k": k,
        "kinds": {
            name: {"percent": summary(np.array(values)), "ahead": summary(np.array(values) - random)}
            for name, values in found.items()
        },
    }


def _percent(book: Codebook, sets: Tensor) -> float:
    sums = book.superpose(sets.flatten(), torch.arange(0, sets.numel(), sets.shape[1]))
    top = book.scores(circular.pack(circular.unpack(sums))).topk(sets.shape[1]).indices
    return 100 * float((top[:, :, None] == sets[:, None, :]).any(-1).double().mean())


def summary(values: Floats) -> list[float]:
    """Mean and standard error of the codebooks' values."""
    return _digits(np.array([values.mean(), values.std(ddof=1) / len(values) ** 0.5]))


def _digits(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
