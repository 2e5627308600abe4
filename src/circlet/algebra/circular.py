"""Circular vectors (CHRR): vectors of angles, the right column of the paper's Table 1.

An angle θ stands for the phasor e^{iθ}, so every vector is unitary after any operation, and angles that differ
by full turns are equal. Binding therefore does not reduce its result to one turn, which would cost many times as
much as the addition. `wrap` does so where a canonical angle is needed.

`pack` represents the angles as `[cos θ | sin θ]`. Similarity is then an inner product, and the similarities of
many vectors to many others are one matrix product: ``pack(a) @ pack(b).mT / dim``.

>>> import torch
>>> from circlet.algebra import circular
>>> color, red, shape, square = circular.random(4, 1000, generator=0)
>>> scene = circular.superpose(torch.stack([circular.bind(color, red), circular.bind(shape, square)]))
>>> round(float(circular.similarity(circular.unbind(scene, color), red)), 1)
0.6
>>> round(float(circular.similarity(circular.unbind(scene, color), square)), 1)
0.0
"""

from __future__ import annotations

import math
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
from circlet.errors import ShapeError

__all__ = ["bind", "inverse", "pack", "random", "similarity", "superpose", "unbind", "unpack", "wrap"]


def random(
    n: int | Sequence[int],
    dim: int,
    *,
    generator: torch.Generator | int,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw angles uniformly from (−π, π].

    Parameters
    ----------
    n : int or sequence of int
        Number of vectors, or the leading shape of the result.
    dim : int
        Angles per vector.
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
    shape = random_shape("circular.random", n, dim)
    generator, draw_dtype = random_source("circular.random", generator, dtype)
    uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=draw_dtype)
    # rand is in [0, 1), so this is in (−π, π].
    return uniform.mul_(-2 * math.pi).add_(math.pi).to(device=device, dtype=dtype)


def bind(a: Tensor, b: Tensor) -> Tensor:
    """Associate `a` with `b`: the sum of their angles, not reduced to one turn.

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
    check_pair("circular.bind", a, b)
    return a + b


def inverse(a: Tensor) -> Tensor:
    """Return the vector that undoes binding with `a`: its angles negated."""
    check_vectors("circular.inverse", a=a)
    return -a


def unbind(a: Tensor, b: Tensor) -> Tensor:
    """Remove `b` from `a`: ``bind(a, inverse(b))``."""
    check_pair("circular.unbind", a, b)
    return a - b


def superpose(x: Tensor, weights: Tensor | None = None, dim: int = -2) -> Tensor:
    """Store several vectors in one that is similar to each: the angle of the sum of their phasors.

    Parameters
    ----------
    x : Tensor of shape (..., k, dim)
        Angles.
    weights : Tensor, optional
        One weight per vector, of a shape that broadcasts to that of `x` without its last dimension.
    dim : int
        The dimension of `x` to sum over, any but the last.

    Returns
    -------
    Tensor of shape (..., dim)
        Angles in (−π, π]; 0 where phasors cancel exactly and have no angle.
    """
    column = check_superposition("circular.superpose", x, weights, dim)
    if x.shape[dim] == 0:
        raise ShapeError(
            "circular.superpose: there must be at least one vector to superpose, since an empty sum has no "
            f"angle; got dim={dim} of shape {tuple(x.shape)}"
        )
    cos, sin = x.cos(), x.sin()
    if column is not None:
        cos, sin = cos * column, sin * column
    return _angle(cos.sum(dim), sin.sum(dim))


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Mean cosine of the angles between `a` and `b`: 1 if equal, about 0 if unrelated.

    Parameters
    ----------
    a : Tensor of shape (..., dim)
        What is compared.
    b : Tensor of shape (..., dim)
        With what; shapes broadcast.

    Returns
    -------
    Tensor of shape (...)
    """
    check_pair("circular.similarity", a, b)
    return (a - b).cos().mean(-1)


def pack(theta: Tensor) -> Tensor:
    """Angles of shape (..., dim) as phasors ``[cos θ | sin θ]`` of shape (..., 2 * dim)."""
    check_vectors("circular.pack", theta=theta)
    return torch.cat([theta.cos(), theta.sin()], dim=-1)


def unpack(phasor: Tensor) -> Tensor:
    """Angles in (−π, π] of packed phasors, whatever their magnitudes.

    Parameters
    ----------
    phasor : Tensor of shape (..., 2 * dim)

    Returns
    -------
    Tensor of shape (..., dim)
    """
    check_vectors("circular.unpack", phasor=phasor)
    if phasor.shape[-1] % 2:
        raise ShapeError(
            f"circular.unpack: `phasor`: found last dimension {phasor.shape[-1]}; wanted an even one, [cos | sin]"
        )
    return _angle(*phasor.chunk(2, dim=-1))


def wrap(theta: Tensor) -> Tensor:
    """Reduce angles by full turns to (−π, π]."""
    check_vectors("circular.wrap", theta=theta)
    return theta - 2 * math.pi * torch.ceil((theta - math.pi) / (2 * math.pi))


def _angle(cos: Tensor, sin: Tensor) -> Tensor:
    # Adding 0.0 turns a sine of −0.0 into +0.0, for which atan2 gives π, not −π.
    return torch.atan2(sin + 0.0, cos)
