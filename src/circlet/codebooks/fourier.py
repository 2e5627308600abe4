"""Scores as a Fourier series with torch: for training, and for ranking on a GPU.

`evaluate` and its transpose `project` are one real transform each. `PairedSeries` does on a GPU what
`circlet.codebooks.series` does on a CPU. Two parts share one complex transform, as its real and its imaginary
part: a transform of real values needs more passes over memory, and memory traffic is the whole cost of such a
short transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from circlet.codebooks.series import SLOT_BLOCK, layers, part_count
from circlet.scoring.ranking import PER_SCORE
from circlet.scoring.tensors import best_columns

__all__ = ["PairedSeries", "coefficients", "evaluate", "project"]

#: The longest complex transform that a GPU computes in a single kernel, which reads and writes each number once,
#: and the shortest that a transform is split into.
LONGEST, SHORTEST = 1 << 13, 1 << 10
#: Bytes per score: coefficients, the score, and the work space of a transform.
DEVICE_PER_SCORE = 12
#: The largest k for the kernels: they find labels one by one, while torch sorts many at once.
FEW = 256
#: The most predictions at a time: CUDA numbers blocks of predictions with 16 bits.
MOST = 1 << 16


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


class PairedSeries:
    """Evaluates predictions at all slots with Triton kernels, two parts per transform: n₂ and n₂ + 1, for even n₂.

    With the coefficients of negative frequencies, the transform of one part is real. Adding i times the
    coefficients of the other part puts that part's values into the imaginary part.

    Parameters
    ----------
    frequencies : Tensor of shape (dim,)
        On the device where predictions are.
    slots : callable
        Maps label ids to slots.
    length : int
        M, the number of slots.
    n_labels : int

    Attributes
    ----------
    labels : Tensor of shape (M,), int32
        The label at each position of the result; `n_labels` where there is none.
    """

    def __init__(self, frequencies: Tensor, slots: Callable[[Tensor], Tensor], length: int, n_labels: int) -> None:
        self.device, self.n_labels, self.dim = frequencies.device, n_labels, len(frequencies)
        self.length, self.parts = length, 2 * part_count(length // 2, SHORTEST, LONGEST)
        self.part = self.length // self.parts
        self._arrange(frequencies)
        self.labels = torch.full((self.length,), self.n_labels, dtype=torch.int32, device=self.device)
        for ids in torch.split(torch.arange(self.n_labels, device=self.device), SLOT_BLOCK):
            at = slots(ids)
            part, within = at % self.parts, at // self.parts
            self.labels[(part // 2 * self.part + within) * 2 + part % 2] = ids.int()
        self._bias: Tensor | None = None
        self._offsets: Tensor | None = None

    def _arrange(self, frequencies: Tensor) -> None:
        signed = torch.cat([frequencies, -frequencies])
        order, layer = (
            torch.from_numpy(each).to(self.device) for each in layers((signed % self.part).cpu().numpy())
        )
        signed, dims = signed[order], order % self.dim
        # Reorder a prediction so that neighbors go to neighboring positions; positive frequencies get e^{−iθ}.
        self._sources = torch.stack([dims, dims + self.dim], dim=1).flatten()
        self._signs = torch.stack([torch.ones_like(signed), -signed.sign()], dim=1).flatten().float()
        # The entry that each layer adds at each position; −1 for none. The last layer is all −1.
        self._entries = torch.full((int(layer[-1]) + 2, self.part), -1, dtype=torch.int32, device=self.device)
        self._entries[layer, signed % self.part] = torch.arange(len(order), dtype=torch.int32, device=self.device)
        turns = torch.arange(self.parts, device=self.device)[:, None] * signed % self.length
        angles = turns.double() * (2 * math.pi / self.length)
        turned = torch.polar(torch.full_like(angles, 1 / (2 * self.dim)), angles)
        self._turns = (turned[::2] + 1j * turned[1::2]).to(torch.complex64)

    def best(
        self, predicted: Tensor, bias: Tensor | None, allowed: Tensor | None, k: int, budget: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the k best labels by similarity plus bias, of some predictions after the other, within bytes."""
        from circlet.kernels.triton import best

        offsets = self.offsets(bias)
        if allowed is not None:
            hidden = torch.cat([allowed, allowed.new_zeros(1)])[self.labels]
            offsets = offsets.masked_fill(~hidden, -math.inf)
        per_score = DEVICE_PER_SCORE if k <= FEW else PER_SCORE
        size = max(1, min(budget // (per_score * self.length), MOST))
        room = self.room(min(size, len(predicted)))
        for part in torch.split(predicted, size):
            values = self(part, room)
            if k > FEW:
                yield best_columns(values.add_(offsets), k, self.labels)
            else:
                ids, scores = best(values, offsets, self.labels, k)
                yield ids.masked_fill_(scores == -math.inf, -1), scores

    def offsets(self, bias: Tensor | None) -> Tensor:
        """Return the offset of each position, `(M,)`: the bias of its label, or −∞ if there is no label."""
        # Cached: comparing the bias is much cheaper than gathering it. A comparison also detects changes that a
        # version counter misses, such as those by a replayed CUDA graph.
        if self._offsets is None or not (
            self._bias is None if bias is None else self._bias is not None and torch.equal(self._bias, bias)
        ):
            self._bias = None if bias is None else bias.clone()
            values = torch.zeros(self.n_labels, device=self.device) if bias is None else bias
            self._offsets = torch.cat([values, values.new_full((1,), -math.inf)]).index_select(0, self.labels)
        return self._offsets

    def room(self, rows: int) -> Tensor:
        """Allocate a reusable buffer for the coefficients of this many predictions."""
        return torch.empty(rows, self.parts // 2, self.part, dtype=torch.complex64, device=self.device)

    def __call__(self, phasors: Tensor, room: Tensor) -> Tensor:
        """Compute the similarities at all positions, `(batch, M)`, of packed predictions `(batch, 2 dim)`."""
        return self.transform(self.coefficients(phasors, room)).view(len(phasors), self.length)

    def coefficients(self, phasors: Tensor, room: Tensor) -> Tensor:
        """Write the coefficients of all transforms to `room`, and return them."""
        from circlet.kernels.triton import write_spectrum

        ordered = (phasors[:, self._sources] * self._signs).view(torch.complex64)
        return write_spectrum(ordered, self._entries, self._turns, room[: len(phasors)])

    def transform(self, spectrum: Tensor) -> Tensor:
        """Return the values of the series with these coefficients."""
        pairs: Tensor = torch.fft.ifft(spectrum, norm="forward")
        return torch.view_as_real(pairs)
