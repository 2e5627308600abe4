"""Scores as a Fourier series, on a CPU: all labels of a spectral codebook at once.

All scores of a prediction are a Fourier series at the slots n = 0…M−1. With M = Q · P and n = n₂ + Q n₁,

    Σ_j c_j e^{2πi f_j n / M}  =  Σ_j (c_j e^{2πi f_j n₂ / M}) e^{2πi (f_j mod P) n₁ / P}:

one transform of length M becomes one of length P for each n₂, with rotated coefficients. Only d of the M/2
coefficients are non-zero, so rotating them is nearly free. A few of these parts at a time are transformed and
ranked while they are in the cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.scoring.arrays import Floats, Found, Integers, best_columns
from circlet.scoring.ranking import PER_SCORE, merge
from circlet.threads import in_parallel, steps, worker_count

__all__ = ["SLOT_BLOCK", "Series", "layers", "part_count"]

Coefficients: TypeAlias = "npt.NDArray[np.complex64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"

#: Transforms above LONGEST are split if their length has suitable divisors, but not into parts below SHORTEST.
LONGEST, SHORTEST = 1 << 15, 1 << 10
#: Values that are computed at a time, 1 MB: they and their coefficients fit into a cache, and threads that compute
#: so many seldom wait for each other.
VALUES = 1 << 18
#: Labels whose slots are computed at a time.
SLOT_BLOCK = 1 << 15


class Series:
    """Evaluates predictions at all slots; several threads can use it at once.

    Parameters
    ----------
    frequencies : int64 ndarray of shape (dim,)
    slots : callable
        Maps label ids to slots.
    length : int
        M, the number of slots.
    n_labels : int
    short : int
        A single transform of up to this length is left to NumPy, whose last digits differ from SciPy's. It is as
        fast, and a process that needs no others saves 7 MB, since SciPy's transforms import its special functions.

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
        self,
        frequencies: Integers,
        slots: Callable[[Integers], Integers],
        length: int,
        n_labels: int,
        short: int = 1 << 11,
    ) -> None:
        self.n_labels, self.dim, self.length, self.short = n_labels, len(frequencies), length, short
        self.parts = part_count(length // 2, SHORTEST // 2, LONGEST // 2)
        self.part = length // self.parts
        self.places = np.empty(n_labels, dtype=np.int32)
        for start, end in steps(n_labels, SLOT_BLOCK):
            at = slots(np.arange(start, end))
            self.places[start:end] = (at % self.parts) * self.part + at // self.parts
        self.labels = np.full(length, n_labels, dtype=np.int32)
        self.labels[self.places] = np.arange(n_labels, dtype=np.int32)
        self._arrange(frequencies)
        #: The last biases, and what they add to each place.
        self._offsets: tuple[Floats | None, Floats] | None = None
        #: A buffer for coefficients, one for each thread.
        self._rooms = threading.local()

    def _arrange(self, frequencies: Integers) -> None:
        residue = frequencies % self.part
        # Values are real, so a coefficient above P/2 goes to its mirror image as its conjugate, and one that is
        # its own mirror image is added to its conjugate.
        mirrored = 2 * residue > self.part
        place = np.where(mirrored, self.part - residue, residue)
        self._order, layer = layers(place)
        ends = np.cumsum([0, *np.bincount(layer)])
        #: Where coefficients go, layer by layer; in a layer, no two share a place.
        self._layers = [(slice(a, b), place[self._order[a:b]]) for a, b in pairwise(ends)]
        self._sign = np.where(mirrored, 1, -1).astype(np.float32)[self._order]
        turns = np.arange(self.parts)[:, None] * frequencies[self._order] % self.length
        angles = turns * (2 * math.pi / self.length) * -self._sign
        weight = np.where(2 * residue % self.part == 0, 2.0, 1.0)[self._order]
        self._turns = (weight * np.exp(1j * angles)).astype(np.complex64)

    def scores(self, predicted: Floats) -> Floats:
        """Similarities of packed predictions `(n, 2 dim)` to all labels, `(n, n_labels)`."""
        out = np.empty((len(predicted), self.n_labels), dtype=np.float32)

        def write(start: int, end: int) -> None:
            values = self.values(self.coefficients(predicted[start:end]))
            np.take(values, self.places, axis=1, out=out[start:end], mode="clip")

        in_parallel(write, len(predicted), max(1, VALUES // self.length))
        return out

    def best(
        self,
        predicted: Floats,
        bias: Floats | None,
        allowed: Mask | None,
        k: int,
        budget: int,
        threads: int | None = None,
    ) -> list[Found]:
        """The k best labels by similarity plus bias, of some predictions after the other, within bytes."""
        offsets = self.offsets(bias)
        if allowed is not None:
            offsets = np.where(np.append(allowed, False)[self.labels], offsets, np.float32(-np.inf))
        parts_at_a_time = min(self.parts, max(1, VALUES // self.part))

        def rank(start: int, end: int) -> Found:
            coefficients = self.coefficients(predicted[start:end])
            if self.parts > parts_at_a_time:
                return self._best_of_parts(coefficients, k, offsets, parts_at_a_time)
            values = self.values(coefficients)
            values += offsets
            return best_columns(values, k, self.labels)

        scores = budget // PER_SCORE  # of all threads together
        threads = min(threads or worker_count(), max(1, scores // self.length))
        size = max(1, min(VALUES, scores // threads) // self.length)
        return in_parallel(rank, len(predicted), size, threads)

    def _best_of_parts(self, coefficients: Coefficients, k: int, offsets: Floats, parts_at_a_time: int) -> Found:
        """The best labels of one prediction: those of the first parts, then any that are better in the next."""
        found: Found = np.empty((1, 0), dtype=np.int64), np.empty((1, 0), dtype=np.float32)
        for first, last in steps(self.parts, parts_at_a_time):
            here = slice(first * self.part, last * self.part)
            values = self.values(coefficients, first, last)
            values += offsets[here]
            if found[1].shape[1] < k:
                found = merge(found, best_columns(values, min(k, values.shape[1]), self.labels[here]), k)
                continue
            better = np.flatnonzero(values[0] >= max(found[1][0, -1], np.finfo(np.float32).min))
            if len(better):
                ids = self.labels[here][better][None, :].astype(np.int64)
                found = merge(found, (ids, values[:, better]), k)
        return found

    def offsets(self, bias: Floats | None) -> Floats:
        """What a bias of labels adds to each place, `(M,)`; −∞ where there is no label."""
        # A comparison takes much less time than spreading. Read-only biases need none if they are the last ones.
        known = self._offsets
        if known is None or not _same(known[0], bias):
            spread = np.full(self.length, -np.inf, dtype=np.float32)
            spread[self.places] = 0 if bias is None else bias
            kept = bias if bias is None or not bias.flags.writeable else bias.copy()
            known = self._offsets = kept, spread
        return known[1]

    def coefficients(self, phasors: Floats) -> Coefficients:
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

    def values(self, coefficients: Coefficients, first: int = 0, last: int | None = None) -> Floats:
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
        if spectrum.size == self.part // 2 + 1 <= self.short // 2 + 1:
            return np.fft.irfft(spectrum[0], n=self.part, norm="forward").astype(np.float32, copy=False)
        from scipy.fft import irfft

        values: Floats = irfft(spectrum, n=self.part, norm="forward")
        return values.reshape(len(coefficients), -1)

    def _room(self, rows: int, parts: int) -> Coefficients:
        """A buffer for coefficients, which is zero at all places that have none."""
        room: Coefficients | None = getattr(self._rooms, "room", None)
        if room is None or len(room) < rows or room.shape[1] < parts:
            room = self._rooms.room = np.zeros((rows, parts, self.part // 2 + 1), dtype=np.complex64)
        return room[:rows, :parts]


def _same(known: Floats | None, bias: Floats | None) -> bool:
    if known is None or bias is None:
        return known is bias
    return (known is bias and not bias.flags.writeable) or bool((known == bias).all())


def layers(place: Integers) -> tuple[Integers, Integers]:
    """Put entries into layers in which no two share a place; the order by layer, and the layer of each entry."""
    by_place = np.argsort(place, kind="stable")
    ordered = place[by_place]
    # The layer of an entry is the number of earlier entries at its place.
    layer = np.arange(len(place)) - np.searchsorted(ordered, ordered)
    by_layer = np.argsort(layer, kind="stable")
    return by_place[by_layer], layer[by_layer]


def part_count(n: int, shortest: int, longest: int) -> int:
    """The smallest divisor of n that splits it into parts of at most `longest`, but at least `shortest`."""
    small = [q for q in range(1, math.isqrt(n) + 1) if n % q == 0]
    divisors = [q for q in (*small, *(n // q for q in reversed(small))) if q <= max(n // shortest, 1)]
    return next((q for q in divisors if n // q <= longest), divisors[-1])
