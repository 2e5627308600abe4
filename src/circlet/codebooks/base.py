"""Codebooks: the codes of all labels, defined by a seed and stored only on request.

Seed and label id determine each code, on any device and in any order, so nothing of size labels × dim has to
exist. Codes of circular vectors are packed as ``[cos θ | sin θ]``, so that similarity is an inner product.

The paper stores p ⊗ c for each label and decodes with p†. The concept vector **p** rotates the angle of dimension
j by p_j, in stored and predicted vectors alike, so it cancels in every similarity and costs nothing here. It is
still part of the definition: `concept` returns it, and the tests show that the paper's way gives the same scores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from circlet.checks import is_integer
from circlet.codebooks import decoding
from circlet.errors import DTypeError, ParameterError, ShapeError

__all__ = ["Codebook", "Slots"]


class Slots(NamedTuple):
    """The positions (slots) of labels on the Fourier series whose values are their scores."""

    #: The frequency of each dimension, `(dim,)`.
    frequencies: Tensor
    #: The slot of each label, `(n_labels,)`.
    of_labels: Tensor
    #: The number of slots.
    length: int


class Codebook(ABC):
    """Codes of `n_labels` labels, each of `width` numbers.

    A subclass defines `width` and `_generate`, and `scale` if the inner product of two codes is not already their
    similarity. Scores and rankings are then computed by matrix products, block by block. A codebook with more
    structure overrides `scores` and `_best` with something faster.

    Parameters
    ----------
    n_labels : int
        Number of labels; `grow` adds more.
    dim : int
        Dimension of the vector symbols: angles, or components of real vectors.
    seed : int
        Determines the codes.
    cache : bool
        Keep a table of all codes, n_labels × width numbers, computed when codes are first needed.
    """

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, cache: bool = False) -> None:
        self.n_labels = self._integer("n_labels", n_labels, least=1)
        self.dim = self._integer("dim", dim, least=1)
        self.seed = self._integer("seed", seed, least=0)
        self.cache = cache
        self._table: Tensor | None = None
        self._half_table: Tensor | None = None
        self._in_half_table = 0

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers per code."""

    @property
    def scale(self) -> float:
        """The factor that turns the inner product of a prediction and a code into a similarity."""
        return 1.0

    @property
    def capacity(self) -> int | None:
        """Maximum number of labels; None if there is no limit."""
        return None

    @property
    def needs_table(self) -> bool:
        """Whether a table of codes makes scoring all labels at every step much faster."""
        return True

    @abstractmethod
    def _generate(self, ids: Tensor) -> Tensor:
        """Generate the codes of labels, `(m, width)`."""

    def _scored(self, codes: Tensor) -> Tensor:
        """Return the codes to compare predictions with; they may differ from the codes to superpose."""
        return codes

    def codes(self, ids: Tensor, *, check: bool = True) -> Tensor:
        """Return the codes of labels, `(m, width)`; for `check`, see `superpose`."""
        ids = self._checked(ids) if check else ids
        return self._cached(ids.device)[ids] if self.cache else self._generated(ids)

    def scored_codes(self, ids: Tensor) -> Tensor:
        """Return the codes of labels to compare predictions with, `(m, width)`."""
        return self._scored(self.codes(ids))

    def blocks(self, device: torch.device | None = None) -> Iterator[Tensor]:
        """Yield the codes of all labels to compare predictions with, in blocks `(m, width)`."""
        device = device or torch.device("cpu")
        if self.cache:
            yield self._scored(self._cached(device))
            return
        for start in range(0, self.n_labels, self._labels_per_block):
            end = min(start + self._labels_per_block, self.n_labels)
            yield self._scored(self._generate(torch.arange(start, end, device=device)))

    def scores(self, predicted: Tensor) -> Tensor:
        """Compute the similarities of predicted codes to all labels.

        Parameters
        ----------
        predicted : Tensor of shape (batch, width)
            Packed phasors, or real vectors of norm 1.

        Returns
        -------
        Tensor of shape (batch, n_labels)
        """
        self.check_prediction(predicted)
        scaled = predicted * self.scale
        return torch.cat([scaled @ codes.to(scaled.dtype).mT for codes in self.blocks(predicted.device)], dim=1)

    @torch.no_grad()
    def top_k(
        self,
        predicted: Tensor,
        k: int,
        *,
        bias: Tensor | None = None,
        memory: int | None = None,
        allowed: Tensor | None = None,
        threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find the k labels with the highest scores for each predicted vector.

        Parameters
        ----------
        predicted : Tensor of shape (batch, width)
            The predicted vectors.
        k : int
            May exceed n_labels; the result then has n_labels columns.
        bias : Tensor of shape (n_labels,), optional
            Added to the similarities.
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.codebooks.decoding.top_k`, also for the result.
        allowed : bool Tensor of shape (n_labels,), optional
            Labels where it is False are never suggested.
        threshold : float, optional
            Labels with a lower score are left out.
        """
        self.check_prediction(predicted)
        return decoding.top_k(
            lambda k, budget: self._best(predicted.float(), bias, allowed, k, budget),
            predicted,
            self.n_labels,
            k,
            memory=memory,
            allowed=allowed,
            threshold=threshold,
        )

    def _best(
        self, predicted: Tensor, bias: Tensor | None, allowed: Tensor | None, k: int, budget: int
    ) -> decoding.Found:
        """Yield the k best labels for a few predictions at a time, within a budget of bytes."""
        return decoding.of_blocks(self.blocks, self.scored_codes, predicted * self.scale, bias, allowed, k, budget)

    def slots_on(self, device: torch.device) -> Slots | None:
        """Return the slots of all labels, on this device; None if scores are not a Fourier series."""
        return None

    def superpose(
        self, ids: Tensor, offsets: Tensor, weights: Tensor | None = None, *, check: bool = True
    ) -> Tensor:
        """Sum the codes of ragged label sets, without normalization.

        Parameters
        ----------
        ids : Tensor of shape (total,)
            The labels of all sets, one set after the other.
        offsets : Tensor of shape (n,)
            Start of each set in `ids`. An empty set has the sum 0.
        weights : Tensor of shape (total,), optional
        check : bool
            False for ids that are known to be valid; on a GPU, the check makes the host wait.

        Returns
        -------
        Tensor of shape (n, width)
        """
        ids = self._checked(ids) if check else ids
        if not len(ids):
            return torch.zeros(len(offsets), self.width, device=ids.device)
        if self.cache:
            codes, position = self._cached(ids.device), ids
        else:  # each label's code is generated only once
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
        """Increase the number of labels; existing codes stay unchanged."""
        n_labels = self._integer("n_labels", n_labels, least=1)
        if n_labels < self.n_labels:
            raise ParameterError(
                f"{type(self).__name__}: a codebook of {self.n_labels} labels can't shrink to {n_labels}"
            )
        self.n_labels = n_labels

    def state(self) -> dict[str, Any]:
        """Return the arguments that define the codes, for JSON."""
        return {"n_labels": self.n_labels, "dim": self.dim, "seed": self.seed}

    def check_prediction(self, predicted: Tensor) -> None:
        """Raise `ShapeError` for predictions of the wrong width."""
        if predicted.dim() != 2 or predicted.shape[1] != self.width:
            raise ShapeError(
                f"{type(self).__name__}.scores: predicted codes must have shape (batch, {self.width}), "
                f"got {tuple(predicted.shape)}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.state().items())})"

    def _integer(self, name: str, value: int, *, least: int) -> int:
        if not is_integer(value, least):
            raise ParameterError(f"{type(self).__name__}: `{name}` must be an integer >= {least}, got {value!r}")
        return int(value)

    def _generated(self, ids: Tensor) -> Tensor:
        if not len(ids):
            return torch.zeros(0, self.width, device=ids.device)
        return torch.cat([self._generate(block) for block in torch.split(ids, self._labels_per_block)])

    def _cached(self, device: torch.device) -> Tensor:
        if self._table is None or len(self._table) < self.n_labels or self._table.device != device:
            self._table = self._generated(torch.arange(self.n_labels, device=device))
        return self._table

    def half_table_on(self, device: torch.device) -> Tensor:
        """Return a cached table of all codes to compare predictions with, in bfloat16.

        Rows of zeros make the number of rows a multiple of 8, since other sizes make products slower.
        """
        table = self._half_table
        if table is None or self._in_half_table != self.n_labels or table.device != device:
            rows = math.ceil(self.n_labels / 8) * 8
            table = torch.zeros(rows, self.width, dtype=torch.bfloat16, device=device)
            for ids in torch.split(torch.arange(self.n_labels, device=device), self._labels_per_block):
                table[ids] = self._scored(self._generate(ids)).bfloat16()
            self._half_table, self._in_half_table = table, self.n_labels
        return table

    @property
    def _labels_per_block(self) -> int:
        return max(1, decoding.BLOCK // self.width)

    def _checked(self, ids: Tensor) -> Tensor:
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            found = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise DTypeError(f"{type(self).__name__}: label ids must be a tensor of integers, got {found}")
        if ids.dim() != 1:
            raise ShapeError(f"{type(self).__name__}: label ids must have shape (m,), got {tuple(ids.shape)}")
        ids = ids.long()
        invalid = (ids < 0) | (ids >= self.n_labels)
        if invalid.any():
            raise ParameterError(
                f"{type(self).__name__}: label ids must be between 0 and {self.n_labels - 1}, "
                f"got {ids[invalid][0].item()}; `grow` makes room for more labels"
            )
        return ids
