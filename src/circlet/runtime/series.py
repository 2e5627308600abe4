"""Scores as a Fourier series, as in `circlet.codebooks.fourier`: all labels of a spectral codebook at once.

All scores of a prediction are a Fourier series at the slots n = 0…M−1. With M = Q · P and n = n₂ + Q n₁,

    Σ_j c_j e^{2πi f_j n / M}  =  Σ_j (c_j e^{2πi f_j n₂ / M}) e^{2πi (f_j mod P) n₁ / P}:

one transform of length M becomes one of length P for each n₂, with coefficients that are rotated accordingly. A
few of these parts at a time are transformed and ranked while they are in the cache.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from circlet.runtime.weights import Floats

__all__ = ["Series"]

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
