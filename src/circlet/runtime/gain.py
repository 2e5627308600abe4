"""Ranking by expected gain, which is how rare labels are favored; `circlet.network.gain` says why it is exact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from circlet.runtime.ranking import Found, best_columns, budget_of
from circlet.runtime.scorers import Ensemble, Mask
from circlet.runtime.weights import Floats

__all__ = ["Gain", "top_k"]

#: Candidates for k places at first: some for each place, and some more.
PER_PLACE, MORE = 2, 16
#: How many times as many candidates there are in each further round.
GROWTH = 4
#: Bytes per candidate: ids, scores and gains, and copies for sorting.
PER_CANDIDATE = 100
#: By how much a gain may exceed its bound, which is rounded to single precision.
SLACK = 1e-6


class Gain:
    """What suggesting a label is expected to bring.

    Parameters
    ----------
    slope, intercept : float
        A label's probability is σ(slope · score + intercept); slope > 0.
    log_weights : float64 ndarray of shape (n_labels,)
        Logarithms of what right labels are worth.
    """

    def __init__(self, slope: float, intercept: float, log_weights: npt.NDArray[np.float64]) -> None:
        self.slope, self.intercept, self.log_weights = slope, intercept, log_weights
        #: What is added to scores so that they are ranked by the bounds of gains, `(n_labels,)`.
        self.offsets: Floats = (log_weights / slope).astype(np.float32)
        self.least_offset = float(self.offsets.min())

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """What right labels are worth, `(n_labels,)`."""
        worth: npt.NDArray[np.float64] = np.exp(self.log_weights)
        return worth

    def log_probabilities(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities of labels with these scores."""
        logs: npt.NDArray[np.float64] = -np.logaddexp(0, -(self.slope * scores + self.intercept))
        return logs


def top_k(
    scorer: Ensemble,
    outputs: list[Floats],
    k: int,
    gain: Gain,
    *,
    memory: int | None = None,
    allowed: Mask | None = None,
    threshold: float | None = None,
) -> Found:
    """Ids and scores of the k labels with the highest gains for each document, like `Ensemble.top_k` otherwise.

    Labels below the threshold leave their places to others.
    """
    n = len(outputs[0])
    k = max(0, min(k, scorer.n_labels))
    ids, scores = np.zeros((n, k), dtype=np.int64), np.zeros((n, k), dtype=np.float32)
    rows = np.arange(n if k else 0)
    depth = min(PER_PLACE * k + MORE, scorer.n_labels)
    while len(rows):
        still_open = []
        for some in _split(rows, max(1, budget_of(memory) // (PER_CANDIDATE * depth))):
            part = [own[some] for own in outputs]
            found = scorer.top_k(part, depth, offsets=gain.offsets, memory=memory, allowed=allowed)
            ids[some], scores[some], settled = _best_candidates(found, k, gain, threshold)
            still_open.append(some[~settled])
        if depth == scorer.n_labels:
            break
        rows, depth = np.concatenate(still_open), min(GROWTH * depth, scorer.n_labels)
    return ids, scores


def _best_candidates(
    candidates: Found, k: int, gain: Gain, threshold: float | None
) -> tuple[npt.NDArray[np.int64], Floats, Mask]:
    """Ids and scores of the k best candidates, and whether no other label can be among them.

    `candidates` are ids and scores plus offsets, `(rows, candidates)`, highest first.
    """
    ids, sums = candidates
    last = sums[:, -1].astype(np.float64)
    # In the order of their ids, so that the lower id is the first of equals.
    order = np.argsort(ids, axis=1)
    ids = np.take_along_axis(ids, order, axis=1)
    # −∞ where there is no label.
    precise = np.take_along_axis(sums, order, axis=1).astype(np.float64) - gain.offsets[ids]
    scores, log_probabilities = precise.astype(np.float32), gain.log_probabilities(precise)
    if threshold is not None:
        log_probabilities = np.where(scores < threshold, -np.inf, log_probabilities)
    places, gains = best_columns(log_probabilities + gain.log_weights[ids], k)
    none = gains == -np.inf
    settled = (last == -np.inf) | (gains[:, -1] > gain.slope * last + gain.intercept + SLACK)
    if threshold is not None:
        # All other labels are below the threshold.
        settled |= (last - gain.least_offset).astype(np.float32) < threshold
    return (
        np.where(none, -1, np.take_along_axis(ids, places, axis=1)),
        np.where(none, np.float32(-np.inf), np.take_along_axis(scores, places, axis=1)),
        settled,
    )


def _split(rows: npt.NDArray[np.int64], size: int) -> Iterator[npt.NDArray[np.int64]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
