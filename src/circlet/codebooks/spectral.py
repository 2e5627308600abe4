"""Circular codes whose scores are one Fourier transform: circlet's default."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.checks import is_integer
from circlet.codebooks import decoding, fourier
from circlet.codebooks.base import Codebook, Slots
from circlet.errors import ParameterError
from circlet.hashing import permuted, uniform

__all__ = ["SpectralCodebook"]

#: Up to this many labels, codes are generated from a table of slots (64 MB).
SLOT_TABLE = 1 << 24


class SpectralCodebook(Codebook):
    """Circular codes whose scores are one inverse real FFT: angle j of label y is 2π · slot(y) · f_j / M.

    Each dimension has an integer frequency f_j, all different, and each label has a slot. Codes are powers of one
    base vector under binding. The scores of a predicted vector are a Fourier series with d non-zero coefficients,
    evaluated at the slots. This takes M log M steps instead of labels × dim, and needs d integers and a seed
    instead of a table.

    The slots are a seeded pseudo-random permutation of 0…M−1. Without it, labels with neighboring ids, which often
    occur together, would have codes in arithmetic progression, and superpositions of such codes collapse.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    dim : int
        Dimension of the codes.
    seed : int
        The codes follow from it.
    cache : bool
        Keep a table of all codes when they are first needed.
    length : int, optional
        M, an even integer of at least `n_labels` and 2 (dim + 1). Default: the next fast FFT length with room for
        5% more labels. The closer M is to 2 dim, the closer codes are to orthogonal.
    """

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, length: int | None = None, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        # With fewer slots, there are not enough frequencies strictly between 0 and M/2.
        least = max(self.n_labels, 2 * (self.dim + 1))
        if length is None:
            length = _fast_even_length(max(self.n_labels + self.n_labels // 20, least))
        if not is_integer(length, least) or length % 2:
            raise ParameterError(
                f"SpectralCodebook: `length` must be an even number >= {least}, the larger of n_labels and "
                f"2 (dim + 1), got {length!r}"
            )
        self.length = int(length)
        #: The frequency of each dimension, `(dim,)`: distinct, between 1 and M/2 − 1, ascending.
        self.frequencies = (
            (permuted(torch.arange(self.dim), self.length // 2 - 1, self.seed, stream=1) + 1).sort().values
        )
        self._slots: dict[torch.device, Slots] = {}
        self._series: fourier.Series | None = None

    @property
    def width(self) -> int:
        return 2 * self.dim

    @property
    def scale(self) -> float:
        return 1 / self.dim

    @property
    def capacity(self) -> int:
        return self.length

    @property
    def needs_table(self) -> bool:
        return False

    def state(self) -> dict[str, Any]:
        return {**super().state(), "length": self.length}

    def grow(self, n_labels: int) -> None:
        if self._integer("n_labels", n_labels, least=1) > self.length:
            raise ParameterError(
                f"SpectralCodebook: {n_labels} labels do not fit into its {self.length} slots; "
                "train a new model with more `slots`"
            )
        super().grow(n_labels)

    def slots(self, ids: Tensor) -> Tensor:
        """Return the slots of labels, `(m,)`."""
        slots: Tensor = permuted(self._checked(ids), self.length, self.seed, stream=2)
        return slots

    def slots_on(self, device: torch.device) -> Slots:
        """Return frequencies and slots of all labels on a device; cached, and never saved with a model."""
        known = self._slots.get(device)
        if known is None or len(known.of_labels) != self.n_labels:
            ids = torch.split(torch.arange(self.n_labels, device=device), fourier.SLOT_BLOCK)
            of_labels = torch.cat([self.slots(block).int() for block in ids])
            known = self._slots[device] = Slots(self.frequencies.to(device), of_labels, self.length)
        return known

    def _generate(self, ids: Tensor) -> Tensor:
        # Training needs slots at every step, so they come from a table unless it would be large.
        small = self.n_labels <= SLOT_TABLE
        slots = self.slots_on(ids.device).of_labels[ids] if small else self.slots(ids)
        # Full turns are removed in float64; even with 10⁷ slots, nine digits of the angle remain.
        turns = (slots.double()[:, None] * (self.frequencies.to(ids.device).double() / self.length)).frac()
        return circular.pack(turns.float().mul_(2 * math.pi))

    def scores(self, predicted: Tensor) -> Tensor:
        self.check_prediction(predicted)
        single = predicted.float() if predicted.dtype in (torch.float16, torch.bfloat16) else predicted
        if not len(predicted):
            # The FFT does not accept an empty batch.
            return single[:, :1].expand(-1, self.n_labels)
        frequencies, of_labels, length = self.slots_on(predicted.device)
        coefficients = fourier.coefficients(single / (2 * self.dim))
        return fourier.evaluate(coefficients, frequencies, length).index_select(1, of_labels)

    def _best(
        self, predicted: Tensor, bias: Tensor | None, allowed: Tensor | None, k: int, budget: int
    ) -> decoding.Found:
        return decoding.of_series(self.series_on(predicted.device), predicted, bias, allowed, k, budget)

    def series_on(self, device: torch.device) -> fourier.Series:
        """Return the series on a device, cached until the number of labels changes."""
        known = self._series
        if known is None or known.n_labels != self.n_labels or known.device != device:
            known = self._series = fourier.make_series(
                self.frequencies, self.slots, self.length, self.n_labels, device
            )
        return known

    def concept(self) -> Tensor:
        """The angles of the concept vector **p**, `(dim,)`."""
        turns: Tensor = uniform(self.seed, torch.tensor([-1]), self.dim)[0]
        return turns * (2 * math.pi) - math.pi


def _fast_even_length(least: int) -> int:
    from scipy.fft import next_fast_len

    return 2 * int(next_fast_len((least + 1) // 2, real=True))
