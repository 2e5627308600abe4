"""The primitives over torch tensors.

Norms and angles are computed in single precision, since those of half-precision numbers would underflow.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from circlet.algebra import circular, holographic
from circlet.scoring.arrays import LEAST_NORM, MEMORY, TINY, Floats

log_sigmoid = torch.nn.functional.logsigmoid
floor, log1p, sin, sqrt, subtract = torch.floor, torch.log1p, torch.sin, torch.sqrt, torch.subtract
absolute, no_grad, tanh, where = torch.abs, torch.no_grad, torch.tanh, torch.where
pack, unit_spectrum = circular.pack, holographic.project

#: Scores per group; a first pass compares only the maxima of the groups.
GROUP = 1 << 8
#: Bytes for scores on a GPU, where fewer launches matter more; at most a quarter of the free memory is used.
DEVICE_MEMORY = 1 << 32


def budget(memory: int | None, rows: Tensor) -> int:
    """See `circlet.scoring.arrays.budget`."""
    if rows.device.type != "cuda":
        return MEMORY if memory is None else min(int(memory), MEMORY)
    if memory is not None:
        return int(memory)
    free, _ = torch.cuda.mem_get_info(rows.device)
    return min(DEVICE_MEMORY, free // 4)


def beside(numbers: Tensor | Floats, rows: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.beside`."""
    return torch.as_tensor(numbers, device=rows.device)


def arange(start: int, end: int, beside: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.arange`."""
    return torch.arange(start, end, device=beside.device)


def empty(n: int, width: int, beside: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.empty`."""
    return torch.empty(n, width, device=beside.device)


def split(rows: Tensor, parts: int) -> list[Tensor]:
    """See `circlet.scoring.arrays.split`."""
    return list(rows.chunk(parts, dim=-1))


def concat(parts: list[Tensor], axis: int = -1) -> Tensor:
    """See `circlet.scoring.arrays.concat`."""
    return torch.cat(parts, dim=axis)


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


def products(rows: Tensor, codes: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.products`."""
    return rows @ codes.to(rows.dtype).mT


def precise_products(rows: Tensor, codes: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.precise_products`."""
    own = codes.view(len(rows), -1, rows.shape[1]).double()
    return own.mul_(rows[:, None]).sum(dim=2).float()


def single(numbers: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.single`."""
    return numbers.float()


def integers(numbers: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.integers`."""
    return numbers.long()


def double(numbers: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.double`."""
    return numbers.double()


def as_array(numbers: Tensor) -> Floats:
    """See `circlet.scoring.arrays.as_array`."""
    array: Floats = numbers.cpu().numpy()
    return array


def take(numbers: Tensor, columns: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.take`."""
    return numbers.gather(1, columns.clamp(min=0))


def by_id(ids: Tensor, scores: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.by_id`."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return order.gather(1, ids.gather(1, order).argsort(dim=1, stable=True))


def by_score(ids: Tensor, scores: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.by_score`."""
    order = ids.argsort(dim=1)
    return order.gather(1, scores.gather(1, order).argsort(dim=1, descending=True, stable=True))


def nothing(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See `circlet.scoring.arrays.nothing`."""
    ids = torch.zeros(len(rows), k, dtype=torch.int64, device=rows.device)
    return ids, torch.zeros(len(rows), k, device=rows.device)


def numbered(outputs: list[Tensor]) -> Tensor:
    """See `circlet.scoring.arrays.numbered`."""
    return torch.arange(len(outputs[0]), device=outputs[0].device)


def scores(book: Any, outputs: Tensor, scale: Any, bias: Tensor | None) -> Tensor:
    """See `circlet.scoring.arrays.scores`."""
    found: Tensor = book.scores(outputs)
    if bias is None:
        return found if isinstance(scale, float) and scale == 1 else found * scale
    return torch.addcmul(bias, found, torch.as_tensor(scale, device=found.device))


def affine(x: Tensor, slope: float, intercept: float) -> Tensor:
    """See `circlet.scoring.arrays.affine`."""
    return (x * slope).add_(intercept)


def rectified(x: Tensor, leak: float) -> Tensor:
    """See `circlet.scoring.arrays.rectified`."""
    return torch.nn.functional.leaky_relu(x, leak) if leak else torch.relu(x)


def log_sum(a: Tensor, b: Tensor) -> Tensor:
    """See `circlet.scoring.arrays.log_sum`."""
    # On a CPU, torch.logaddexp may give equal numbers at different places different last digits, and labels with
    # equal scores would no longer be ordered by id.
    return (a - b).abs_().neg_().exp_().log1p_().add_(torch.maximum(a, b))


def best_columns(scores: Tensor, k: int, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """See `circlet.scoring.arrays.best_columns`."""
    # `_largest` breaks ties for the last place arbitrarily. One more place shows which rows have such ties.
    values, found = _largest(scores, min(k + 1, scores.shape[1]))
    ids = found if labels is None else labels[found].long()
    order = by_score(ids, values)
    ids, best = ids.gather(1, order), values.gather(1, order)
    ids, best, rest = ids[:, :k], best[:, :k], best[:, k:]
    if k and rest.shape[1]:
        tied = (best[:, -1:] == rest).nonzero()[:, 0]
        if len(tied):
            ids[tied] = _first_of_equals(scores[tied], ids[tied], best[tied], labels)
    return ids.masked_fill(best == -math.inf, -1), best


def _first_of_equals(scores: Tensor, ids: Tensor, best: Tensor, labels: Tensor | None) -> Tensor:
    """Return the ids, with those that tie for the last place replaced by the lowest tied ids."""
    k, last = ids.shape[1], best[:, -1:]
    if labels is None:
        labels = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
    lowest = torch.iinfo(torch.int32).min
    equal, _ = _largest(torch.where(scores == last, -labels, lowest), k)
    equal = -equal.long().sort(dim=1, descending=True).values
    above = (best > last).sum(dim=1, keepdim=True)
    column = torch.arange(k, device=ids.device)
    return torch.where(column < above, ids, equal.gather(1, (column - above).clamp(min=0)))


def _largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row, descending, and their positions; ties are broken arbitrarily."""
    groups = values.shape[1] // GROUP
    if groups < 4 * k:
        return values.topk(k)
    # The k groups with the highest maxima contain k values that no value of another group exceeds.
    full = values[:, : groups * GROUP].view(-1, groups, GROUP)
    chosen = full.amax(dim=2).topk(k).indices
    inside = full.gather(1, chosen[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    # The last group may be incomplete.
    largest, found = torch.cat([inside, values[:, groups * GROUP :]], dim=1).topk(k)
    group = chosen.gather(1, (found // GROUP).clamp(max=k - 1))
    rest = found - k * GROUP
    return largest, torch.where(rest < 0, group * GROUP + found % GROUP, groups * GROUP + rest)
