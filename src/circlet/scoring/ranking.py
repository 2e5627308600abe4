"""The best labels by score, by |similarity| or by expected gain, and the scores of several networks as one.

**Ranking by expected gain** favors rare labels. A suggestion that is right with probability p and then worth w has
the expected gain p · w. In logarithms, with p = σ(x) and x = slope · score + intercept,

    log p + log w  ≤  x + log w  =  slope · (score + log w / slope) + intercept,

because σ(x) < eˣ. The right-hand side is a bound that the scorer's fast `top_k` can rank by, with log w / slope as
an offset of each label. It finds some candidates, those with the highest bounds, and their gains are computed. All
other labels have bounds, and so gains, of at most the last candidate's bound. If the k best candidates by gain are
above it, they are the k best of all labels; if not, more candidates are found. So the ranking is exact, and only
few of the labels' scores are ever kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from circlet.checks import check_ranking
from circlet.scoring import arrays, primitives

__all__ = [
    "PER_SCORE",
    "Gain",
    "join",
    "larger",
    "mean_log_odds",
    "merge",
    "of_rows",
    "top_k",
    "top_k_by_gain",
    "without",
]

#: Bytes per score: coefficients and the score, a mask, and ids.
PER_SCORE = 20
#: Candidates for k places at first: some for each place, and some more.
PER_PLACE, MORE = 2, 16
#: How many times as many candidates there are in each further round.
GROWTH = 4
#: Bytes per candidate: ids, scores and gains, and copies for sorting.
PER_CANDIDATE = 100
#: By how much a gain may exceed its bound, which is rounded to single precision.
SLACK = 1e-6


def top_k(
    find: Callable[[int, Any, int], Iterable[Any]],
    rows: Any,
    n_labels: int,
    k: int,
    *,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
) -> Any:
    """Find the k labels with the highest scores for each row, exactly and within a budget of memory.

    The result equals a sort of all scores, with ties in the order of ids, and does not depend on the batch or the
    budget. For tensors on a CPU this holds to the last bit; otherwise, the last digits of a score may depend on
    the batch.

    Parameters
    ----------
    find : callable
        Called with k, the mask of allowed labels or None, and a budget in bytes, it yields ids and scores of the k
        best labels, `(m, k)` each, for some rows after the other; `of_rows` is such a function.
    rows : array or Tensor of shape (batch, width)
        What `find` ranks labels for.
    n_labels : int
        Number of labels.
    k : int
        May exceed n_labels; the result then has n_labels columns.
    memory : int, optional
        Bytes that scores and temporaries may take at a time. Tables that do not depend on the batch are extra:
        about 12 bytes per slot of a spectral codebook, or the codes of 4,096 labels of another codebook. A row
        needs 20 bytes per slot or label (80 KB in all if codes come in blocks), often less on a GPU. If that is
        more than `memory`, rows are processed one by one. Default: 64 MB on a CPU; on a GPU a quarter of the free
        memory, but at most 4 GB. A CPU never uses more than the default, because that would be slower.
    allowed : bool array or Tensor of shape (n_labels,), optional
        Labels where it is False are never suggested.
    threshold : float, optional
        Labels with a lower score are left out.

    Returns
    -------
    ids : array or Tensor of shape (batch, min(k, n_labels)), int64
        Best first; for equal scores, lower ids first. −1 where `allowed` and `threshold` leave no label.
    scores : array or Tensor of the same shape, float32
        −∞ where the id is −1.
    """
    check_ranking(n_labels, memory, allowed, threshold)
    ops, k = primitives(rows), max(0, min(k, n_labels))
    if not len(rows) or not k:
        return ops.nothing(rows, k)
    mask = None if allowed is None else ops.beside(allowed, rows)
    with ops.no_grad():
        return without(join(find(k, mask, ops.budget(memory, rows))), threshold)


def of_rows(
    logits: Callable[[Any], Any], rows: Any, row_bytes: int, offsets: Any, allowed: Any, k: int, budget: int
) -> Iterator[Any]:
    """Rank by a function that maps rows to scores of all labels `(m, n_labels)`, to which `offsets` are added.

    `row_bytes` is the memory that scoring and ranking one row takes.
    """
    ops, size = primitives(rows), max(1, budget // max(row_bytes, 1))
    for start in range(0, len(rows), size):
        scores = logits(rows[start : start + size])
        if offsets is not None:
            scores = scores + offsets
        if allowed is not None:
            scores = ops.where(allowed, scores, -np.inf)
        yield ops.best_columns(scores, k)


def join(parts: Iterable[Any]) -> Any:
    """Join ids and scores that were found for some rows after the other."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    ids, scores = zip(*found, strict=True)
    ops = primitives(ids[0])
    return ops.concat(ids, axis=0), ops.concat(scores, axis=0)


def without(found: Any, threshold: float | None) -> Any:
    """Remove labels whose scores are below the threshold."""
    if threshold is None:
        return found
    (ids, scores), ops = found, primitives(found[0])
    low = scores < threshold
    return ops.where(low, -1, ids), ops.where(low, -np.inf, scores)


def merge(one: Any, other: Any, k: int) -> Any:
    """Find the k best of both, row by row; no id is in both."""
    ops = primitives(one[0])
    ids, scores = ops.concat([one[0], other[0]]), ops.concat([one[1], other[1]])
    order = ops.by_score(ids, scores)[:, :k]
    return ops.take(ids, order), ops.take(scores, order)


def larger(ops: Any, first: Any, second: Any) -> Any:
    """The best labels of two rankings, `(n, k)` each; a label of both has the higher of its scores."""
    ids, scores = ops.concat([first[0], second[0]]), ops.concat([first[1], second[1]])
    order = ops.by_id(ids, scores)
    ids, scores = ops.take(ids, order), ops.take(scores, order)
    scores[:, 1:][ids[:, 1:] == ids[:, :-1]] = -np.inf
    places, best = ops.best_columns(scores, first[0].shape[1])
    return ops.where(best == -np.inf, -1, ops.take(ids, places)), best


def mean_log_odds(ops: Any, logits: Iterable[Any]) -> Any:
    """Log-odds of the mean of the probabilities that have these log-odds."""
    # Sums of logarithms: probabilities next to 0 and 1 would be rounded to them, and their order would be lost.
    true = false = None
    for each in logits:
        log_true = ops.log_sigmoid(each)
        log_false = ops.subtract(log_true, each)
        true = log_true if true is None else ops.log_sum(true, log_true)
        false = log_false if false is None else ops.log_sum(false, log_false)
    return ops.subtract(true, false)


class Gain:
    """What suggesting a label is expected to bring.

    Parameters
    ----------
    slope : float
    intercept : float
        A label's probability is σ(slope · score + intercept); slope > 0.
    log_weights : float64 array or Tensor of shape (n_labels,)
        Logarithms of what right labels are worth, on the scorer's device.
    """

    def __init__(self, slope: float, intercept: float, log_weights: Any) -> None:
        self.slope, self.intercept, self.log_weights = slope, intercept, log_weights
        self.ops = ops = primitives(log_weights)
        #: What is added to scores so that they are ranked by the bounds of gains, `(n_labels,)`.
        self.offsets = ops.single(log_weights / slope)
        self.least_offset = float(self.offsets.min())

    @property
    def weights(self) -> arrays.Floats:
        """What right labels are worth, `(n_labels,)`."""
        worth: arrays.Floats = np.exp(self.ops.as_array(self.log_weights))
        return worth

    def log_probabilities(self, scores: Any) -> Any:
        """Logarithms of the probabilities of labels with these scores."""
        return self.ops.log_sigmoid(self.slope * scores + self.intercept)


def top_k_by_gain(
    scorer: Any,
    outputs: Any,
    k: int,
    gain: Gain,
    *,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
) -> Any:
    """Ids and scores of the k labels with the highest gains for each output, like `scorer.top_k` otherwise.

    Labels below the threshold leave their places to others.
    """
    ops, k, rows = gain.ops, max(0, min(k, scorer.n_labels)), gain.ops.numbered(outputs)
    ids, scores = ops.nothing(rows, k)
    depth = min(PER_PLACE * k + MORE, scorer.n_labels)
    while k and len(rows):
        still_open = []
        size = max(1, ops.budget(memory, rows) // (PER_CANDIDATE * depth))
        for some in (rows[start : start + size] for start in range(0, len(rows), size)):
            part = [own[some] for own in outputs]
            found = scorer.top_k(part, depth, offsets=gain.offsets, memory=memory, allowed=allowed)
            ids[some], scores[some], settled = _best_candidates(found, k, gain, threshold)
            still_open.append(some[~settled])
        if depth == scorer.n_labels:
            break
        rows, depth = ops.concat(still_open), min(GROWTH * depth, scorer.n_labels)
    return ids, scores


def _best_candidates(candidates: Any, k: int, gain: Gain, threshold: float | None) -> tuple[Any, Any, Any]:
    """Ids and scores of the k best candidates, and whether no other label can be among them.

    `candidates` are ids and scores plus offsets, `(rows, candidates)`, highest first.
    """
    ops, (ids, sums) = gain.ops, candidates
    last = ops.double(sums[:, -1])
    # In the order of their ids, so that the lower id is the first of equals.
    order = ids.argsort()
    ids = ops.take(ids, order)
    precise = ops.double(ops.take(sums, order)) - gain.offsets[ids]  # −∞ where there is no label
    scores, log_probabilities = ops.single(precise), gain.log_probabilities(precise)
    if threshold is not None:
        log_probabilities = ops.where(scores < threshold, -np.inf, log_probabilities)
    places, gains = ops.best_columns(log_probabilities + gain.log_weights[ids], k)
    none = gains == -np.inf
    settled = (last == -np.inf) | (gains[:, -1] > gain.slope * last + gain.intercept + SLACK)
    if threshold is not None:
        # All other labels are below the threshold.
        settled |= ops.single(last - gain.least_offset) < threshold
    return (
        ops.where(none, -1, ops.take(ids, places)),
        ops.where(none, -np.inf, ops.take(scores, places)),
        settled,
    )
