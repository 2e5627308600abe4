"""Codebooks: the codes of all labels, defined by a seed and stored only on request.

Seed and label id determine each code, on any device and in any order, so nothing of size labels × dim has to
exist. Codes of circular vectors are packed as ``[cos θ | sin θ]``, so that similarity is an inner product.

A codebook is defined once, over the primitives of `circlet.scoring`. It takes NumPy arrays or torch tensors, and
returns the same kind. Only training and the concept vector need torch.

The paper stores p ⊗ c for each label and decodes with p†. The concept vector **p** rotates the angle of dimension
j by p_j, in stored and predicted vectors alike, so it cancels in every similarity and costs nothing here. It is
still part of the definition: `concept` returns it, and the tests show that the paper's way gives the same scores.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from circlet.checks import is_integer
from circlet.errors import DTypeError, ParameterError, ShapeError
from circlet.scoring import primitives, ranking
from circlet.scoring.ranking import PER_SCORE
from circlet.threads import steps

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["LABELS", "Codebook", "Slots"]

#: Numbers in a block of codes that are generated at a time: few enough to stay in the cache.
BLOCK = 1 << 18
#: Labels scored before the best are merged, if codes come in blocks.
LABELS = 1 << 12
#: The k best labels and this many more are scored again in double precision, since the last digits of a matrix
#: product depend on its shape, and would decide between labels that are practically equal.
MARGIN = 8


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

    A subclass defines `_generate` and its `kind`. Scores and rankings are then computed by matrix products, block
    by block. A codebook with more structure overrides `scores` and `_best` with something faster.

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

    #: "circular" if codes are packed phasors, "real" if they are vectors of `dim` numbers and norm 1.
    kind = "circular"
    #: Maximum number of labels; None if there is no limit.
    capacity: int | None = None
    #: Whether a table of codes makes scoring all labels much faster.
    needs_table = True
    _table: Any = None
    _half_table: tuple[int, Tensor] | None = None

    def __init__(self, n_labels: int, dim: int, seed: int = 0, *, cache: bool = False) -> None:
        self.n_labels = self._integer("n_labels", n_labels, least=1)
        self.dim = self._integer("dim", dim, least=1)
        self.seed = self._integer("seed", seed, least=0)
        self.cache = cache

    @property
    def width(self) -> int:
        """Numbers per code."""
        return 2 * self.dim if self.kind == "circular" else self.dim

    @property
    def scale(self) -> float:
        """The factor that turns the inner product of a prediction and a code into a similarity."""
        return 1 / self.dim if self.kind == "circular" else 1.0

    @abstractmethod
    def _generate(self, ops: Any, ids: Any) -> Any:
        """Generate the codes of labels with the primitives for their ids, `(m, width)` in float32."""

    def _scored(self, ops: Any, codes: Any) -> Any:
        """Return the codes to compare predictions with; they may differ from the codes to superpose."""
        return codes

    def codes(self, ids: Any, *, check: bool = True) -> Any:
        """Return the codes of labels, `(m, width)`; for `check`, see `superpose`."""
        ids = self._checked(ids) if check else ids
        return self._cached(ids)[ids] if self.cache else self._generated(ids)

    def scored_codes(self, ids: Any, *, check: bool = True) -> Any:
        """Return the codes of labels to compare predictions with, `(m, width)`."""
        return self._scored(primitives(ids), self.codes(ids, check=check))

    def blocks(self, beside: Any) -> Iterator[Any]:
        """Yield the codes of all labels to compare predictions with, in blocks `(m, width)`.

        They are of the kind of `beside`, an array or a tensor, and on its device.
        """
        ops = primitives(beside)
        for start, end in steps(self.n_labels, LABELS):
            if self.cache:
                codes = self._cached(beside)[start:end]
            else:
                codes = self._generated(ops.arange(start, end, beside))
            yield self._scored(ops, codes)

    def scores(self, predicted: Any) -> Any:
        """Compute the similarities of predicted codes to all labels.

        Parameters
        ----------
        predicted : array or Tensor of shape (batch, width)
            Packed phasors, or real vectors of norm 1.

        Returns
        -------
        array or Tensor of shape (batch, n_labels)
        """
        self.check_prediction(predicted)
        ops, scaled = primitives(predicted), predicted * self.scale
        if self.cache:
            return ops.products(scaled, self._scored(ops, self._cached(scaled)))
        return ops.concat([ops.products(scaled, codes) for codes in self.blocks(scaled)])

    def top_k(
        self,
        predicted: Any,
        k: int,
        *,
        bias: Any = None,
        memory: int | None = None,
        allowed: Any = None,
        threshold: float | None = None,
    ) -> Any:
        """Find the k labels with the highest scores for each predicted vector.

        Parameters
        ----------
        predicted : array or Tensor of shape (batch, width)
            The predicted vectors.
        k : int
            May exceed n_labels; the result then has n_labels columns.
        bias : array or Tensor of shape (n_labels,), optional
            Added to the similarities.
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.scoring.ranking.top_k`, also for the result.
        allowed : bool array or Tensor of shape (n_labels,), optional
            Labels where it is False are never suggested.
        threshold : float, optional
            Labels with a lower score are left out.
        """
        self.check_prediction(predicted)
        ops = primitives(predicted)
        offsets = None if bias is None else ops.beside(bias, predicted)
        return ranking.top_k(
            lambda k, mask, budget: self._best(ops.single(predicted), offsets, mask, k, budget),
            predicted,
            self.n_labels,
            k,
            memory=memory,
            allowed=allowed,
            threshold=threshold,
        )

    def _best(self, predicted: Any, bias: Any, allowed: Any, k: int, budget: int) -> Iterable[Any]:
        """Find the k best labels for a few predictions at a time, within a budget of bytes."""
        ops, offsets = primitives(predicted), bias
        if allowed is not None:
            hidden = ops.single(ops.where(allowed, 0.0, -np.inf))
            offsets = hidden if bias is None else hidden + bias
        for start, end in steps(len(predicted), max(1, budget // (PER_SCORE * LABELS))):
            rows, first, found = predicted[start:end] * self.scale, 0, None
            for codes in self.blocks(rows):
                last = first + len(codes)
                scores = ops.products(rows, codes)
                scores += 0.0 if offsets is None else offsets[first:last]  # adding 0 turns −0 into 0
                ids, best = ops.best_columns(scores, min(k + MARGIN, last - first))
                if found is not None:
                    new = ops.where(ids < 0, -1, ids + first), best
                    ids, best = ranking.merge(found, new, k + MARGIN)
                found, first = (ids, best), last
            scores = self._precise(ops, rows, ops.where(ids < 0, 0, ids), budget)
            scores += 0.0 if offsets is None else offsets[ids]
            scores = ops.where(ids < 0, -np.inf, scores)
            order = ops.by_score(ids, scores)[:, :k]
            yield ops.take(ids, order), ops.take(scores, order)

    def _precise(self, ops: Any, rows: Any, ids: Any, budget: int) -> Any:
        """Compute inner products of rows with the codes of labels, `(batch, k)`, rounded only once."""
        size = max(1, budget // (32 * self.width * ids.shape[1]))
        parts = [
            ops.precise_products(rows[start:end], self.scored_codes(ids[start:end].reshape(-1), check=False))
            for start, end in steps(len(ids), size)
        ]
        return parts[0] if len(parts) == 1 else ops.concat(parts, axis=0)

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
        import torch

        ids = self._checked(ids) if check else ids
        if not len(ids):
            return torch.zeros(len(offsets), self.width, device=ids.device)
        if self.cache:
            codes, position = self._cached(ids), ids
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

    def half_table_on(self, device: torch.device) -> Tensor:
        """Return a cached table of all codes to compare predictions with, in bfloat16.

        Rows of zeros make the number of rows a multiple of 8, since other sizes make products slower.
        """
        import torch

        known = self._half_table
        if known is None or known[0] != self.n_labels or known[1].device != device:
            rows = math.ceil(self.n_labels / 8) * 8
            table = torch.zeros(rows, self.width, dtype=torch.bfloat16, device=device)
            for start, end in steps(self.n_labels, LABELS):
                ops, ids = primitives(table), torch.arange(start, end, device=device)
                table[start:end] = self._scored(ops, self._generated(ids)).bfloat16()
            known = self._half_table = self.n_labels, table
        return known[1]

    def grow(self, n_labels: int) -> None:
        """Increase the number of labels; existing codes stay unchanged."""
        n_labels = self._integer("n_labels", n_labels, least=1)
        if n_labels < self.n_labels:
            raise ParameterError(
                f"{type(self).__name__}: found {n_labels} labels; wanted at least the present {self.n_labels}"
            )
        self.n_labels = n_labels

    def state(self) -> dict[str, Any]:
        """Return the arguments that define the codes, for JSON."""
        return {"n_labels": self.n_labels, "dim": self.dim, "seed": self.seed}

    def check_prediction(self, predicted: Any) -> None:
        """Raise `ShapeError` for predictions of the wrong width."""
        if predicted.ndim != 2 or predicted.shape[1] != self.width:
            raise ShapeError(
                f"{type(self).__name__}: found predicted codes of shape {tuple(predicted.shape)}; "
                f"wanted (batch, {self.width})"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.state().items())})"

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles have the definition only: tables are made again when they are needed.
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def _integer(self, name: str, value: int, *, least: int) -> int:
        if not is_integer(value, least):
            raise ParameterError(f"{type(self).__name__}: `{name}`: found {value!r}; wanted an integer >= {least}")
        return int(value)

    def _generated(self, ids: Any) -> Any:
        ops, codes = primitives(ids), None
        size = max(1, BLOCK // self.width)
        if 0 < len(ids) <= size:
            return self._generate(ops, ids)
        codes = ops.empty(len(ids), self.width, ids)
        for start, end in steps(len(ids), size):
            codes[start:end] = self._generate(ops, ids[start:end])
        return codes

    def _cached(self, beside: Any) -> Any:
        table = self._table
        # Arrays and tensors have different devices, even if these are the same.
        if table is None or len(table) < self.n_labels or _device(table) != _device(beside):
            table = self._table = self._generated(primitives(beside).arange(0, self.n_labels, beside))
        return table

    def _checked(self, ids: Any) -> Any:
        kind = str(getattr(ids, "dtype", type(ids).__name__))
        if re.fullmatch(r"(torch\.)?u?int\d+", kind) is None:
            raise DTypeError(
                f"{type(self).__name__}: found label ids of type {kind}; wanted an array or a tensor of integers"
            )
        if ids.ndim != 1:
            raise ShapeError(f"{type(self).__name__}: found label ids of shape {tuple(ids.shape)}; wanted (m,)")
        ids = primitives(ids).integers(ids)
        invalid = (ids < 0) | (ids >= self.n_labels)
        if invalid.any():
            raise ParameterError(
                f"{type(self).__name__}: found label id {int(ids[invalid][0])}; wanted ids from 0 to "
                f"{self.n_labels - 1}, or more labels (`grow`)"
            )
        return ids


def _device(numbers: Any) -> Any:
    return "NumPy" if isinstance(numbers, np.ndarray) else numbers.device
