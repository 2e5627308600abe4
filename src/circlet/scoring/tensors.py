"""The primitives over torch tensors.

Norms and angles are computed in single precision, since those of half-precision numbers would underflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.codebooks import decoding
from circlet.scoring.arrays import LEAST_NORM, TINY, Floats

best_columns, log_sigmoid = decoding.best_columns, torch.nn.functional.logsigmoid
sin, subtract, tanh, where = torch.sin, torch.subtract, torch.tanh, torch.where


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


def single(numbers: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.single`."""
    return numbers.float()


def double(numbers: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.double`."""
    return numbers.double()


def as_array(numbers: Tensor) -> Floats:
    """See `circlet.scoring.arrays.as_array`."""
    array: Floats = numbers.cpu().numpy()
    return array


def take(numbers: Tensor, columns: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.take`."""
    return numbers.gather(1, columns)


def by_id(ids: Tensor, scores: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.by_id`."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return order.gather(1, ids.gather(1, order).argsort(dim=1, stable=True))


def nothing(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See `circlet.scoring.arrays.nothing`."""
    ids = torch.zeros(len(rows), k, dtype=torch.int64, device=rows.device)
    return ids, torch.zeros(len(rows), k, device=rows.device)


def numbered(outputs: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.numbered`."""
    return torch.arange(len(outputs), device=outputs.device)


def pick(outputs: Tensor, rows: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.pick`."""
    return outputs[rows]


def log_sum(a: Tensor, b: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.log_sum`."""
    # On a CPU, torch.logaddexp may give equal numbers at different places different last digits, and labels with
    # equal scores would no longer be ordered by id.
    return (a - b).abs_().neg_().exp_().log1p_().add_(torch.maximum(a, b))
