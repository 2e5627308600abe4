"""The primitives over torch tensors.

Norms and angles are computed in single precision, since those of half-precision numbers would underflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, sin, tanh

from circlet.algebra import circular
from circlet.scoring.arrays import LEAST_NORM, TINY

__all__ = ["concat", "packed", "sin", "split", "tanh", "unit", "unit_pairs"]


def split(rows: Tensor, parts: int) -> list[Tensor]:
    """See `circlet.scoring.arrays.split`."""
    return list(rows.chunk(parts, dim=-1))


def concat(parts: list[Tensor]) -> Tensor:
    """See `circlet.scoring.arrays.concat`."""
    return torch.cat(parts, dim=-1)


def unit(rows: Tensor, norm: float = 1.0) -> Tensor:
    """See `circlet.scoring.arrays.unit`."""
    normalized = torch.nn.functional.normalize(rows.float(), dim=-1, eps=LEAST_NORM)
    return normalized if norm == 1 else normalized * norm


def unit_pairs(rows: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.unit_pairs`."""
    x, y = (part.float() for part in rows.chunk(2, dim=-1))
    scale = torch.rsqrt(x * x + y * y + TINY)
    return torch.cat([x * scale, y * scale], dim=-1)


def packed(half_turns: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.packed`."""
    return circular.pack(math.pi * half_turns.float())
