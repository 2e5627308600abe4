"""Checks of arguments that both algebras share; errors name the operation and the argument.

Everything is plain Python on shapes and dtypes, so that `torch.compile` can trace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from circlet.checks import is_integer
from circlet.errors import DTypeError, ParameterError, ShapeError


def check_vectors(operation: str, **tensors: Tensor) -> None:
    """Each argument is a floating-point tensor whose last dimension holds a vector."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"{operation}: `{name}`: found {type(tensor).__name__}; wanted a torch.Tensor")
        if not tensor.is_floating_point():
            raise DTypeError(f"{operation}: `{name}`: found dtype {tensor.dtype}; wanted a floating-point one")
        if tensor.dim() == 0 or tensor.shape[-1] == 0:
            raise ShapeError(
                f"{operation}: `{name}`: found shape {tuple(tensor.shape)}; wanted (..., dim) with dim >= 1"
            )


def check_pair(operation: str, a: Tensor, b: Tensor) -> None:
    """Two arguments whose vectors have the same dimension and whose leading shapes broadcast."""
    check_vectors(operation, a=a, b=b)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"{operation}: `a` and `b`: found last dimensions {a.shape[-1]} and {b.shape[-1]}; wanted equal ones"
        )
    if not _broadcast(a.shape, b.shape):
        raise ShapeError(
            f"{operation}: the leading shapes of `a` and `b` must broadcast, "
            f"got {tuple(a.shape[:-1])} and {tuple(b.shape[:-1])}"
        )


def check_superposition(operation: str, x: Tensor, weights: Tensor | None, dim: int) -> Tensor | None:
    """Vectors to sum over `dim`; returns the weights, one per vector, in a shape that multiplies `x`."""
    check_vectors(operation, x=x)
    if x.dim() < 2 or not -x.dim() <= dim < x.dim() or dim % x.dim() == x.dim() - 1:
        raise ShapeError(
            f"{operation}: `dim` must name a dimension of `x` other than its last, which holds the vectors; "
            f"got dim={dim} for shape {tuple(x.shape)}"
        )
    if weights is None:
        return None
    check_vectors(operation, weights=weights)
    if weights.dim() >= x.dim() or not _broadcast(weights.shape, x.shape[:-1]):
        raise ShapeError(
            f"{operation}: `weights` must hold one number per vector, a shape that broadcasts to "
            f"{tuple(x.shape[:-1])}, got {tuple(weights.shape)}"
        )
    return weights.unsqueeze(-1)


def random_shape(operation: str, n: int | Sequence[int], dim: int) -> tuple[int, ...]:
    """Return the shape of `n` random vectors; `n` may itself be a shape."""
    leading = tuple(n) if isinstance(n, Sequence) else (n,)
    if any(not is_integer(size, 0) for size in leading):
        raise ParameterError(f"{operation}: `n`: found {n!r}; wanted an integer >= 0, or a shape of such integers")
    if not is_integer(dim, 1):
        raise ParameterError(f"{operation}: `dim`: found {dim!r}; wanted an integer >= 1")
    return (*map(int, leading), int(dim))


def random_source(
    operation: str, generator: torch.Generator | int, dtype: torch.dtype
) -> tuple[torch.Generator, torch.dtype]:
    """Turn a seed into a generator, and return the dtype to draw in: fewer than 32 bits would be too coarse."""
    if is_integer(generator):
        generator = torch.Generator().manual_seed(int(generator))  # type: ignore[arg-type]
    if not isinstance(generator, torch.Generator):
        raise ParameterError(
            f"{operation}: `generator`: found {generator!r}; wanted a torch.Generator or an integer seed"
        )
    if not dtype.is_floating_point:
        raise DTypeError(f"{operation}: `dtype`: found {dtype}; wanted a floating-point dtype")
    return generator, torch.float64 if dtype == torch.float64 else torch.float32


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip_longest(reversed(a), reversed(b), fillvalue=1))
