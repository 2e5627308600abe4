"""Scores, and their mean gradients, while a head's outputs move along straight lines (chords).

A head turns the outputs p of its layer into a code, and a label's score is ⟨c, code⟩ with some vector c. For each
head there is a closed form of the mean over t of ∇⟨c, code(p + t Δ)⟩, for t from 0 to 1. Its product with Δ is
exactly the difference of the two scores, however long the chord is. All arrays are in double precision.

**Heads that divide by a norm.** Let e₂ be the direction of Δ, r the point of the line that is nearest to the
origin, ρ = |r| and e₁ = r / ρ. With τ = ρ sinh s as the place on the line, p / |p| = e₁ sech s + e₂ tanh s, and

    ∫ ∇⟨c, p / |p|⟩ dt = 1/|Δ| ∫ (c − n ⟨c, n⟩) ds,   n = p / |p|,

where only sech², sech tanh and tanh² have to be integrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.runtime.heads import LEAST_NORM, TINY

__all__ = ["CHORDS", "Chords", "mean_slopes"]

Doubles: TypeAlias = "npt.NDArray[np.float64]"

#: Shorter chords, in parts of the distance to the origin, are taken for points.
SHORTEST = 1e-7


class Chords(NamedTuple):
    """What the scores of a head are along chords.

    Parameters
    ----------
    scores : callable
        From outputs `(n, m)` and vectors `(l, width)` to scores `(l, n)`.
    gradients : callable
        From starts `(n, m)`, differences `(n, m)` and vectors `(l, width)` to mean gradients `(l, n, m)`.
    """

    scores: Callable[[Doubles, Doubles], Doubles]
    gradients: Callable[[Doubles, Doubles, Doubles], Doubles]


def mean_slopes(starts: Doubles, ends: Doubles, leak: float) -> Doubles:
    """The mean slope of a (leaky) ReLU between two inputs: 1, the leak, or in between if the sign changes."""
    high, low = np.maximum(starts, ends), np.minimum(starts, ends)
    crossing = (low < 0) & (high > 0)
    share = np.where(crossing, high / np.where(crossing, high - low, 1), high > 0)
    slopes: Doubles = leak + (1 - leak) * share
    return slopes


def _normalized(groups: Callable[[int], tuple[int, int]], tiny: float, factor: Callable[[int], float]) -> Chords:
    """Outputs that are divided by their norm: all at once, or in groups that lie `count` apart."""

    def parts(outputs: Doubles) -> Doubles:
        return outputs.reshape(*outputs.shape[:-1], *groups(outputs.shape[-1]))

    def scores(outputs: Doubles, vectors: Doubles) -> Doubles:
        p = parts(outputs)
        unit = p / np.sqrt((p * p).sum(axis=-2, keepdims=True) + tiny)
        found: Doubles = factor(outputs.shape[-1]) * (vectors @ unit.reshape(outputs.shape).T)
        return found

    def gradients(starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        p, delta, c = parts(starts), parts(differences), parts(vectors * factor(starts.shape[-1]))[:, None]
        middle = p + delta / 2
        squares, least = (delta * delta).sum(axis=-2, keepdims=True), (middle * middle).sum(axis=-2, keepdims=True)
        still = squares <= SHORTEST**2 * (least + tiny)
        moved = _along(p, np.where(still, 1, delta), np.where(still, 1, np.sqrt(squares)), c, tiny)
        norms = np.sqrt(least + tiny)
        at_rest = (c - middle * (c * middle).sum(axis=-2, keepdims=True) / (least + tiny)) / norms
        return np.where(still, at_rest, moved).reshape(len(vectors), *starts.shape)

    return Chords(scores, gradients)


def _along(p: Doubles, delta: Doubles, length: Doubles, c: Doubles, tiny: float) -> Doubles:
    """The closed form that the module's text derives."""
    e2 = delta / length
    start = (p * e2).sum(axis=-2, keepdims=True)
    nearest = p - start * e2
    # What is added to squared norms acts like one more coordinate, which never changes.
    rho = np.sqrt((nearest * nearest).sum(axis=-2, keepdims=True) + tiny)
    e1, end = nearest / rho, start + length
    norms = np.hypot(start, rho), np.hypot(end, rho)
    in_s = np.arcsinh(end / rho) - np.arcsinh(start / rho)
    in_tanh, in_sech = end / norms[1] - start / norms[0], rho / norms[1] - rho / norms[0]
    c1, c2 = ((c * e).sum(axis=-2, keepdims=True) for e in (e1, e2))
    found: Doubles = c * in_s + e1 * (c2 * in_sech - c1 * in_tanh) + e2 * (c1 * in_sech - c2 * (in_s - in_tanh))
    found /= length
    return found


def _angles(turns: Callable[[Doubles], Doubles], slope: Callable[[Doubles], Doubles]) -> Chords:
    """Outputs of which a function gives angles, in parts of π: each dimension has a score of its own."""

    def halves(vectors: Doubles) -> tuple[Doubles, Doubles]:
        dim = vectors.shape[1] // 2
        return vectors[:, None, :dim], vectors[:, None, dim:]

    def own_scores(outputs: Doubles, vectors: Doubles) -> Doubles:
        theta, (cosines, sines) = math.pi * turns(outputs), halves(vectors)
        found: Doubles = cosines * np.cos(theta) + sines * np.sin(theta)
        return found

    def scores(outputs: Doubles, vectors: Doubles) -> Doubles:
        found: Doubles = own_scores(outputs, vectors).sum(axis=-1)
        return found

    def gradients(starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        still, middle = np.abs(differences) <= SHORTEST, starts + differences / 2
        theta, (cosines, sines) = math.pi * turns(middle), halves(vectors)
        at_rest = math.pi * slope(middle) * (sines * np.cos(theta) - cosines * np.sin(theta))
        risen = own_scores(starts + differences, vectors) - own_scores(starts, vectors)
        return np.where(still, at_rest, risen / np.where(still, 1, differences))

    return Chords(scores, gradients)


def _plain() -> Chords:
    """Outputs that are scores themselves."""

    def gradients(starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        return np.broadcast_to(vectors[:, None], (len(vectors), *starts.shape))

    return Chords(lambda outputs, vectors: vectors @ outputs.T, gradients)


_PAIRS = _normalized(lambda width: (2, width // 2), float(TINY), lambda _: 1.0)
_LEAST_SQUARE = float(LEAST_NORM) ** 2
#: By the names in `circlet.settings.network.HEADS`.
CHORDS: dict[str, Chords] = {
    "chrr": _PAIRS,
    "chrr-amplitude": _normalized(lambda width: (width, 1), _LEAST_SQUARE, lambda width: math.sqrt(width / 2)),
    "chrr-half": _PAIRS,
    "chrr-sin": _angles(np.sin, np.cos),
    "chrr-tanh": _angles(np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "hrr": _normalized(lambda width: (width, 1), _LEAST_SQUARE, lambda _: 1.0),
    "fc": _plain(),
}
