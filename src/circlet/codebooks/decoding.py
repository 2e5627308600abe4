"""Find the k best labels of predicted vectors, exactly and within a memory budget.

A Fourier series is evaluated for as many rows at a time as fit into the cache. Codes without structure are scored
in blocks, and each block's best labels are merged with the best so far. The result equals a sort of all scores,
with ties in the order of ids, and does not depend on the batch or the budget. On a CPU this holds to the last bit.
On a GPU, the last digits of a transform may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain

import torch
from torch import Tensor

from circlet.checks import check_ranking
from circlet.codebooks.fourier import PairedSeries, Series
from circlet.scoring.tensors import best_columns, by_score, take

__all__ = ["of_blocks", "of_rows", "of_series", "top_k"]

#: Numbers in a block of codes: few enough to stay in the cache.
BLOCK = 1 << 18
#: Bytes for scores and temporaries at a time on a CPU; more does not fit into the cache and is slower.
MEMORY = 1 << 26
#: The same on a GPU, where fewer launches matter more; at most a quarter of the free memory is used.
DEVICE_MEMORY = 1 << 32
#: Bytes per score: coefficients, the score, and a copy, a mask and ids to break ties.
PER_SCORE = 20
#: The same for the kernels on a GPU: coefficients, the score, and the work space of a transform.
DEVICE_PER_SCORE = 12
#: The largest k for the kernels: they find labels one by one, while torch sorts many at once.
FEW = 256
#: The most predictions at a time: CUDA numbers blocks of predictions with 16 bits.
MOST = 1 << 16
#: Labels scored before the best are merged, if codes come in blocks.
LABELS = 1 << 12
#: The k best labels and this many more are scored again in double precision, since the last digits of a matrix
#: product depend on its shape, and would decide between labels that are practically equal.
MARGIN = 8

#: Ids and scores of the best labels, a few rows at a time.
Found = Iterator[tuple[Tensor, Tensor]]


@torch.no_grad()
def top_k(
    find: Callable[[int, int], Found],
    outputs: Tensor,
    n_labels: int,
    k: int,
    *,
    memory: int | None = None,
    allowed: Tensor | None = None,
    threshold: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the k labels with the highest scores for each predicted vector.

    Parameters
    ----------
    find : callable
        Called with k and a budget in bytes: `of_series`, `of_blocks` or `of_rows` with their other arguments.
    outputs : Tensor of shape (batch, width)
        The predicted vectors.
    n_labels : int
        Number of labels.
    k : int
        May exceed n_labels; the result then has n_labels columns.
    memory : int, optional
        Bytes that scores and temporaries may take at a time. Tables that do not depend on the batch are extra:
        about 12 bytes per slot of a spectral codebook, or a block of codes (about 10 MB) of another codebook. A
        row needs 20 bytes per slot or label (80 KB in all if codes come in blocks), often less on a GPU. If that
        is more than `memory`, rows are processed one by one. Default: 64 MB on a CPU; on a GPU a quarter of the
        free memory, but at most 4 GB. A CPU never uses more than the default, because that would be slower.
    allowed : bool Tensor of shape (n_labels,), optional
        Labels where it is False are never suggested.
    threshold : float, optional
        Labels with a lower score are left out.

    Returns
    -------
    ids : Tensor of shape (batch, min(k, n_labels)), int64
        Best first; for equal scores, lower ids first. −1 where `allowed` and `threshold` leave no label.
    scores : Tensor of the same shape, float32
        −∞ where the id is −1.
    """
    check_ranking(n_labels, memory, allowed, threshold)
    k = max(0, min(k, n_labels))
    if not len(outputs) or not k:
        empty = torch.zeros(len(outputs), k, dtype=torch.int64, device=outputs.device)
        return empty, torch.zeros(len(outputs), k, device=outputs.device)
    parts = list(zip(*find(k, _budget(memory, outputs.device)), strict=True))
    ids, scores = torch.cat(parts[0]), torch.cat(parts[1])
    if allowed is not None or threshold is not None:
        none = scores == -math.inf if threshold is None else (scores < threshold) | (scores == -math.inf)
        ids, scores = ids.masked_fill(none, -1), scores.masked_fill(none, -math.inf)
    return ids, scores


def _budget(memory: int | None, device: torch.device) -> int:
    if device.type != "cuda":
        return MEMORY if memory is None else min(int(memory), MEMORY)
    if memory is not None:
        return int(memory)
    free, _ = torch.cuda.mem_get_info(device)
    return min(DEVICE_MEMORY, free // 4)


def of_rows(
    logits: Callable[[Tensor], Tensor],
    outputs: Tensor,
    row_bytes: int,
    allowed: Tensor | None,
    k: int,
    budget: int,
) -> Found:
    """Rank by a function that maps outputs `(m, width)` to scores of all labels `(m, n_labels)`.

    `row_bytes` is the memory that scoring and ranking one output takes.
    """
    for part in torch.split(outputs, max(1, budget // max(row_bytes, 1))):
        scores = logits(part)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(scores.device), -math.inf)
        yield best_columns(scores, k)


def of_series(
    series: Series, outputs: Tensor, bias: Tensor | None, allowed: Tensor | None, k: int, budget: int
) -> Found:
    """Rank by the values of a Fourier series, plus a bias."""
    offsets = series.offsets(bias)
    if allowed is not None:
        offsets = torch.where(
            torch.cat([allowed.to(offsets.device), allowed.new_zeros(1, device=offsets.device)])[series.labels],
            offsets,
            -math.inf,
        )
    fused = isinstance(series, PairedSeries) and k <= FEW
    if fused:
        from circlet.kernels.triton import best
    size = max(1, min(budget // ((DEVICE_PER_SCORE if fused else PER_SCORE) * series.length), MOST))
    room = series.room(min(size, len(outputs)))
    for part in torch.split(outputs, size):
        if fused:
            yield best(series(part, room), offsets, series.labels, k)
        else:
            yield best_columns(series(part, room).add_(offsets), k, series.labels)


def of_blocks(
    blocks: Callable[[torch.device], Iterator[Tensor]],
    codes_of: Callable[[Tensor], Tensor],
    outputs: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    k: int,
    budget: int,
) -> Found:
    """Rank by the inner products of outputs with the codes of all labels, plus a bias.

    `blocks` yields all codes in order, on a device; `codes_of` returns the codes of given labels.
    """
    device, block_size = outputs.device, max(1, BLOCK // outputs.shape[1])
    offsets = None if bias is None else bias.to(device)
    if allowed is not None:
        unbiased = torch.zeros(len(allowed), device=device) if offsets is None else offsets
        offsets = unbiased.masked_fill(~allowed.to(device), -math.inf)
    for part in torch.split(outputs, max(1, budget // (PER_SCORE * LABELS))):
        ids = torch.zeros(len(part), 0, dtype=torch.int64, device=device)
        best, start = torch.zeros(len(part), 0, device=device), 0
        for gathered in _gathered(blocks(device), block_size):
            scores = torch.cat([part @ codes.mT for codes in gathered], dim=1)
            end = start + scores.shape[1]
            scores += 0.0 if offsets is None else offsets[start:end]  # adding 0 turns −0 into 0
            new_ids, new = best_columns(scores, min(k + MARGIN, end - start))
            ids, best = torch.cat([ids, (new_ids + start).clamp(min=0)], dim=1), torch.cat([best, new], dim=1)
            order = by_score(ids, best)[:, : k + MARGIN]
            ids, best, start = take(ids, order), take(best, order), end
        precise = _precise(codes_of, part, ids, budget).add_(0.0 if offsets is None else offsets[ids])
        precise.masked_fill_(best == -math.inf, -math.inf)
        order = by_score(ids, precise)[:, :k]
        yield take(ids, order), take(precise, order)


def _precise(codes_of: Callable[[Tensor], Tensor], outputs: Tensor, ids: Tensor, budget: int) -> Tensor:
    """Compute inner products of outputs with the codes of labels, `(batch, k)`, rounded only once."""
    rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids).flatten()
    size, parts = max(1, budget // (32 * outputs.shape[1])), []
    for row, label in zip(torch.split(rows, size), torch.split(ids.flatten(), size), strict=True):
        parts.append((codes_of(label).double() * outputs[row]).sum(dim=1).float())
    return torch.cat(parts).view(ids.shape)


def _gathered(blocks: Iterator[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Yield lists of blocks of at most `size` codes, with about LABELS codes in each list."""
    smaller = chain.from_iterable(torch.split(block, size) for block in blocks)
    together: list[Tensor] = []
    for block in smaller:
        together.append(block)
        if sum(map(len, together)) + size > LABELS:
            yield together
            together = []
    if together:
        yield together
