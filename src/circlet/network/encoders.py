"""Documents to a hidden vector: sparse bags of words that never become dense, or dense features."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

__all__ = ["Dropout", "Encoder", "RowGradient", "SparseLinear", "SparseRows"]


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse rows, by rows for the forward pass and by columns for the backward one.

    Parameters
    ----------
    columns, starts, values : Tensor
        Compressed rows: row i has the entries from ``starts[i]`` to ``starts[i + 1]``.
    touched : Tensor
        The columns that have an entry, ascending; without `by_rows` all columns, where more than half have one.
    rows, column_starts, column_values : Tensor
        The same entries column by column: those of ``touched[j]`` begin at ``column_starts[j]``.
    by_rows : bool
        Whether the weight that these rows meet gets a `RowGradient`, which only optimisers made by
        `circlet.training.optimizers.make_optimizer` heed, instead of a gradient of its own size.
    """

    columns: Tensor
    starts: Tensor
    values: Tensor
    touched: Tensor
    rows: Tensor
    column_starts: Tensor
    column_values: Tensor
    by_rows: bool = False

    @classmethod
    def of(cls, X: sp.csr_matrix, *, by_rows: bool = False) -> SparseRows:
        """Take over a matrix; its transposition is scipy's, a fraction of a millisecond for a batch."""
        by_columns = X.tocsc()
        touched = np.flatnonzero(np.diff(by_columns.indptr))
        if not by_rows and 2 * len(touched) > X.shape[1]:
            touched = np.arange(X.shape[1])
        arrays = (
            *(X.indices, X.indptr[:-1], X.data.astype(np.float32, copy=False), touched),
            *(by_columns.indices, by_columns.indptr[touched], by_columns.data.astype(np.float32, copy=False)),
        )
        tensors = (torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
        parts: list[Any] = [tensor if tensor.is_floating_point() else tensor.long() for tensor in tensors]
        return replace(cls(*parts), by_rows=by_rows)

    def __len__(self) -> int:
        return len(self.starts)

    def to(self, device: torch.device) -> SparseRows:
        """The same batch on a device; there, gradients are of the weight's size."""
        if self.values.device == device:
            return self
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "by_rows"}
        moved = {name: part.to(device, non_blocking=True) for name, part in parts.items()}
        return replace(self, **moved, by_rows=False)


class RowGradient(NamedTuple):
    """The gradient of a weight in the rows that a batch touched: the weight's attribute `row_gradient`.

    It is that of the last backward pass alone, and goes with the step that takes it.
    """

    rows: Tensor
    values: Tensor


class _SparseProduct(torch.autograd.Function):
    """Sparse rows times a dense matrix.

    Both passes are an embedding bag: forward, a row sums the matrix rows of its columns; backward, a column
    sums the gradient rows of the documents that have it. torch's own backward scatters instead, which is several
    times slower on a CPU and adds in an order that is not fixed on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, batch: SparseRows) -> Tensor:
        ctx.batch, ctx.weight = batch, weight
        return torch.nn.functional.embedding_bag(
            batch.columns, weight, batch.starts, mode="sum", per_sample_weights=batch.values.to(weight.dtype)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        batch, (gradient,) = ctx.batch, gradients
        touched = torch.nn.functional.embedding_bag(
            batch.rows,
            gradient.contiguous(),
            batch.column_starts,
            mode="sum",
            per_sample_weights=batch.column_values.to(gradient.dtype),
        )
        if batch.by_rows:
            # Of a million features a batch has some thousands: the rest would be zeros to write, read and add.
            ctx.weight.row_gradient = RowGradient(batch.touched, touched)
            return None, None
        if len(touched) == len(ctx.weight):
            return touched, None
        return gradient.new_zeros(ctx.weight.shape).index_copy_(0, batch.touched, touched), None


class SparseLinear(nn.Module):
    """A linear layer over `SparseRows`, or over rows written out; its weight has a row per feature."""

    def __init__(self, n_features: int, width: int, *, generator: torch.Generator | None) -> None:
        super().__init__()
        # Small: Adam moves every weight by about the learning rate a step, and few steps touch a rare feature.
        self.weight = nn.Parameter(normal((n_features, width), 0.01, generator))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, batch: SparseRows | Tensor) -> Tensor:
        """Map a batch of documents to `(batch, width)`."""
        if isinstance(batch, Tensor):
            return torch.addmm(self.bias, batch, self.weight)
        product: Tensor = _SparseProduct.apply(self.weight, batch)  # type: ignore[no-untyped-call]
        return product + self.bias


class Dropout(nn.Module):
    """Dropout that draws from its own generator, so that a run can be taken up where it stopped."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * self._kept(x).div_(1 - self.p)

    def _kept(self, x: Tensor) -> Tensor:
        """1 where a number is kept, 0 where it is dropped."""
        if x.device.type != "cpu":
            return torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        # A CPU draws numbers one by one: each decides four times, by 16 of its bits.
        least = min(round(self.p * (1 << 16)), (1 << 16) - 1) - (1 << 15)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        parts = draws.random_(-(1 << 63), None, generator=self.generator).view(torch.int16)
        return (parts[: x.numel()].view(x.shape) >= least).to(x.dtype)


class Encoder(nn.Module):
    """Documents to the last hidden layer: linear layers, each with ReLU and dropout.

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
        For the initial weights; None leaves them to be loaded.
    noise : torch.Generator
        For dropout, on the device of training.
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
    ) -> None:
        super().__init__()
        first: nn.Module
        if sparse:
            first = SparseLinear(n_features, hidden[0], generator=generator)
        else:
            first = linear(n_features, hidden[0], generator=generator)
        layers: list[nn.Module] = [first, nn.ReLU(), Dropout(dropout, noise)]
        for before, after in pairwise(hidden):
            layers += [linear(before, after, generator=generator), nn.ReLU(), Dropout(dropout, noise)]
        self.layers = nn.Sequential(*layers)

    def forward(self, batch: Any) -> Tensor:
        """Map a batch of documents to `(batch, hidden[-1])`."""
        hidden: Tensor = self.layers(batch)
        return hidden


def linear(before: int, after: int, *, generator: torch.Generator | None, bias: bool = True) -> nn.Linear:
    """A linear layer whose initial weights come from `generator`: He's, for ReLU."""
    with torch.device("meta"):
        layer = nn.Linear(before, after, bias=bias)
    layer.weight = nn.Parameter(normal((after, before), (2 / before) ** 0.5, generator))
    if bias:
        layer.bias = nn.Parameter(torch.zeros(after))
    return layer


def normal(shape: tuple[int, ...], deviation: float, generator: torch.Generator | None) -> Tensor:
    """Normal numbers; without a generator only room for them: to draw them takes longer than to load them."""
    return torch.empty(shape) if generator is None else torch.randn(shape, generator=generator).mul_(deviation)
