"""The k best of many scores: exact, best first, and among equal scores the lower id first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["MEMORY", "PER_SCORE", "Found", "best_columns", "budget_of", "merged", "together", "without"]

#: Bytes for scores and temporaries at a time: more does not fit into the cache and is slower.
MEMORY = 1 << 26
#: Bytes per score: coefficients and the score, a mask, and ids.
PER_SCORE = 20
_LOWEST = np.finfo(np.float32).min

Scores: TypeAlias = "npt.NDArray[np.floating[Any]]"
#: Ids and scores, `(n, k)` each; −1 and −∞ where there is no label.
Found: TypeAlias = "tuple[npt.NDArray[np.int64], npt.NDArray[Any]]"


def budget_of(memory: int | None) -> int:
    """Bytes that scores may take at a time, if the caller allows `memory`."""
    return MEMORY if memory is None else min(int(memory), MEMORY)


def together(parts: Iterable[Found]) -> Found:
    """What was found for rows, from what was found for some of them after the other."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    ids, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    return ids, scores


def without(found: Found, threshold: float | None) -> Found:
    """The same with no label where the score is below the threshold."""
    ids, scores = found
    if threshold is None or scores.min(initial=np.inf) >= threshold:
        return found
    low = scores < threshold
    return np.where(low, -1, ids), np.where(low, -np.inf, scores).astype(scores.dtype)


def best_columns(scores: Scores, k: int, labels: npt.NDArray[Any] | None = None) -> Found:
    """The k best columns of each row and their scores; columns of −∞ are left out.

    `labels` has each column's label, which is returned instead; they are distinct where scores are above −∞.
    """
    n, m = scores.shape
    # All scores that are at least as high as a k-th best one, or a little lower, are candidates: so are all ties.
    least = np.maximum(_below_k_best(scores, k), _LOWEST)
    places = np.flatnonzero(scores >= least[:, None])
    values = scores.reshape(-1)[places]
    if n == 1:
        ids = places if labels is None else labels[places].astype(np.int64)
        order = np.lexsort((ids, -values))[:k]
        if len(order) == k:
            return ids[order][None, :], values[order][None, :]
    rows, columns = np.divmod(places, m)
    ids = columns if labels is None else labels[columns]
    order = np.lexsort((ids, -values, rows))
    # The rows keep their order, so that a place in it minus the row's first place is a rank.
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
    order, rows, ranks = order[ranks < k], rows[ranks < k], ranks[ranks < k]
    best_ids, best = np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf, dtype=scores.dtype)
    best_ids[rows, ranks], best[rows, ranks] = ids[order], values[order]
    return best_ids, best


def merged(one: Found, other: Found, k: int) -> Found:
    """The k best of both, row by row; no id is in both."""
    ids = np.concatenate([one[0], other[0]], axis=1)
    scores = np.concatenate([one[1], other[1]], axis=1)
    order = np.lexsort((ids, -scores))[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _below_k_best(scores: Scores, k: int) -> Scores:
    """For each row, a number that at least k of its scores reach, and not many more."""
    n, m = scores.shape
    # Of all scores that are `groups` apart, only the largest is looked at: k of those are reached by k scores. The
    # maxima are those of whole rows of numbers, which is fast.
    size = 8 << max(0, m.bit_length() // 2 - 6)
    groups = m // size
    if groups >= 8 * k:
        scores = scores[:, : groups * size].reshape(n, size, groups).max(axis=1)
        m = groups
    return np.partition(scores, m - k, axis=1)[:, m - k]
