"""Circular codes whose scores are one Fourier transform: circlet's default."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer
from circlet.codebooks.base import Codebook, Slots
from circlet.codebooks.series import SLOT_BLOCK, Series
from circlet.errors import ParameterError
from circlet.hashing import permuted, uniform
from circlet.scoring.ranking import PER_SCORE, of_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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

    needs_table = False
    _series: Any = None
    _slots: tuple[torch.device, Slots] | None = None

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
                f"SpectralCodebook: `length`: found {length!r}; wanted an even number >= {least}, "
                "the larger of n_labels and 2 (dim + 1)"
            )
        self.length = self.capacity = int(length)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "length": self.length}

    def grow(self, n_labels: int) -> None:
        if self._integer("n_labels", n_labels, least=1) > self.length:
            raise ParameterError(
                f"SpectralCodebook: found {n_labels} labels; wanted at most its {self.length} slots: "
                "train a new model with more `slots`"
            )
        super().grow(n_labels)

    @cached_property
    def frequencies(self) -> npt.NDArray[np.int64]:
        """The frequency of each dimension, `(dim,)`: distinct, between 1 and M/2 − 1, ascending."""
        return np.sort(permuted(np.arange(self.dim), self.length // 2 - 1, self.seed, stream=1) + 1)

    def slots(self, ids: Any) -> Any:
        """Return the slots of labels, `(m,)`."""
        return permuted(self._checked(ids), self.length, self.seed, stream=2)

    def slots_on(self, device: torch.device) -> Slots:
        """Return frequencies and slots of all labels on a device; cached, and never saved with a model."""
        import torch

        known = self._slots
        if known is None or known[0] != device or len(known[1].of_labels) != self.n_labels:
            ids = torch.split(torch.arange(self.n_labels, device=device), SLOT_BLOCK)
            of_labels = torch.cat([self.slots(block).int() for block in ids])
            frequencies = torch.from_numpy(self.frequencies).to(device)
            known = self._slots = device, Slots(frequencies, of_labels, self.length)
        return known[1]

    def _generate(self, ops: Any, ids: Any) -> Any:
        if isinstance(ids, np.ndarray) or self.n_labels > SLOT_TABLE:
            frequencies, slots = ops.beside(self.frequencies, ids), self.slots(ids)
        else:  # training needs slots at every step
            frequencies, of_labels, _ = self.slots_on(ids.device)
            slots = of_labels[ids]
        # Full turns are removed in double precision; even with 10⁷ slots, nine digits of the angle remain.
        turns = ops.double(slots)[:, None] * (ops.double(frequencies) / self.length)
        turns -= ops.floor(turns)
        return ops.pack(ops.single(turns) * (2 * math.pi))

    def scores(self, predicted: Any) -> Any:
        self.check_prediction(predicted)
        if isinstance(predicted, np.ndarray):
            return self.series_on(None).scores(predicted)
        import torch

        from circlet.codebooks import fourier

        single = predicted.float() if predicted.dtype in (torch.float16, torch.bfloat16) else predicted
        if not len(predicted):
            # The FFT does not accept an empty batch.
            return single[:, :1].expand(-1, self.n_labels)
        frequencies, of_labels, length = self.slots_on(predicted.device)
        coefficients = fourier.coefficients(single / (2 * self.dim))
        return fourier.evaluate(coefficients, frequencies, length).index_select(1, of_labels)

    def _best(self, predicted: Any, bias: Any, allowed: Any, k: int, budget: int) -> Iterable[Any]:
        best: Iterable[Any]
        if isinstance(predicted, np.ndarray):
            best = self.series_on(None).best(predicted, bias, allowed, k, budget)
            return best
        import torch

        from circlet.kernels import run_on

        device = predicted.device
        if run_on(device):
            best = self.series_on(device).best(predicted, bias, allowed, k, budget)
        elif device.type == "cpu":
            given = (None if each is None else each.detach().numpy() for each in (predicted, bias, allowed))
            found = self.series_on(device).best(*given, k, budget, torch.get_num_threads())
            best = [(torch.from_numpy(ids), torch.from_numpy(scores)) for ids, scores in found]
        else:
            best = of_rows(self.scores, predicted, PER_SCORE * self.length, bias, allowed, k, budget)
        return best

    def series_on(self, device: torch.device | None) -> Any:
        """Return the series for tensors on a device, or for arrays; cached until the number of labels changes."""
        known = self._series
        if known is None or known[0] != device or known[1].n_labels != self.n_labels:
            known = self._series = device, self._make_series(device)
        return known[1]

    def _make_series(self, device: torch.device | None) -> Any:
        if device is None:
            return Series(self.frequencies, self.slots, self.length, self.n_labels)
        from circlet.kernels import run_on

        if not run_on(device):  # on a CPU: a tensor's result does not depend on the batch, to the last digit
            return Series(self.frequencies, self.slots, self.length, self.n_labels, short=0)
        from circlet.codebooks.fourier import PairedSeries

        return PairedSeries(self.slots_on(device).frequencies, self.slots, self.length, self.n_labels)

    def concept(self) -> Tensor:
        """The angles of the concept vector **p**, `(dim,)`."""
        import torch

        turns: Tensor = uniform(self.seed, torch.tensor([-1]), self.dim)[0]
        return turns * (2 * math.pi) - math.pi


def _fast_even_length(least: int) -> int:
    from scipy.fft import next_fast_len

    return 2 * int(next_fast_len((least + 1) // 2, real=True))
