"""A batch of documents and of their labels, in the form that the network takes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet.encoders import RowPairs, TextRows

__all__ = ["ColumnEntries", "LabelSets", "SparseRows", "as_batch", "label_sets"]


@dataclass(frozen=True)
class ColumnEntries:
    """The entries of sparse rows, column by column; only the backward pass needs them.

    Parameters
    ----------
    touched : Tensor
        The columns that have an entry, ascending; all columns if that is cheaper, unless `exact`.
    rows, starts, values : Tensor
        The entries of column ``touched[j]`` begin at ``starts[j]``.
    by_rows : bool
        Whether the weight that multiplies these rows gets a `circlet.network.encoders.RowGradient` instead of a
        full gradient. Only optimizers made by `circlet.training.optimizers.make_optimizer` use it.
    places : Tensor or None
        The place in `touched` of the column of each entry, in the order of the rows; None if all columns are
        touched, and a column is its own place.
    """

    touched: Tensor
    rows: Tensor
    starts: Tensor
    values: Tensor
    by_rows: bool
    places: Tensor | None = None

    @classmethod
    def of(cls, X: sp.csr_matrix, *, by_rows: bool, exact: bool) -> ColumnEntries:
        """Transpose a matrix; it takes a fraction of a millisecond for a training batch.

        `exact` leaves out all columns without an entry, as an optimizer needs that moves weights whose gradient
        is zero.
        """
        by_columns = X.tocsc()
        touched, places = np.flatnonzero(np.diff(by_columns.indptr)), None
        if not exact and 2 * len(touched) > X.shape[1]:
            touched = np.arange(X.shape[1])
        elif by_rows:
            place_of = np.zeros(X.shape[1], dtype=np.int64)
            place_of[touched] = np.arange(len(touched))
            places = _tensor(place_of[X.indices])
        return cls(
            _tensor(touched),
            _tensor(by_columns.indices),
            _tensor(by_columns.indptr[touched]),
            _tensor(by_columns.data),
            by_rows,
            places,
        )


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse rows.

    Parameters
    ----------
    columns, starts, values : Tensor
        Compressed rows: row i has the entries from ``starts[i]`` to ``starts[i + 1]``.
    by_columns : ColumnEntries or None
        The same entries by columns, for the backward pass; None in prediction.
    """

    columns: Tensor
    starts: Tensor
    values: Tensor
    by_columns: ColumnEntries | None = None

    @classmethod
    def of(cls, X: sp.csr_matrix) -> SparseRows:
        """Convert a matrix, for prediction."""
        return cls(_tensor(X.indices), _tensor(X.indptr[:-1]), _tensor(X.data))

    @classmethod
    def for_training(cls, X: sp.csr_matrix, *, by_rows: bool = False, exact: bool | None = None) -> SparseRows:
        """Convert a matrix and its transpose; see `ColumnEntries`. By default, gradients by rows are exact."""
        exact = by_rows if exact is None else exact
        return replace(cls.of(X), by_columns=ColumnEntries.of(X, by_rows=by_rows, exact=exact))

    def __len__(self) -> int:
        return len(self.starts)

    def for_row_gradients(self) -> SparseRows:
        """The same batch, for which the weight gets a `RowGradient` on any device."""
        return replace(self, by_columns=self.by_columns and replace(self.by_columns, by_rows=True))

    def to(self, device: torch.device) -> SparseRows:
        """The same batch on a device; on a device other than the CPU, the weight gets a full gradient."""
        if self.values.device == device:
            return self
        by_columns = self.by_columns
        if by_columns is not None:
            by_columns = replace(_moved(by_columns, device), by_rows=False)
        return replace(_moved(self, device), by_columns=by_columns)


@dataclass(frozen=True)
class LabelSets:
    """The labels of a batch of documents, ragged: those of document i start at ``starts[i]``.

    `documents` has the document that each label belongs to. `weights` is 0 for labels that only pad a set to the
    size of the others, and 1 for the rest; None if there is no padding.
    """

    ids: Tensor
    starts: Tensor
    documents: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of one value per label, without the padding."""
        return values.sum() if self.weights is None else values @ self.weights

    def counts(self) -> Tensor:
        """Number of labels of each document, `(n,)`."""
        ones = torch.ones_like(self.ids, dtype=torch.float32) if self.weights is None else self.weights
        return ones.new_zeros(len(self)).index_add_(0, self.documents, ones)

    def to(self, device: torch.device) -> LabelSets:
        """The same labels on a device."""
        return _moved(self, device)


_Batch = TypeVar("_Batch", ColumnEntries, SparseRows, LabelSets)


def as_batch(X: Any) -> SparseRows | RowPairs | Tensor:
    """Scaled rows, or the rows of an encoder of texts, in the form that the network takes in prediction."""
    if isinstance(X, RowPairs):
        return RowPairs(as_batch(X.features), as_batch(X.texts))
    if sp.issparse(X):
        return SparseRows.of(X)
    if isinstance(X, TextRows):
        return torch.from_numpy(X.batch())
    return torch.from_numpy(np.require(X, requirements=["C", "W"]))  # torch warns if the array is read-only


def label_sets(Y: sp.csr_matrix) -> LabelSets:
    """The label sets of the rows of an indicator."""
    documents = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return LabelSets(_tensor(Y.indices), _tensor(Y.indptr[:-1]), _tensor(documents))


def _tensor(array: Any) -> Tensor:
    """Floats become float32, everything else int64."""
    kind = np.float32 if array.dtype.kind == "f" else np.int64
    return torch.from_numpy(np.ascontiguousarray(array, dtype=kind))


def _moved(batch: _Batch, device: torch.device) -> _Batch:
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}
    moved: Any = {n: p.to(device, non_blocking=True) for n, p in parts.items() if isinstance(p, Tensor)}
    return replace(batch, **moved)
