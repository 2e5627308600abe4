"""Scores as a Fourier series: score all labels of a spectral codebook at once.

`evaluate` and its transpose `project` are one real transform each, for training. `Series` is for decoding: it
computes the same values faster, in a different order.

All scores of a prediction are a Fourier series at the slots n = 0…M−1. With M = Q · P and n = n₂ + Q n₁,

    Σ_j c_j e^{2πi f_j n / M}  =  Σ_j (c_j e^{2πi f_j n₂ / M}) e^{2πi (f_j mod P) n₁ / P}:

one transform of length M becomes one of length P for each n₂, with rotated coefficients. Only
d of the M/2 coefficients are non-zero, so rotating them is nearly free, and short transforms stay in the cache.

On a GPU, two parts share one complex transform, as its real and its imaginary part. A transform of real values
needs more passes over memory, and memory traffic is the whole cost of such a short transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from circlet import kernels

__all__ = ["SLOT_BLOCK", "PairedSeries", "Series", "coefficients", "evaluate", "make_series", "project"]

#: Transforms above LONGEST are split if their length has suitable divisors, but not into parts below SHORTEST.
LONGEST, SHORTEST = 1 << 14, 1 << 10
#: The longest complex transform that a GPU computes in a single kernel, which reads and writes each number once.
LONGEST_PAIR = 1 << 13
#: Slots computed at a time: few enough that torch's threads do not wait for each other.
SLOT_BLOCK = 1 << 15


def coefficients(phasors: Tensor) -> Tensor:
    """Return the coefficients `(batch, dim)` of the series whose values are inner products with packed phasors."""
    # cos(θ − φ) = Re(e^{−iθ} e^{iφ}). A real transform adds each coefficient's conjugate, so callers divide by 2.
    cos, sin = phasors.chunk(2, dim=1)
    return torch.complex(cos, -sin)


def evaluate(coefficients: Tensor, frequencies: Tensor, length: int, room: Tensor | None = None) -> Tensor:
    """Evaluate the series with these coefficients at all slots, `(batch, length)`.

    `room` is a spectrum to overwrite, which is zero except at these frequencies. Without `room`, the result is
    differentiable.
    """
    if room is None:
        spectrum = coefficients.new_zeros(len(coefficients), length // 2 + 1)
        spectrum = spectrum.index_copy(1, frequencies, coefficients)
    else:
        spectrum = room[: len(coefficients)]
        spectrum[:, frequencies] = coefficients
    values: Tensor = torch.fft.irfft(spectrum, n=length, norm="forward")
    return values


def project(values: Tensor, frequencies: Tensor) -> Tensor:
    """Apply the transpose of `evaluate`: map values at all slots, `(batch, length)`, to packed phasors."""
    by_coefficient = torch.fft.rfft(values)[:, frequencies]
    return torch.cat([by_coefficient.real, -by_coefficient.imag], dim=1)


def make_series(
    frequencies: Tensor,
    slots: Callable[[Tensor], Tensor],
    length: int,
    n_labels: int,
    device: torch.device,
) -> Series:
    """Make the fastest kind of series for a device; see `Series` for the arguments."""
    kind = PairedSeries if kernels.run_on(device) else Series
    return kind(frequencies, slots, length, n_labels, device)


class Series:
    """Evaluates predictions at all slots.

    Parameters
    ----------
    frequencies : Tensor of shape (dim,)
    slots : callable
        Maps label ids to slots.
    length : int
        M, the number of slots.
    n_labels : int
    device : torch.device

    Attributes
    ----------
    labels : Tensor of shape (M,), int32
        The label at each position of the result; `n_labels` where there is none.
    """

    def __init__(
        self,
        frequencies: Tensor,
        slots: Callable[[Tensor], Tensor],
        length: int,
        n_labels: int,
        device: torch.device,
    ) -> None:
        self.device, self.n_labels, self.dim = device, n_labels, len(frequencies)
        self.length, self.parts = length, self._split(length // 2)
        self.part = self.length // self.parts
        self._arrange(frequencies.to(device))
        self.labels = torch.full((self.length,), self.n_labels, dtype=torch.int32, device=device)
        for ids in torch.split(torch.arange(self.n_labels, device=device), SLOT_BLOCK):
            at = slots(ids)
            self.labels[self._places_of(at % self.parts, at // self.parts)] = ids.int()
        self._bias: Tensor | None = None
        self._offsets: Tensor | None = None

    def _split(self, half: int) -> int:
        """Return the number of parts Q, given M/2, so that the transforms have even length."""
        return _divisor(half, SHORTEST // 2, LONGEST // 2)

    def _places_of(self, part: Tensor, within: Tensor) -> Tensor:
        return part * self.part + within

    def _arrange(self, frequencies: Tensor) -> None:
        residue = frequencies % self.part
        # Values are real: a coefficient above P/2 moves to its mirror image, conjugated; one that is its own
        # mirror image is added to its conjugate.
        mirrored = 2 * residue > self.part
        place = torch.where(mirrored, self.part - residue, residue)
        self._order, layer = _layers(place)
        self._sizes = torch.bincount(layer).tolist()
        self._places = torch.split(place[self._order], self._sizes)
        self._sign = torch.where(mirrored, 1.0, -1.0)[self._order]
        turns = torch.arange(self.parts, device=place.device)[:, None] * frequencies[self._order] % self.length
        angles = turns.double() * (2 * math.pi / self.length) * -self._sign
        own_image = (2 * residue % self.part == 0)[self._order]
        self._turns = torch.polar(1.0 + own_image.double().expand_as(angles), angles).to(torch.complex64)

    def offsets(self, bias: Tensor | None) -> Tensor:
        """Return the offset of each position, `(M,)`: the bias of its label, or −∞ if there is no label."""
        # Cached: comparing the bias is much cheaper than gathering it. A comparison also detects changes that a
        # version counter misses, such as those by a replayed CUDA graph.
        known = self._offsets is not None and (
            self._bias is None if bias is None else self._bias is not None and torch.equal(self._bias, bias)
        )
        if not known:
            self._bias = None if bias is None else bias.clone()
            self._offsets = self._spread(torch.zeros(self.n_labels, device=self.device) if bias is None else bias)
        assert self._offsets is not None
        return self._offsets

    def _spread(self, values: Tensor) -> Tensor:
        return torch.cat([values, values.new_full((1,), -math.inf)]).index_select(0, self.labels)

    def room(self, rows: int) -> Tensor:
        """Allocate a reusable buffer for the coefficients of this many predictions."""
        return torch.zeros(rows, self.parts, self.part // 2 + 1, dtype=torch.complex64, device=self.device)

    def __call__(self, phasors: Tensor, room: Tensor) -> Tensor:
        """Compute the similarities at all positions, `(batch, M)`, of packed predictions `(batch, 2 dim)`."""
        return self.transform(self.coefficients(phasors, room)).view(len(phasors), self.length)

    def coefficients(self, phasors: Tensor, room: Tensor) -> Tensor:
        """Write the coefficients of all transforms to `room`, and return them."""
        # cos(θ − φ) = Re(e^{−iθ} e^{iφ}), and a real transform adds each coefficient's conjugate: hence the 2.
        cos, sin = (phasors / (2 * self.dim)).chunk(2, dim=1)
        coefficients = torch.complex(cos[:, self._order], sin[:, self._order] * self._sign)
        turned = torch.split(coefficients[:, None, :] * self._turns, self._sizes, dim=2)
        spectrum = room[: len(phasors)]
        # The first layer overwrites all positions in use, so nothing remains of earlier predictions.
        spectrum[:, :, self._places[0]] = turned[0]
        for places, values in zip(self._places[1:], turned[1:], strict=True):
            spectrum[:, :, places] += values
        spectrum[:, :, [0, -1]] = spectrum[:, :, [0, -1]].real.to(spectrum.dtype)
        return spectrum

    def transform(self, spectrum: Tensor) -> Tensor:
        """Return the values of the series with these coefficients."""
        return _real_series(spectrum, self.part)


class PairedSeries(Series):
    """A series with Triton kernels and two parts per complex transform: n₂ and n₂ + 1, for even n₂.

    With the coefficients of negative frequencies, the transform of one part is real. Adding i times the
    coefficients of the other part puts that part's values into the imaginary part.
    """

    def _split(self, half: int) -> int:
        return 2 * _divisor(half, SHORTEST, LONGEST_PAIR)

    def _places_of(self, part: Tensor, within: Tensor) -> Tensor:
        return (part // 2 * self.part + within) * 2 + part % 2

    def _arrange(self, frequencies: Tensor) -> None:
        signed = torch.cat([frequencies, -frequencies])
        order, layer = _layers(signed % self.part)
        signed, dims = signed[order], order % self.dim
        # Reorder a prediction so that neighbors go to neighboring positions; positive frequencies get e^{−iθ}.
        self._sources = torch.stack([dims, dims + self.dim], dim=1).flatten()
        self._signs = torch.stack([torch.ones_like(signed), -signed.sign()], dim=1).flatten().float()
        # The entry that each layer adds at each position; −1 for none. The last layer is all −1.
        self._entries = torch.full((int(layer[-1]) + 2, self.part), -1, dtype=torch.int32, device=order.device)
        self._entries[layer, signed % self.part] = torch.arange(len(order), dtype=torch.int32, device=order.device)
        turns = torch.arange(self.parts, device=order.device)[:, None] * signed % self.length
        angles = turns.double() * (2 * math.pi / self.length)
        turned = torch.polar(torch.full_like(angles, 1 / (2 * self.dim)), angles)
        self._turns = (turned[::2] + 1j * turned[1::2]).to(torch.complex64)

    def room(self, rows: int) -> Tensor:
        return torch.empty(rows, self.parts // 2, self.part, dtype=torch.complex64, device=self.device)

    def coefficients(self, phasors: Tensor, room: Tensor) -> Tensor:
        from circlet.kernels.triton import write_spectrum

        ordered = (phasors[:, self._sources] * self._signs).view(torch.complex64)
        return write_spectrum(ordered, self._entries, self._turns, room[: len(phasors)])

    def transform(self, spectrum: Tensor) -> Tensor:
        pairs: Tensor = torch.fft.ifft(spectrum, norm="forward")
        return torch.view_as_real(pairs)


def _real_series(spectrum: Tensor, n: int) -> Tensor:
    if spectrum.device.type != "cpu":
        series: Tensor = torch.fft.irfft(spectrum, n=n, norm="forward")
        return series
    # SciPy is as fast as torch, and a row's result does not depend on the other rows. With torch, the result for a
    # single row differs.
    from scipy.fft import irfft

    return torch.from_numpy(irfft(spectrum.numpy(), n=n, norm="forward", workers=torch.get_num_threads()))


def _layers(place: Tensor) -> tuple[Tensor, Tensor]:
    """Sort entries into layers without shared positions; return the order, and the layer of each entry."""
    by_place = place.argsort(stable=True)
    ordered = place[by_place]
    # The layer of an entry is the number of earlier entries at its position.
    layer = torch.arange(len(place), device=place.device) - torch.searchsorted(ordered, ordered)
    by_layer = layer.argsort(stable=True)
    return by_place[by_layer], layer[by_layer]


def _divisor(n: int, shortest: int, longest: int) -> int:
    """Return the smallest divisor of n that gives parts of at most `longest`, but at least `shortest`."""
    small = [q for q in range(1, math.isqrt(n) + 1) if n % q == 0]
    divisors = [q for q in (*small, *(n // q for q in reversed(small))) if q <= max(n // shortest, 1)]
    return next((q for q in divisors if n // q <= longest), divisors[-1])
