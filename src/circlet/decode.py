"""Top-k labels from predicted scores, exact, within a memory budget."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["top_k"]

#: Bytes that the scores of all labels may take at a time.
MEMORY = 1 << 26


def top_k(logits: Callable[[Tensor], Tensor], outputs: Tensor, n_labels: int, k: int) -> tuple[Tensor, Tensor]:
    """The k labels with the highest scores for each predicted vector.

    Parameters
    ----------
    logits : callable
        From outputs `(m, width)` to scores `(m, n_labels)`.
    outputs : Tensor of shape (batch, width)
    n_labels, k : int
        k may exceed n_labels; there are then n_labels columns.

    Returns
    -------
    ids : Tensor of shape (batch, min(k, n_labels))
        Best first; among equal scores the lower id first.
    scores : Tensor of the same shape
    """
    k = min(k, n_labels)
    # An FFT and its gather take about three times the scores themselves.
    rows = max(1, MEMORY // (12 * max(n_labels, 1)))
    parts = [_best(logits(part), k) for part in torch.split(outputs, rows)]
    if not parts:
        return torch.zeros(0, k, dtype=torch.int64), torch.zeros(0, k)
    return torch.cat([ids for ids, _ in parts]), torch.cat([scores for _, scores in parts])


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # Where scores are equal at the last place torch takes any of them; one place more shows which rows have that.
    values, found = scores.topk(min(k + 1, scores.shape[1]))
    ids, best = _ordered(values[:, :k], found[:, :k])
    if 0 < k < values.shape[1]:
        tied = (values[:, k - 1] == values[:, k]).nonzero()[:, 0]
        if len(tied):
            best_tied, ids_tied = scores[tied].sort(dim=1, descending=True, stable=True)
            ids[tied], best[tied] = ids_tied[:, :k], best_tied[:, :k]
    return ids, best


def _ordered(scores: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    # Two stable sorts: by id, then by score.
    by_id = ids.argsort(dim=1)
    ids, scores = ids.gather(1, by_id), scores.gather(1, by_id)
    by_score = scores.argsort(dim=1, descending=True, stable=True)
    return ids.gather(1, by_score), scores.gather(1, by_score)
