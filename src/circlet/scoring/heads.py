"""From rows to codes: hidden layers, and the table of heads, which says what each makes of the last hidden vector.

A head's layers give outputs, and its kind makes a code of these: normalized, so that `Codebook.scores` gives
similarities. `fc` is the exception: it is the baseline with one output per label, and has no codes.

| name | outputs | what they are |
|---|---|---|
| `chrr` | 2 d | pairs, each divided by its norm: phasors; atan2 is needed only for angles |
| `chrr-amplitude` | 2 d | pairs, divided by their joint norm; the length of each pair shows how certain it is |
| `chrr-half` | 2 d, each from half of the inputs | like `chrr` but with h × d weights, as many as `hrr` |
| `chrr-sin` | d | π sin(x) as angles |
| `chrr-tanh` | d | π tanh(x) as angles |
| `hrr` | d | a real vector, divided by its norm |
| `fc` | L | the labels' scores themselves |

**Mean gradients.** Explanations follow outputs p along straight lines. A label's score is ⟨c, code⟩ with some
vector c, and each kind has a closed form of the mean over t of ∇⟨c, code(p + t Δ)⟩, for t from 0 to 1. Its
product with Δ is exactly the difference of the two scores, however long the line is. All arrays are in double
precision.

Of kinds that divide by a norm, let e₂ be the direction of Δ, r the point of the line that is nearest to the
origin, ρ = |r| and e₁ = r / ρ. With τ = ρ sinh s as the place on the line, p / |p| = e₁ sech s + e₂ tanh s, and

    ∫ ∇⟨c, p / |p|⟩ dt = 1/|Δ| ∫ (c − n ⟨c, n⟩) ds,   n = p / |p|,

where only sech², sech tanh and tanh² have to be integrated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.scoring import arrays
from circlet.scoring.arrays import LEAST_NORM, TINY

__all__ = ["HEADS", "Head", "hidden_vectors"]

Doubles: TypeAlias = "npt.NDArray[np.float64]"

#: Shorter lines, in parts of the distance to the origin, are taken for points.
SHORTEST = 1e-7


class Head(ABC):
    """A row of the table; its class is the kind of head.

    Parameters
    ----------
    codes : "circular", "real" or None
        The kind of codes that it predicts; None if it has an output per label and no codes.
    parts : tuple of str
        The names of its layers. Each sees its share of the hidden units, and gives its share of the outputs.
    """

    def __init__(self, codes: str | None, parts: tuple[str, ...] = ("output",)) -> None:
        self.codes, self.parts = codes, parts
        #: Numbers of a code, and outputs of the layers, for each dimension.
        self.width = self.outputs = 2 if codes == "circular" else 1
        #: Whether a label's score rises if its code is added to the outputs of a single layer.
        self.additive = len(parts) == 1

    def shape(self, hidden: int, dim: int) -> tuple[int, int]:
        """Shape of each layer's weight: outputs and inputs. Without codes, `dim` is the number of labels."""
        return self.outputs * dim // len(self.parts), hidden // len(self.parts)

    def output(self, ops: Any, hidden: Any, layers: Sequence[Callable[[Any], Any]], n: int) -> Any:
        """Codes of hidden vectors, by layers that have n outputs together."""
        if len(layers) == 1:
            return self.code(ops, layers[0](hidden), n)
        parts = zip(layers, ops.split(hidden, len(layers)), strict=True)
        return self.code(ops, ops.concat([layer(part) for layer, part in parts]), n)

    @abstractmethod
    def code(self, ops: Any, outputs: Any, n: int) -> Any:
        """Codes of n outputs of each document."""

    def scores(self, outputs: Doubles, vectors: Doubles) -> Doubles:
        """Inner products of vectors `(l, width)` with the codes of outputs `(n, m)`, `(l, n)`."""
        found: Doubles = vectors @ self.code(arrays, outputs.copy(), outputs.shape[1]).T
        return found

    @abstractmethod
    def gradients(self, starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        """Mean gradients of these scores along lines, `(l, n, m)`, from starts and differences `(n, m)`."""


class Pairs(Head):
    """Each pair of outputs is divided by its norm."""

    def code(self, ops: Any, outputs: Any, n: int) -> Any:
        return ops.unit_pairs(outputs)

    def gradients(self, starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        return _of_normalized(starts, differences, vectors, (2, starts.shape[1] // 2), TINY)


class Whole(Head):
    """All outputs are divided by their norm; pairs then get the norm that as many phasors have."""

    def code(self, ops: Any, outputs: Any, n: int) -> Any:
        return ops.unit(outputs, math.sqrt(n / self.outputs) if self.codes == "circular" else 1.0)

    def gradients(self, starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        n = starts.shape[1]
        norm = math.sqrt(n / self.outputs) if self.codes == "circular" else 1.0
        return _of_normalized(starts, differences, vectors * norm, (n, 1), LEAST_NORM**2)


class Angles(Head):
    """A function of primitives and outputs gives angles, in parts of π; `slope` is its derivative, of arrays."""

    def __init__(self, function: Callable[[Any, Any], Any], slope: Callable[[Doubles], Doubles]) -> None:
        super().__init__("circular")
        self.function, self.slope, self.outputs, self.additive = function, slope, 1, False

    def code(self, ops: Any, outputs: Any, n: int) -> Any:
        return ops.packed(self.function(ops, outputs))

    def gradients(self, starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        cosines, sines = np.split(vectors[:, None], 2, axis=-1)

        def own_scores(outputs: Doubles) -> Doubles:
            """What each dimension adds to the scores."""
            theta = math.pi * self.function(arrays, outputs)
            found: Doubles = cosines * np.cos(theta) + sines * np.sin(theta)
            return found

        still, middle = np.abs(differences) <= SHORTEST, starts + differences / 2
        theta = math.pi * self.function(arrays, middle)
        at_rest = math.pi * self.slope(middle) * (sines * np.cos(theta) - cosines * np.sin(theta))
        risen = own_scores(starts + differences) - own_scores(starts)
        return np.where(still, at_rest, risen / np.where(still, 1, differences))


class Plain(Head):
    """Outputs are scores themselves."""

    def code(self, ops: Any, outputs: Any, n: int) -> Any:
        return outputs

    def gradients(self, starts: Doubles, differences: Doubles, vectors: Doubles) -> Doubles:
        return np.broadcast_to(vectors[:, None], (len(vectors), *starts.shape))


def _of_normalized(
    starts: Doubles, differences: Doubles, vectors: Doubles, groups: tuple[int, int], tiny: float
) -> Doubles:
    """Mean gradients if outputs are divided by their norm, in groups that are the columns of this shape."""
    p, delta, c = (each.reshape(-1, *groups) for each in (starts, differences, vectors))
    c, middle = c[:, None], p + delta / 2
    squares, least = (delta * delta).sum(axis=-2, keepdims=True), (middle * middle).sum(axis=-2, keepdims=True)
    still = squares <= SHORTEST**2 * (least + tiny)
    moved = _along(p, np.where(still, 1, delta), np.where(still, 1, np.sqrt(squares)), c, tiny)
    norms = np.sqrt(least + tiny)
    at_rest = (c - middle * (c * middle).sum(axis=-2, keepdims=True) / (least + tiny)) / norms
    return np.where(still, at_rest, moved).reshape(len(vectors), *starts.shape)


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


def hidden_vectors(ops: Any, rows: Any, layers: Iterable[Callable[[Any], Any]], leak: float) -> Any:
    """What hidden layers make of rows; negative numbers are multiplied by the leak after each, 0 for ReLU."""
    for layer in layers:
        rows = ops.rectified(layer(rows), leak)
    return rows


HEADS: dict[str, Head] = {
    "chrr": Pairs("circular"),
    "chrr-amplitude": Whole("circular"),
    "chrr-half": Pairs("circular", parts=("output", "second")),
    "chrr-sin": Angles(lambda ops, x: ops.sin(x), np.cos),
    "chrr-tanh": Angles(lambda ops, x: ops.tanh(x), lambda x: 1 - np.tanh(x) ** 2),
    "hrr": Whole("real"),
    "fc": Plain(None),
}
