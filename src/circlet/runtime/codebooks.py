"""The codes of labels, as in `circlet.codebooks`, and from predicted codes to scores and to the best labels.

**A spectral codebook's scores are a Fourier series**, as in `circlet.codebooks.fourier`, at the slots n = 0…M−1.
With M = Q · P and n = n₂ + Q n₁,

    Σ_j c_j e^{2πi f_j n / M}  =  Σ_j (c_j e^{2πi f_j n₂ / M}) e^{2πi (f_j mod P) n₁ / P}:

one transform of length M becomes one of length P for each n₂, with coefficients that are rotated accordingly. A
few of these parts at a time are transformed and ranked while they are in the cache.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import ParameterError
from circlet.hashing import permuted, uniform
from circlet.runtime.network import Floats
from circlet.scoring.arrays import Found, best_columns, by_score, take
from circlet.scoring.ranking import PER_SCORE, merged, top_k
from circlet.threads import in_parallel, steps

__all__ = [
    "CODEBOOKS",
    "Codebook",
    "CodesInBlocks",
    "Series",
]

Integers = npt.NDArray[np.int64]

#: Transforms above LONGEST are split if their length has suitable divisors, but not into parts below SHORTEST.
LONGEST, SHORTEST = 1 << 15, 1 << 10
#: Values that are computed at a time, 1 MB: they and their coefficients fit into a cache, and threads that compute
#: so many seldom wait for each other.
VALUES = 1 << 18
#: A single transform of up to this length is left to NumPy.
SHORT = 1 << 11
#: Labels whose slots are computed at a time.
SLOT_BLOCK = 1 << 15


class Series:
    """Evaluates predictions at all slots.

    Parameters
    ----------
    frequencies : int64 ndarray of shape (dim,)
    slots : callable
        Maps label ids to slots.
    length : int
        M, the number of slots.
    n_labels : int

    Attributes
    ----------
    labels : int32 ndarray of shape (M,)
        The label at each place of the result; `n_labels` where there is none.
    places : int32 ndarray of shape (n_labels,)
        The place of each label.
    part, parts : int
        P, the length of a transform, and Q, the number of them.
    """

    def __init__(
        self, frequencies: Integers, slots: Callable[[Integers], Integers], length: int, n_labels: int
    ) -> None:
        self.n_labels, self.dim, self.length = n_labels, len(frequencies), length
        self.parts = _divisor(length // 2, SHORTEST // 2, LONGEST // 2)
        self.part = length // self.parts
        self.places = np.empty(n_labels, dtype=np.int32)
        for start in range(0, n_labels, SLOT_BLOCK):
            at = slots(np.arange(start, min(start + SLOT_BLOCK, n_labels)))
            self.places[start : start + SLOT_BLOCK] = (at % self.parts) * self.part + at // self.parts
        self.labels = np.full(length, n_labels, dtype=np.int32)
        self.labels[self.places] = np.arange(n_labels, dtype=np.int32)
        self._arrange(frequencies)
        #: A buffer for coefficients, one for each thread.
        self._rooms = threading.local()

    def _arrange(self, frequencies: Integers) -> None:
        residue = frequencies % self.part
        # Values are real, so a coefficient above P/2 goes to its mirror image as its conjugate, and one that is
        # its own mirror image is added to its conjugate.
        mirrored = 2 * residue > self.part
        place = np.where(mirrored, self.part - residue, residue)
        self._order, layer = _layers(place)
        ends = np.cumsum([0, *np.bincount(layer)])
        #: Where coefficients go, layer by layer; in a layer, no two share a place.
        self._layers = [(slice(a, b), place[self._order[a:b]]) for a, b in pairwise(ends)]
        self._sign = np.where(mirrored, 1, -1).astype(np.float32)[self._order]
        turns = np.arange(self.parts)[:, None] * frequencies[self._order] % self.length
        angles = turns * (2 * math.pi / self.length) * -self._sign
        weight = np.where(2 * residue % self.part == 0, 2.0, 1.0)[self._order]
        self._turns = (weight * np.exp(1j * angles)).astype(np.complex64)

    def spread(self, values: Floats) -> Floats:
        """Values of labels, `(n_labels,)`, at the labels' places, `(M,)`; −∞ where there is no label."""
        out = np.full(self.length, -np.inf, dtype=np.float32)
        out[self.places] = values
        return out

    @property
    def rows_at_a_time(self) -> int:
        """How many predictions to evaluate at a time."""
        return max(1, VALUES // self.length)

    @property
    def parts_at_a_time(self) -> int:
        """How many parts of one prediction to evaluate at a time."""
        return min(self.parts, max(1, VALUES // self.part))

    def coefficients(self, phasors: Floats) -> npt.NDArray[np.complex64]:
        """Coefficients of packed predictions `(n, 2 dim)`, in the order of the layers, `(n, dim)`."""
        # cos(θ − φ) = Re(e^{−iθ} e^{iφ}), and a real transform adds each coefficient's conjugate: hence the 2.
        halves = phasors * np.float32(1 / (2 * self.dim))
        coefficients = np.empty((len(phasors), self.dim), dtype=np.complex64)
        if self.parts == 1:  # the order is that of the frequencies, and nothing is mirrored
            coefficients.real = halves[:, : self.dim]
            np.negative(halves[:, self.dim :], out=coefficients.imag)
        else:
            coefficients.real = halves[:, self._order]
            np.multiply(halves[:, self.dim + self._order], self._sign, out=coefficients.imag)
        return coefficients

    def values(self, coefficients: npt.NDArray[np.complex64], first: int = 0, last: int | None = None) -> Floats:
        """Similarities at the places of some parts, `(n, (last − first) · P)`."""
        last = self.parts if last is None else last
        spectrum = self._room(len(coefficients), last - first)
        if self.parts == 1:
            spectrum[:, 0, self._layers[0][1]] = coefficients
        else:
            turned = coefficients[:, None, :] * self._turns[first:last]
            for number, (entries, places) in enumerate(self._layers):
                # The first layer overwrites every place in use, so nothing is left of earlier predictions.
                if number:
                    spectrum[:, :, places] += turned[:, :, entries]
                else:
                    spectrum[:, :, places] = turned[:, :, entries]
        return _transformed(spectrum, self.part).reshape(len(coefficients), -1)

    def _room(self, rows: int, parts: int) -> npt.NDArray[np.complex64]:
        """A buffer for coefficients, which is zero at all places that have none."""
        room: npt.NDArray[np.complex64] | None = getattr(self._rooms, "room", None)
        if room is None or len(room) < rows or room.shape[1] < parts:
            room = self._rooms.room = np.zeros((rows, parts, self.part // 2 + 1), dtype=np.complex64)
        return room[:rows, :parts]


def _transformed(spectrum: npt.NDArray[np.complex64], length: int) -> Floats:
    """The values of series, `(..., length)`, from their coefficients."""
    if spectrum.size == length // 2 + 1 <= SHORT:
        # As fast as SciPy's if there is only one. A process that needs no others then saves 7 MB, since SciPy's
        # transforms import its special functions.
        return np.fft.irfft(spectrum, n=length, norm="forward").astype(np.float32, copy=False)
    from scipy.fft import irfft

    found: Floats = irfft(spectrum, n=length, norm="forward")
    return found


def _layers(place: Integers) -> tuple[Integers, Integers]:
    """Put entries into layers in which no two share a place; the order by layer, and the layer of each entry."""
    by_place = np.argsort(place, kind="stable")
    ordered = place[by_place]
    # The layer of an entry is the number of earlier entries at its place.
    layer = np.arange(len(place)) - np.searchsorted(ordered, ordered)
    by_layer = np.argsort(layer, kind="stable")
    return by_place[by_layer], layer[by_layer]


def _divisor(n: int, shortest: int, longest: int) -> int:
    """The smallest divisor of n that splits it into parts of at most `longest`, but at least `shortest`."""
    small = [q for q in range(1, math.isqrt(n) + 1) if n % q == 0]
    divisors = [q for q in (*small, *(n // q for q in reversed(small))) if q <= max(n // shortest, 1)]
    return next((q for q in divisors if n // q <= longest), divisors[-1])


Mask = npt.NDArray[np.bool_]

#: Numbers in a block of codes: few enough to stay in the cache.
BLOCK = 1 << 18
#: Tables of up to this many numbers, 256 MB, are kept: making codes takes much longer than comparing with them.
TABLE_LIMIT = 1 << 26
#: Labels scored before the best are merged, if codes come in blocks.
LABELS = 1 << 12
#: The k best labels and this many more are scored again in double precision. The last digits of a matrix product
#: depend on its shape, and would otherwise decide between labels that are practically equal.
MARGIN = 8
_LOWEST = float(np.finfo(np.float32).min)


class Codebook(ABC):
    """Codes of `n_labels` labels, each of `width` numbers.

    Parameters
    ----------
    n_labels, dim, seed : int
        See `circlet.codebooks.Codebook`.
    """

    #: Numbers of a code per dimension: a phasor has two, a component of a real vector one.
    numbers = 2

    def __init__(self, n_labels: int, dim: int, seed: int = 0) -> None:
        self.n_labels, self.dim, self.seed = n_labels, dim, seed
        self.width = self.numbers * dim
        #: The factor that turns the inner product of a prediction and a code into a similarity.
        self.scale = np.float32(1 / dim if self.numbers == 2 else 1)

    def state(self) -> dict[str, Any]:
        """What defines the codes."""
        return {"n_labels": self.n_labels, "dim": self.dim, "seed": self.seed}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.state().items())})"

    @property
    @abstractmethod
    def per_row(self) -> int:
        """How many scores of a row exist at a time."""

    @abstractmethod
    def codes(self, ids: Integers) -> Floats:
        """Codes of these labels, `(m, width)`."""

    @abstractmethod
    def scores(self, predicted: Floats) -> Floats:
        """Similarities of predicted codes `(n, width)` to every label, `(n, n_labels)`."""

    @abstractmethod
    def offsets(self, bias: Floats | None) -> Floats | None:
        """Biases of all labels, `(n_labels,)`, in the form that `best` takes; it takes time, so keep it."""

    #: The last biases of `top_k`, and their offsets.
    _known: tuple[Any, Any] | None = None

    def top_k(self, predicted: Floats, k: int, *, bias: Floats | None = None, **options: Any) -> Found:
        """Ids and scores of the k best labels of each prediction; see `circlet.scoring.ranking.top_k`."""
        known = self._known
        if known is None or known[0] is not bias:
            known = self._known = bias, self.offsets(bias)

        def find(k: int, allowed: Mask | None, budget: int) -> list[Found]:
            return self.best(predicted, k, known[1], allowed, budget)

        found: Found = top_k(find, predicted, self.n_labels, k, **options)
        return found

    @abstractmethod
    def best(self, predicted: Floats, k: int, offsets: Any, allowed: Mask | None, budget: int) -> list[Found]:
        """The k best labels by similarity plus offset, of some predictions after the other, within bytes."""


class SpectralCodebook(Codebook):
    """Circular codes whose scores are one inverse real FFT."""

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, length: int) -> None:
        super().__init__(n_labels, dim, seed)
        least = max(n_labels, 2 * (dim + 1))
        if length < least or length % 2:
            raise ParameterError(
                f"SpectralCodebook: `length` must be an even number >= {least}, the larger of n_labels and "
                f"2 (dim + 1), got {length!r}"
            )
        self.length = length

    def state(self) -> dict[str, Any]:
        return {**super().state(), "length": self.length}

    @property
    def per_row(self) -> int:
        return self.length

    @cached_property
    def frequencies(self) -> Integers:
        """The frequency of each dimension, `(dim,)`, ascending."""
        return np.sort(permuted(np.arange(self.dim), self.length // 2 - 1, self.seed, stream=1) + 1)

    def slots(self, ids: Integers) -> Integers:
        """The slots of labels, `(m,)`."""
        slots: Integers = permuted(ids, self.length, self.seed, stream=2)
        return slots

    def codes(self, ids: Integers) -> Floats:
        turns = self.slots(ids)[:, None] * self.frequencies % self.length
        return _packed(turns * (2 * math.pi / self.length)).astype(np.float32)

    @cached_property
    def series(self) -> Series:
        """The series whose values are the scores; made when labels are first scored."""
        return Series(self.frequencies, self.slots, self.length, self.n_labels)

    def scores(self, predicted: Floats) -> Floats:
        out = np.empty((len(predicted), self.n_labels), dtype=np.float32)

        def write(start: int, end: int) -> None:
            values = self.series.values(self.series.coefficients(predicted[start:end]))
            np.take(values, self.series.places, axis=1, out=out[start:end], mode="clip")

        in_parallel(write, len(predicted), self.series.rows_at_a_time)
        return out

    def offsets(self, bias: Floats | None) -> Floats:
        return self.series.spread(np.zeros(self.n_labels, dtype=np.float32) if bias is None else bias)

    def best(self, predicted: Floats, k: int, offsets: Any, allowed: Mask | None, budget: int) -> list[Found]:
        series = self.series
        if allowed is not None:
            offsets = np.where(np.append(allowed, False)[series.labels], offsets, np.float32(-np.inf))

        def rank(start: int, end: int) -> Found:
            coefficients = series.coefficients(predicted[start:end])
            if series.parts > series.parts_at_a_time:
                return self._best_of_parts(coefficients, k, offsets)
            values = series.values(coefficients)
            values += offsets
            return best_columns(values, k, series.labels)

        within_budget = max(1, budget // (PER_SCORE * self.length))
        return in_parallel(rank, len(predicted), min(series.rows_at_a_time, within_budget))

    def _best_of_parts(self, coefficients: npt.NDArray[np.complex64], k: int, offsets: Floats) -> Found:
        """The best labels of one prediction: those of the first parts, then any that are better in the next."""
        series = self.series
        found: Found = np.empty((1, 0), dtype=np.int64), np.empty((1, 0), dtype=np.float32)
        for first, last in steps(series.parts, series.parts_at_a_time):
            here = slice(first * series.part, last * series.part)
            values = series.values(coefficients, first, last)
            values += offsets[here]
            if found[1].shape[1] < k:
                found = merged(found, best_columns(values, min(k, values.shape[1]), series.labels[here]), k)
                continue
            better = np.flatnonzero(values[0] >= max(found[1][0, -1], _LOWEST))
            if len(better):
                ids = series.labels[here][better][None, :].astype(np.int64)
                found = merged(found, (ids, values[:, better]), k)
        return found


class CodesInBlocks(Codebook):
    """Codes without structure, which predictions are compared with one by one."""

    @abstractmethod
    def _generate(self, ids: Integers) -> Floats:
        """Codes of labels that predictions are compared with, `(m, width)`, from the seed alone."""

    @property
    def per_row(self) -> int:
        return LABELS

    def codes(self, ids: Integers) -> Floats:
        if self._table is not None:
            return self._table[ids]
        size = max(1, BLOCK // self.width)
        return np.concatenate([self._generate(ids[start:end]) for start, end in steps(len(ids), size)])

    @cached_property
    def _table(self) -> Floats | None:
        if self.n_labels * self.width > TABLE_LIMIT:
            return None
        table = np.empty((self.n_labels, self.width), dtype=np.float32)
        for start, end in steps(self.n_labels, max(1, BLOCK // self.width)):
            table[start:end] = self._generate(np.arange(start, end))
        return table

    def _blocks(self) -> Iterator[tuple[int, int, Floats]]:
        """Codes of all labels, some at a time, with the first label and the one after the last."""
        for start, end in steps(self.n_labels, LABELS):
            whole = self._table
            yield start, end, self.codes(np.arange(start, end)) if whole is None else whole[start:end]

    def scores(self, predicted: Floats) -> Floats:
        out, scaled = np.empty((len(predicted), self.n_labels), dtype=np.float32), predicted * self.scale
        for start, end, codes in self._blocks():
            np.matmul(scaled, codes.T, out=out[:, start:end])
        return out

    def offsets(self, bias: Floats | None) -> Floats | None:
        return bias

    def best(self, predicted: Floats, k: int, offsets: Any, allowed: Mask | None, budget: int) -> list[Found]:
        if allowed is not None:
            offsets = np.where(allowed, np.float32(0) if offsets is None else offsets, np.float32(-np.inf))
        size = max(1, budget // (PER_SCORE * LABELS))
        return [self._best(predicted[start:end], k, offsets) for start, end in steps(len(predicted), size)]

    def _best(self, predicted: Floats, k: int, offsets: Floats | None) -> Found:
        n, scaled = len(predicted), predicted * self.scale
        found: Found = np.empty((n, 0), dtype=np.int64), np.empty((n, 0), dtype=np.float32)
        for start, end, codes in self._blocks():
            scores = scaled @ codes.T
            scores += np.float32(0) if offsets is None else offsets[start:end]  # adding 0 turns −0 into 0
            ids, best = best_columns(scores, min(k + MARGIN, end - start))
            found = merged(found, (np.where(ids < 0, -1, ids + start), best), k + MARGIN)
        ids, precise = found[0], np.empty(found[0].shape, dtype=np.float32)
        for row in range(n):
            precise[row] = self.codes(ids[row]).astype(np.float64) @ scaled[row]  # rounded only once
        precise += np.float32(0) if offsets is None else offsets[ids]
        precise[ids < 0] = -np.inf
        order = by_score(ids, precise)[:, :k]
        return take(ids, order), take(precise, order)


class IndependentCodebook(CodesInBlocks):
    """Angles drawn independently and uniformly, from the whole circle or from a few angles."""

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, phases: int | None = None) -> None:
        super().__init__(n_labels, dim, seed)
        self.phases = phases

    def state(self) -> dict[str, Any]:
        return super().state() | ({} if self.phases is None else {"phases": self.phases})

    def _generate(self, ids: Integers) -> Floats:
        turns: Floats = uniform(self.seed, ids, self.dim)
        if self.phases is not None:
            turns = np.floor(turns * np.float32(self.phases)) / np.float32(self.phases)
        return _packed(turns * np.float32(2 * math.pi) - np.float32(math.pi))


class HolographicCodebook(CodesInBlocks):
    """Gaussian vectors, projected (Ganesan et al. 2021) or plain (Plate 1995)."""

    numbers = 1

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, projected: bool = True) -> None:
        super().__init__(n_labels, dim, seed)
        self.projected = projected

    def state(self) -> dict[str, Any]:
        return {**super().state(), "projected": self.projected}

    def _generate(self, ids: Integers) -> Floats:
        # The Box-Muller transform: two uniform numbers make two normal ones.
        half = (self.dim + 1) // 2
        numbers: Floats = uniform(self.seed, ids, 2 * half)
        radius = np.sqrt(-2 * np.log1p(-numbers[:, :half]))
        normal = np.tile(radius, 2) * _packed(np.float32(2 * math.pi) * numbers[:, half:])
        vectors: Floats = normal[:, : self.dim] / np.float32(math.sqrt(self.dim))
        if self.projected:
            return _projected(vectors)
        # A score is a cosine.
        norms: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines: Floats = vectors / np.maximum(norms, np.float32(1e-12))
        return cosines


#: By the names in `circlet.settings.network.CODEBOOKS`.
CODEBOOKS: dict[str, Callable[..., Codebook]] = {
    "spectral": SpectralCodebook,
    "independent": IndependentCodebook,
    "four-phase": partial(IndependentCodebook, phases=4),
    "two-phase": partial(IndependentCodebook, phases=2),
    "holographic": HolographicCodebook,
}


def _packed(theta: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([np.cos(theta), np.sin(theta)], axis=1)


def _projected(vectors: Floats) -> Floats:
    """Vectors with every Fourier coefficient on the unit circle; one that is zero becomes 1."""
    from scipy.fft import irfft, rfft  # which takes memory that other codebooks may not need

    spectrum = rfft(vectors)
    magnitude = np.abs(spectrum)
    unit = np.where(magnitude > 0, spectrum / np.maximum(magnitude, np.finfo(np.float32).tiny), 1)
    found: Floats = irfft(unit, n=vectors.shape[1])
    return found
