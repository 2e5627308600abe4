"""Holographic reduced representations (HRR): real vectors, the left column of the paper's Table 1.

Binding is circular convolution, computed by the FFT. There are three systems:

- plain HRR (Plate 1995): vectors as `random` draws them;
- HRR with projection (Ganesan et al. 2021): ``project(random(...))``, every Fourier coefficient on the unit
  circle, so that binding keeps norms and `inverse` is exact and stable;
- CHRR is the sibling module `circular`, with the same names.

torch has no FFT for fewer than 32 bits: such input is transformed in float32, and the result has its dtype.

>>> import torch
>>> from circlet.algebra import holographic
>>> color, red, shape, square = holographic.project(holographic.random(4, 10_000, generator=0))
>>> scene = holographic.superpose(
...     torch.stack([holographic.bind(color, red), holographic.bind(shape, square)])
... )
>>> round(float(holographic.similarity(holographic.unbind(scene, color), red)), 1)
1.0
>>> round(abs(float(holographic.similarity(holographic.unbind(scene, color), square))), 1)
0.0
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circlet.algebra._check import (
    check_pair,
    check_superposition,
    check_vectors,
    random_shape,
    random_source,
)

__all__ = ["bind", "inverse", "project", "random", "similarity", "superpose", "unbind"]


def random(
    n: int | Sequence[int],
    dim: int,
    *,
    generator: torch.Generator | int,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw vectors from N(0, I / dim), so that their expected squared norm is 1.

    Parameters
    ----------
    n : int or sequence of int
        Number of vectors, or the leading shape of the result.
    dim : int
        Components per vector.
    generator : torch.Generator or int
        Source of randomness; an integer seeds a new CPU generator.
    device : torch.device or str, optional
        Device of the result. Numbers are drawn on the generator's device, so that a CPU generator gives the
        same vectors on every device. Default: the generator's device.
    dtype : torch.dtype
        A floating-point dtype.

    Returns
    -------
    Tensor of shape (n, dim)
    """
    shape = random_shape("holographic.random", n, dim)
    generator, draw_dtype = random_source("holographic.random", generator, dtype)
    normal = torch.randn(shape, generator=generator, device=generator.device, dtype=draw_dtype)
    return normal.mul_(dim**-0.5).to(device=device, dtype=dtype)


def project(a: Tensor) -> Tensor:
    """Put every Fourier coefficient of `a` on the unit circle (the paper's π, eq. 5).

    A coefficient that is exactly zero has no direction; it becomes 1.

    Parameters
    ----------
    a : Tensor of shape (..., dim)

    Returns
    -------
    Tensor of shape (..., dim)
        Vectors of norm 1.
    """
    check_vectors("holographic.project", a=a)
    spectrum = _spectrum(a)
    magnitude = spectrum.abs()
    # Dividing by a number that is never zero keeps the gradient finite, even in the branch that is not taken.
    unit = spectrum / magnitude.clamp(min=torch.finfo(magnitude.dtype).tiny)
    return _vector(torch.where(magnitude > 0, unit, torch.ones_like(unit)), a)


def bind(a: Tensor, b: Tensor) -> Tensor:
    """Associate `a` with `b`: their circular convolution (the paper's eq. 1).

    Parameters
    ----------
    a : Tensor of shape (..., dim)
        What is associated.
    b : Tensor of shape (..., dim)
        With what; shapes broadcast.

    Returns
    -------
    Tensor of shape (..., dim)
    """
    check_pair("holographic.bind", a, b)
    return _vector(_spectrum(a) * _spectrum(b), a, b)


def inverse(a: Tensor) -> Tensor:
    """Return the vector that undoes binding with `a`: 1 / F(a) (the paper's eq. 2).

    The result is non-finite if a Fourier coefficient of `a` is zero, and large if one is small. `project` first to
    avoid both.
    """
    check_vectors("holographic.inverse", a=a)
    return _vector(_spectrum(a).reciprocal(), a)


def unbind(a: Tensor, b: Tensor) -> Tensor:
    """Remove `b` from `a`: ``bind(a, inverse(b))``, as one division of spectra."""
    check_pair("holographic.unbind", a, b)
    return _vector(_spectrum(a) / _spectrum(b), a, b)


def superpose(x: Tensor, weights: Tensor | None = None, dim: int = -2) -> Tensor:
    """Store several vectors in one that is similar to each: their sum.

    Parameters
    ----------
    x : Tensor of shape (..., k, dim)
    weights : Tensor, optional
        One weight per vector, of a shape that broadcasts to that of `x` without its last dimension.
    dim : int
        The dimension of `x` to sum over, any but the last.

    Returns
    -------
    Tensor of shape (..., dim)
    """
    column = check_superposition("holographic.superpose", x, weights, dim)
    return (x if column is None else x * column).sum(dim)


def similarity(a: Tensor, b: Tensor, *, cosine: bool = False) -> Tensor:
    """Inner product of `a` and `b`: about 1 if related, about 0 if not.

    Parameters
    ----------
    a : Tensor of shape (..., dim)
        What is compared.
    b : Tensor of shape (..., dim)
        With what; shapes broadcast.
    cosine : bool
        Divide by both norms (0 where a vector is zero), as the paper does in its loss, so that a network cannot
        gain by making its output larger.

    Returns
    -------
    Tensor of shape (...)
    """
    check_pair("holographic.similarity", a, b)
    if cosine:
        return torch.nn.functional.cosine_similarity(a, b, dim=-1)
    return (a * b).sum(-1)


def _spectrum(a: Tensor) -> Tensor:
    spectrum: Tensor = torch.fft.rfft(a if a.dtype in (torch.float32, torch.float64) else a.float())
    return spectrum


def _vector(spectrum: Tensor, *operands: Tensor) -> Tensor:
    """Transform back, to the dimension of the operands and the dtype that torch would give their sum."""
    dtype = operands[0].dtype
    for operand in operands[1:]:
        dtype = torch.promote_types(dtype, operand.dtype)
    vector: Tensor = torch.fft.irfft(spectrum, n=operands[0].shape[-1])
    return vector.to(dtype)
