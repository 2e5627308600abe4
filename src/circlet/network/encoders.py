"""From documents to hidden vectors: dense features, or sparse bags of words, which never become dense."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from circlet.network.batch import SparseRows

__all__ = ["Dropout", "Encoder", "RowGradient", "SparseLinear"]


class RowGradient(NamedTuple):
    """The gradient of those rows of a weight that a batch touched: the weight's attribute `row_gradient`.

    It belongs only to the last backward pass. The optimizer step that uses it removes it.
    """

    rows: Tensor
    values: Tensor


class _SparseProduct(torch.autograd.Function):
    """Sparse rows times a dense matrix.

    Both passes are an embedding bag. Forward, a row sums the matrix rows of its columns. Backward, a column sums
    the gradient rows of the documents that have it. torch's own backward pass scatters instead, which is several
    times slower on a CPU, and on a GPU adds in an order that varies.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, batch: SparseRows) -> Tensor:
        ctx.batch, ctx.weight = batch, weight
        return torch.nn.functional.embedding_bag(
            batch.columns, weight, batch.starts, mode="sum", per_sample_weights=batch.values.to(weight.dtype)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        entries, (gradient,) = ctx.batch.by_columns, gradients
        if entries is None:
            raise RuntimeError("these rows were made for prediction; training wants SparseRows.for_training")
        touched = torch.nn.functional.embedding_bag(
            entries.rows,
            gradient.contiguous(),
            entries.starts,
            mode="sum",
            per_sample_weights=entries.values.to(gradient.dtype),
        )
        if entries.by_rows:
            # A batch has a few thousand of a million features: the rest would be zeros to write, read and add.
            ctx.weight.row_gradient = RowGradient(entries.touched, touched)
            return None, None
        if len(touched) == len(ctx.weight):
            return touched, None
        return gradient.new_zeros(ctx.weight.shape).index_copy_(0, entries.touched, touched), None


class SparseLinear(nn.Module):
    """A linear layer over `SparseRows` or dense rows; its weight has a row per feature."""

    def __init__(self, n_features: int, width: int, *, generator: torch.Generator | None) -> None:
        super().__init__()
        # Small, since Adam moves a weight by about the learning rate per step, and few steps touch a rare feature.
        self.weight = nn.Parameter(normal((n_features, width), 0.01, generator))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, batch: SparseRows | Tensor) -> Tensor:
        """Map a batch of documents to `(batch, width)`."""
        if isinstance(batch, Tensor):
            return torch.addmm(self.bias, batch, self.weight)
        product: Tensor = _SparseProduct.apply(self.weight, batch)  # type: ignore[no-untyped-call]
        return product + self.bias


class Dropout(nn.Module):
    """Dropout that draws from its own generator, so that a run can be resumed where it stopped."""

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
        # A CPU draws numbers one by one, so each 64-bit number makes four decisions, with 16 bits each.
        least = min(round(self.p * (1 << 16)), (1 << 16) - 1) - (1 << 15)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        parts = draws.random_(-(1 << 63), None, generator=self.generator).view(torch.int16)
        return (parts[: x.numel()].view(x.shape) >= least).to(x.dtype)


class Encoder(nn.Module):
    """From documents to the last hidden layer: linear layers, each with ReLU and dropout.

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
    """A linear layer with He's initial weights, for ReLU, drawn from `generator`."""
    with torch.device("meta"):
        layer = nn.Linear(before, after, bias=bias)
    layer.weight = nn.Parameter(normal((after, before), (2 / before) ** 0.5, generator))
    if bias:
        layer.bias = nn.Parameter(torch.zeros(after))
    return layer


def normal(shape: tuple[int, ...], deviation: float, generator: torch.Generator | None) -> Tensor:
    """Normal numbers; uninitialized without a generator, since drawing weights takes longer than loading them."""
    return torch.empty(shape) if generator is None else torch.randn(shape, generator=generator).mul_(deviation)
