"""Batches of documents and labels, and layers from documents to hidden vectors; sparse rows stay sparse."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from circlet.encoders import RowPairs, TextRows
from circlet.scoring.tensors import rectified

__all__ = [
    "ColumnEntries",
    "Dropout",
    "Encoder",
    "Hidden",
    "LabelSets",
    "RowGradient",
    "SparseLinear",
    "SparseRows",
    "as_batch",
    "label_sets",
]


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


class RowGradient(NamedTuple):
    """The gradient of those rows of a weight that a batch touched.

    `left_for` stores it with the weight. `circlet.training.optimizers.RowOptimizer` or an exchange among processes
    takes it from there. It belongs only to the last backward pass. torch's own optimizers would see no gradient
    and train nothing, so their steps are refused as long as a weight has a row gradient.

    Parameters
    ----------
    entries : ColumnEntries
        The batch by columns, each of which is a row of the weight.
    gradient : Tensor of shape (batch, units)
        The gradient with respect to the product of batch and weight.
    units : Tensor or None
        The columns of the weight that the product had; None for all.
    """

    entries: ColumnEntries
    gradient: Tensor
    units: Tensor | None = None

    def left_for(self, weight: Tensor) -> None:
        """Store it with a weight."""
        _refuse_ordinary_steps()
        weight.row_gradient = self  # type: ignore[attr-defined]

    @staticmethod
    def taken_from(weight: Tensor) -> RowGradient | None:
        """Take the row gradient from a weight, if it has one."""
        taken: RowGradient | None = weight.__dict__.pop("row_gradient", None)
        return taken

    @property
    def rows(self) -> Tensor:
        """The rows that were touched, ascending."""
        return self.entries.touched

    def values(self, part: slice = slice(None)) -> Tensor:
        """The gradient of some of the touched rows, `(rows, units)`."""
        entries, n = self.entries, len(self.rows)
        first, last, _ = part.indices(n)
        start = int(entries.starts[first]) if first < n else len(entries.rows)
        own = slice(start, int(entries.starts[last]) if last < n else len(entries.rows))
        return torch.nn.functional.embedding_bag(
            entries.rows[own],
            self.gradient,
            entries.starts[first:last] - start,
            mode="sum",
            per_sample_weights=entries.values[own].to(self.gradient.dtype),
        )

    def whole(self, shape: torch.Size) -> Tensor:
        """The gradient of all rows of a weight of this shape."""
        touched = self.values()
        if self.units is not None:
            touched = touched.new_zeros(len(touched), shape[1]).index_copy_(1, self.units, touched)
        if len(touched) == shape[0]:
            return touched
        return touched.new_zeros(shape).index_copy_(0, self.rows, touched)


@cache
def _refuse_ordinary_steps() -> None:
    """Let torch's optimizers refuse a step that would leave out a `RowGradient`; once for the process."""
    register_optimizer_step_pre_hook(_refuse_if_left)


def _refuse_if_left(optimizer: Any, *_: Any) -> None:
    for group in optimizer.param_groups:
        if any("row_gradient" in weight.__dict__ for weight in group["params"]):
            raise RuntimeError(
                f"{type(optimizer).__name__} can't use the gradient by rows that a batch has left with a weight; "
                "take an optimizer from circlet.training.optimizers.make_optimizer, or batches from "
                "SparseRows.for_training(X, by_rows=False)"
            )


class Hidden(NamedTuple):
    """Hidden units of a batch, `(batch, units)`, of which `units` were kept by dropout."""

    values: Tensor
    units: Tensor


class _SparseProduct(torch.autograd.Function):
    """Sparse rows times a dense matrix.

    Both passes are an embedding bag. Forward, a row sums the matrix rows of its columns. Backward, a column sums
    the gradient rows of the documents that have it. torch's own backward pass scatters instead, which is several
    times slower on a CPU, and on a GPU adds in an order that varies.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, batch: SparseRows, units: Tensor | None) -> Tensor:
        ctx.batch, ctx.weight, ctx.units = batch, weight, units
        columns, part = batch.columns, weight
        if units is not None:
            # Copying what is used out of the weight takes a fraction of the time that a narrow product saves.
            if batch.by_columns is not None and batch.by_columns.places is not None:
                columns, part = batch.by_columns.places, weight.index_select(0, batch.by_columns.touched)
            part = part.index_select(1, units)
        return torch.nn.functional.embedding_bag(
            columns, part, batch.starts, mode="sum", per_sample_weights=batch.values.to(weight.dtype)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        entries, (gradient,), units = ctx.batch.by_columns, gradients, ctx.units
        if entries is None:
            raise RuntimeError("these rows were made for prediction; training wants SparseRows.for_training")
        by_rows = RowGradient(entries, gradient.contiguous(), units)
        if entries.by_rows:
            # A batch has a few thousand of a million features: the rest would be zeros to write, read and add.
            by_rows.left_for(ctx.weight)
            return None, None, None
        return by_rows.whole(ctx.weight.shape), None, None


class SparseLinear(nn.Module):
    """A linear layer over `SparseRows` or dense rows; its weight has a row per feature."""

    def __init__(
        self, n_features: int, width: int, *, generator: torch.Generator | None, initial: str = "he"
    ) -> None:
        super().__init__()
        if initial == "torch":
            self.weight, self.bias = _as_in_torch((n_features, width), width, n_features, generator)
            return
        # Small, since Adam moves a weight by about the learning rate per step, and few steps touch a rare feature.
        self.weight = nn.Parameter(normal((n_features, width), 0.01, generator))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, batch: SparseRows | Tensor, units: Tensor | None = None) -> Tensor:
        """Map a batch of documents to `(batch, width)`, or only to some of the units."""
        bias = self.bias if units is None else self.bias[units]
        if isinstance(batch, Tensor):
            weight = self.weight if units is None else self.weight.index_select(1, units)
            return torch.addmm(bias, batch, weight)
        product: Tensor = _SparseProduct.apply(self.weight, batch, units)  # type: ignore[no-untyped-call]
        return product + bias


class Linear(nn.Linear):
    """A linear layer that takes `Hidden` units or a dense tensor, and can give only some of its outputs."""

    def forward(self, x: Hidden | Tensor, units: Tensor | None = None) -> Tensor:
        """Map `(batch, inputs)` to `(batch, outputs)`, or only to some of the outputs."""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if isinstance(x, Hidden):
            weight = weight.index_select(1, x.units)
            x = x.values
        if units is not None:
            weight, bias = weight.index_select(0, units), bias[units]
        return torch.nn.functional.linear(x, weight, bias)


class Dropout(nn.Module):
    """Dropout that draws from its own generator, so that a run can be resumed where it stopped.

    It drops numbers independently or, by batch, whole units for all rows, which over some hundred batches teaches
    as much. On a CPU, `draw` chooses the units that a batch keeps, and the layers before and after compute only
    with these, which takes a fraction of the time. A GPU computes all units faster than it could gather some.
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator
        #: Whether units are dropped for whole batches.
        self.by_batch = False
        #: Where the rows begin in a batch that several processes share, and how many it has; None if all are here.
        self.part: tuple[int, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        # All processes draw for the whole batch, so that it makes no difference how many there are.
        start, n = (0, 1) if self.by_batch else self.part or (0, len(x))
        return x * self._kept(x, n)[start : start + len(x)].div_(1 - self.p)

    def draw(self, width: int) -> Tensor | None:
        """The units that the next batch computes with, ascending; None for all of them."""
        if not (self.by_batch and self.training and self.p) or self.generator.device.type != "cpu":
            return None
        n = max(1, round((1 - self.p) * width))
        order = torch.rand(width, generator=self.generator, device=self.generator.device)
        return order.topk(n).indices.sort().values

    def _kept(self, x: Tensor, n: int) -> Tensor:
        """1 where a number is kept, 0 where it is dropped, for n rows like those of x."""
        shape = torch.Size((n, *x.shape[1:]))
        if x.device.type != "cpu":
            return x.new_empty(shape).bernoulli_(1 - self.p, generator=self.generator)
        # A CPU draws numbers one by one, so each 64-bit number makes four decisions, with 16 bits each.
        least = min(round(self.p * (1 << 16)), (1 << 16) - 1) - (1 << 15)
        draws = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64)
        parts = draws.random_(-(1 << 63), None, generator=self.generator).view(torch.int16)
        return (parts[: shape.numel()].view(shape) >= least).to(x.dtype)


class Encoder(nn.Module):
    """From documents to the last hidden layer: linear layers, each with (leaky) ReLU and dropout.

    Parameters
    ----------
    n_features : int
    hidden : tuple of int
        Width of each hidden layer, at least one.
    sparse : bool
        Whether batches are `SparseRows` or dense tensors.
    dropout : float
        Share of hidden units dropped in training.
    generator : torch.Generator or None
        For the initial weights; None if they will be loaded.
    noise : torch.Generator
        For dropout, on the device of training.
    leak : float
        What negative numbers are multiplied by after each layer; 0 for ReLU.
    initial : str
        See `circlet.settings.NetworkSettings`.
    reader : nn.Module, optional
        Makes vectors of what an encoder of texts gives, if that learns.
    beside : int
        Numbers of such a vector if it enters the first layer beside features; 0 if there are only features or only
        vectors.
    """

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        *,
        sparse: bool,
        dropout: float,
        generator: torch.Generator | None,
        noise: torch.Generator,
        leak: float = 0.0,
        initial: str = "he",
        reader: nn.Module | None = None,
        beside: int = 0,
    ) -> None:
        super().__init__()
        self.reader = reader
        first: nn.Module
        if sparse:
            first = SparseLinear(n_features, hidden[0], generator=generator, initial=initial)
        else:
            first = linear(n_features, hidden[0], generator=generator, initial=initial)
        others = (linear(*widths, generator=generator, initial=initial) for widths in pairwise(hidden))
        #: Weights have the names that `circlet.storage.network_spec.hidden_layers` gives.
        self.hidden = nn.ModuleList([first, *others])
        self.beside = linear(beside, hidden[0], generator=generator, initial=initial) if beside else None
        self.leak, self.dropout = leak, Dropout(dropout, noise)

    def forward(self, batch: Any) -> Tensor | Hidden:
        """Map a batch of documents to `(batch, hidden[-1])`, or to those units that dropout keeps.

        Without dropout, this is `circlet.scoring.heads.hidden_vectors`.
        """
        x: Tensor | Hidden
        x, texts = (batch.features, batch.texts) if isinstance(batch, RowPairs) else (batch, batch)
        if self.reader is not None:
            texts = self.reader(texts)
            x = x if self.beside is not None else texts
        for number, layer in enumerate(self.hidden):
            assert isinstance(layer, (SparseLinear, Linear))
            width = len(layer.bias)
            units = self.dropout.draw(width)
            sums: Tensor = layer(x, units)
            if self.beside is not None and not number:
                sums = sums + self.beside(texts, units)
            kept = rectified(sums, self.leak)
            x = self.dropout(kept) if units is None else Hidden(kept * (width / len(units)), units)
        return x


def linear(before: int, after: int, *, generator: torch.Generator | None, initial: str = "he") -> Linear:
    """A linear layer whose initial weights are drawn from `generator`, by default He's, for ReLU."""
    with torch.device("meta"):
        layer = Linear(before, after)
    if initial == "torch":
        layer.weight, layer.bias = _as_in_torch((after, before), after, before, generator)
        return layer
    layer.weight = nn.Parameter(normal((after, before), (2 / before) ** 0.5, generator))
    layer.bias = nn.Parameter(torch.zeros(after))
    return layer


def _as_in_torch(
    shape: tuple[int, int], outputs: int, inputs: int, generator: torch.Generator | None
) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight and bias as `torch.nn.Linear` draws them: uniform, up to 1 / √inputs in size."""
    drawn = (torch.empty(shape), torch.empty(outputs))
    if generator is not None:
        for tensor in drawn:
            tensor.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return nn.Parameter(drawn[0]), nn.Parameter(drawn[1])


def normal(shape: tuple[int, ...], deviation: float, generator: torch.Generator | None) -> Tensor:
    """Normal numbers; uninitialized without a generator, since drawing weights takes longer than loading them."""
    return torch.empty(shape) if generator is None else torch.randn(shape, generator=generator).mul_(deviation)
