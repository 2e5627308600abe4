"""The codes of labels, as in `circlet.codebooks`, and from predicted codes to scores and to the best labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import ParameterError
from circlet.hashing import permuted, uniform
from circlet.runtime.parallel import in_parallel, steps
from circlet.runtime.ranking import PER_SCORE, Found, best_columns, merged
from circlet.runtime.series import Series
from circlet.runtime.weights import Floats

__all__ = ["CODEBOOKS", "Codebook", "CodesInBlocks"]

Integers = npt.NDArray[np.int64]
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
        return merged((ids, precise), (ids[:, :0], precise[:, :0]), k)


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
