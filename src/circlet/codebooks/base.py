"""Label ids to codes, and predicted codes to the scores of all labels.

A codebook is a definition, not a table: every code follows from a seed and the label's id, on any device and in
any order, so nothing of size labels × dim is kept unless asked for. Codes of circular vectors are packed,
``[cos θ | sin θ]``, which makes similarity an inner product.

The paper stores p ⊗ c for each label and decodes with p†. The concept vector **p** turns every angle of a code by
the same amount, stored and predicted alike, so it cancels in every similarity and no one pays for it here. It
still belongs to the definition: `concept` gives it, and the tests show that the long way gives the same scores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circlet.algebra import circular, holographic
from circlet.codebooks.hashing import permuted, uniform
from circlet.errors import DTypeError, ParameterError, ShapeError

__all__ = ["Codebook", "HolographicCodebook", "IndependentCodebook", "SpectralCodebook"]

#: Numbers generated at once: a block of codes stays in the cache.
BLOCK = 1 << 18
#: Most labels whose slots are kept for looking up codes: 64 MB.
SLOT_TABLE = 1 << 24
#: Labels whose slots are found at a time: so few that torch's threads do not wait for each other at every step.
SLOT_BLOCK = 1 << 15


class Codebook(ABC):
    """Codes of `n_labels` labels, each of `width` numbers.

    Parameters
    ----------
    n_labels : int
    dim : int
        Dimension of the vector symbols: angles, or components of real vectors.
    seed : int
        The codes follow from it.
    cache : bool
        Keep the table of all codes, n_labels × width numbers, once codes are needed.
    """

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, cache: bool = False) -> None:
        self.n_labels = self._whole("n_labels", n_labels, least=1)
        self.dim = self._whole("dim", dim, least=1)
        self.seed = self._whole("seed", seed, least=0)
        self.cache = cache
        self._table: Tensor | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers per code."""

    @abstractmethod
    def _generate(self, ids: Tensor) -> Tensor:
        """Codes of labels, `(m, width)`, from the seed alone."""

    def codes(self, ids: Tensor) -> Tensor:
        """Codes of these labels, `(m, width)`."""
        ids = self._checked(ids)
        return self._cached(ids.device)[ids] if self.cache else self._generated(ids)

    @abstractmethod
    def scores(self, predicted: Tensor) -> Tensor:
        """Similarities of predicted codes to every label.

        Parameters
        ----------
        predicted : Tensor of shape (batch, width)
            Packed phasors, or real vectors of norm 1.

        Returns
        -------
        Tensor of shape (batch, n_labels)
        """

    def superpose(
        self, ids: Tensor, offsets: Tensor, weights: Tensor | None = None, *, check: bool = True
    ) -> Tensor:
        """Unnormalised sums of the codes of ragged label sets.

        Parameters
        ----------
        ids : Tensor of shape (total,)
            The labels of all sets, one set after the other.
        offsets : Tensor of shape (n,)
            Where each set starts in `ids`. An empty set has the sum 0.
        weights : Tensor of shape (total,), optional
        check : bool
            False for ids that are known to be labels: on a GPU, looking at them makes the host wait.

        Returns
        -------
        Tensor of shape (n, width)
        """
        ids = self._checked(ids) if check else ids
        if not len(ids):
            return torch.zeros(len(offsets), self.width, device=ids.device)
        if self.cache:
            codes, position = self._cached(ids.device), ids
        else:  # each label's code is generated once, however many sets have it
            labels, position = torch.unique(ids, return_inverse=True)
            codes = self._generated(labels)
        return torch.nn.functional.embedding_bag(
            position,
            codes,
            offsets,
            mode="sum",
            per_sample_weights=None if weights is None else weights.to(codes),
        )

    def grow(self, n_labels: int) -> None:
        """Make room for more labels; the codes of the old ones stay as they are."""
        n_labels = self._whole("n_labels", n_labels, least=1)
        if n_labels < self.n_labels:
            raise ParameterError(
                f"{type(self).__name__}: a codebook of {self.n_labels} labels can't shrink to {n_labels}"
            )
        self.n_labels = n_labels

    def state(self) -> dict[str, Any]:
        """What defines the codes, ready for JSON."""
        return {"n_labels": self.n_labels, "dim": self.dim, "seed": self.seed}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.state().items())})"

    def _whole(self, name: str, value: int, *, least: int) -> int:
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ParameterError(
                f"{type(self).__name__}: `{name}` must be a whole number >= {least}, got {value!r}"
            )
        return int(value)

    def _generated(self, ids: Tensor) -> Tensor:
        if not len(ids):
            return torch.zeros(0, self.width, device=ids.device)
        return torch.cat([self._generate(block) for block in torch.split(ids, self._labels_per_block)])

    def _cached(self, device: torch.device) -> Tensor:
        if self._table is None or len(self._table) < self.n_labels or self._table.device != device:
            self._table = self._generated(torch.arange(self.n_labels, device=device))
        return self._table

    @property
    def _labels_per_block(self) -> int:
        return max(1, BLOCK // self.width)

    def _checked(self, ids: Tensor) -> Tensor:
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            found = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise DTypeError(f"{type(self).__name__}: label ids must be a tensor of whole numbers, got {found}")
        if ids.dim() != 1:
            raise ShapeError(f"{type(self).__name__}: label ids must have shape (m,), got {tuple(ids.shape)}")
        ids = ids.long()
        foreign = (ids < 0) | (ids >= self.n_labels)
        if foreign.any():
            raise ParameterError(
                f"{type(self).__name__}: label ids must be between 0 and {self.n_labels - 1}, "
                f"got {ids[foreign][0].item()}; `grow` makes room for more labels"
            )
        return ids

    def _checked_prediction(self, predicted: Tensor) -> None:
        if predicted.dim() != 2 or predicted.shape[1] != self.width:
            raise ShapeError(
                f"{type(self).__name__}.scores: predicted codes must have shape (batch, {self.width}), "
                f"got {tuple(predicted.shape)}"
            )


class _BlockCodebook(Codebook):
    """Codes without structure: scored by matrix products, block by block."""

    #: Turns an inner product of codes into a similarity.
    scale = 1.0

    def scores(self, predicted: Tensor) -> Tensor:
        self._checked_prediction(predicted)
        scaled = predicted * self.scale
        return torch.cat([scaled @ codes.to(scaled.dtype).mT for codes in self._blocks(predicted.device)], dim=1)

    def _blocks(self, device: torch.device) -> Iterator[Tensor]:
        """The codes of all labels, block by block."""
        if self.cache:
            yield self._cached(device)
            return
        for start in range(0, self.n_labels, self._labels_per_block):
            end = min(start + self._labels_per_block, self.n_labels)
            yield self._generate(torch.arange(start, end, device=device))


class IndependentCodebook(_BlockCodebook):
    """The paper's codes: angles drawn independently and uniformly.

    Angle j of label y is a hash of (seed, y, j), so any block of codes is generated on the spot, the same on
    CPU and GPU and whatever the block.

    Parameters
    ----------
    n_labels, dim, seed, cache
        See `Codebook`.
    phases : int, optional
        Draw from so many equidistant angles only, instead of the whole circle: an angle is then a few bits.
    """

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, phases: int | None = None, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        self.phases = None if phases is None else self._whole("phases", phases, least=2)
        self.scale = 1 / self.dim

    @property
    def width(self) -> int:
        return 2 * self.dim

    def state(self) -> dict[str, Any]:
        return super().state() | ({} if self.phases is None else {"phases": self.phases})

    def _generate(self, ids: Tensor) -> Tensor:
        turns = uniform(self.seed, ids, self.dim)
        if self.phases is not None:
            turns = turns.mul_(self.phases).floor_().div_(self.phases)
        return circular.pack(turns.mul_(2 * math.pi).sub_(math.pi))

    def concept(self) -> Tensor:
        """The angles of the concept vector **p**, `(dim,)`."""
        return circular.unpack(self._generate(torch.tensor([-1])))[0]


class HolographicCodebook(_BlockCodebook):
    """Real codes for HRR: Gaussian vectors, projected (Ganesan et al. 2021) or plain (Plate 1995).

    Parameters
    ----------
    n_labels, dim, seed, cache
        See `Codebook`.
    projected : bool
        Put every Fourier coefficient on the unit circle. Without it codes are scaled to norm 1 when scored, so
        that a score is a cosine.
    """

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, projected: bool = True, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        self.projected = projected

    @property
    def width(self) -> int:
        return self.dim

    def state(self) -> dict[str, Any]:
        return {**super().state(), "projected": self.projected}

    def _generate(self, ids: Tensor) -> Tensor:
        # Box and Muller: two uniform numbers make two normal ones.
        half = (self.dim + 1) // 2
        numbers = uniform(self.seed, ids, 2 * half)
        radius = (-2 * torch.log1p(-numbers[:, :half])).sqrt()
        normal = (radius.repeat(1, 2) * circular.pack(2 * math.pi * numbers[:, half:]))[:, : self.dim]
        vectors = normal / math.sqrt(self.dim)
        return holographic.project(vectors) if self.projected else vectors

    def _blocks(self, device: torch.device) -> Iterator[Tensor]:
        for codes in super()._blocks(device):
            yield codes if self.projected else torch.nn.functional.normalize(codes, dim=-1)

    def concept(self) -> Tensor:
        """The concept vector **p**, `(dim,)`."""
        return self._generate(torch.tensor([-1]))[0]


class SpectralCodebook(Codebook):
    """Circular codes whose scores are one inverse real FFT: angle j of label y is 2π · slot(y) · f_j / M.

    One integer frequency f_j per dimension, all different, and a slot per label. Codes are powers of one base
    vector under binding. All scores of a predicted vector are a Fourier series with d non-zero coefficients,
    evaluated at the slots: M log M steps instead of labels × dim, from d integers and a seed instead of a table.

    Slots are a seeded pseudo-random permutation of 0…M−1. Without it, labels with neighbouring ids, which occur
    together, would have codes in arithmetic progression, and superpositions of such collapse.

    Parameters
    ----------
    n_labels, dim, seed, cache
        See `Codebook`.
    length : int, optional
        M, an even number of at least `n_labels` and 2 (dim + 1). Default: the next fast FFT length that leaves
        a twentieth of room for labels to come. The closer M is to 2 dim, the nearer codes are to orthogonal.
    """

    def __init__(
        self, n_labels: int, dim: int, seed: int = 0, *, length: int | None = None, cache: bool = False
    ) -> None:
        super().__init__(n_labels, dim, seed, cache=cache)
        # With fewer slots there would not be enough frequencies strictly between 0 and M/2.
        least = max(self.n_labels, 2 * (self.dim + 1))
        if length is None:
            length = _fast_even_length(max(self.n_labels + self.n_labels // 20, least))
        if not isinstance(length, (int, np.integer)) or length < least or length % 2:
            raise ParameterError(
                f"SpectralCodebook: `length` must be an even number >= {least}, the larger of n_labels and "
                f"2 (dim + 1), got {length!r}"
            )
        self.length = int(length)
        frequencies = permuted(torch.arange(self.dim), self.length // 2 - 1, self.seed, stream=1) + 1
        self._constants = {"frequencies": frequencies.sort().values}

    @property
    def width(self) -> int:
        return 2 * self.dim

    @property
    def frequencies(self) -> Tensor:
        """The frequency of each dimension, `(dim,)`: distinct, between 1 and M/2 − 1, ascending."""
        return self._constants["frequencies"]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "length": self.length}

    def grow(self, n_labels: int) -> None:
        if self._whole("n_labels", n_labels, least=1) > self.length:
            raise ParameterError(
                f"SpectralCodebook: {n_labels} labels do not fit into its {self.length} slots; "
                "train anew, with more `slots` from the start"
            )
        super().grow(n_labels)

    def slots(self, ids: Tensor) -> Tensor:
        """The slots of labels, `(m,)`."""
        return permuted(self._checked(ids), self.length, self.seed, stream=2)

    def _generate(self, ids: Tensor) -> Tensor:
        # Slots are looked up where a table of them is small, in the middle of training, say.
        slots = self._on(ids.device)[1][ids] if self.n_labels <= SLOT_TABLE else self.slots(ids)
        # Whole turns are taken off in float64, where even 10⁷ slots leave nine digits of the angle.
        turns = (slots.double()[:, None] * (self.frequencies.to(ids.device).double() / self.length)).frac()
        return circular.pack(turns.float().mul_(2 * math.pi))

    def scores(self, predicted: Tensor) -> Tensor:
        self._checked_prediction(predicted)
        # cos(θ − φ) = Re(e^{−iθ} e^{iφ}), and irfft adds each coefficient's conjugate: hence the half.
        single = predicted.float() if predicted.dtype in (torch.float16, torch.bfloat16) else predicted
        if not len(predicted):
            # The FFT refuses an empty batch.
            return single[:, :1].expand(-1, self.n_labels)
        cos, sin = (single / (2 * self.dim)).chunk(2, dim=1)
        frequencies, slots = self._on(predicted.device)
        spectrum = torch.zeros(
            len(predicted),
            self.length // 2 + 1,
            dtype=torch.complex(cos[:0], sin[:0]).dtype,
            device=single.device,
        ).index_copy(1, frequencies, torch.complex(cos, -sin))
        series: Tensor = torch.fft.irfft(spectrum, n=self.length, norm="forward")
        return series.index_select(1, slots)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frequencies and the slots of all labels on a device; made once, not stored with a model."""
        key = f"slots on {device}"
        if key not in self._constants or len(self._constants[key]) != self.n_labels:
            ids = torch.split(torch.arange(self.n_labels, device=device), SLOT_BLOCK)
            self._constants[key] = torch.cat([self.slots(block).int() for block in ids])
            self._constants[f"frequencies on {device}"] = self.frequencies.to(device)
        return self._constants[f"frequencies on {device}"], self._constants[key]

    def concept(self) -> Tensor:
        """The angles of the concept vector **p**, `(dim,)`."""
        return uniform(self.seed, torch.tensor([-1]), self.dim)[0] * (2 * math.pi) - math.pi


def _fast_even_length(least: int) -> int:
    from scipy.fft import next_fast_len

    return 2 * int(next_fast_len((least + 1) // 2, real=True))
