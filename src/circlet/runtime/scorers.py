"""From heads' outputs to the scores of labels, and to the best of them, as `circlet.network.scorer` has it.

Ranking by expected gain is how rare labels are favored; `circlet.network.scorer` says why it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from circlet.runtime.codebooks import Codebook
from circlet.runtime.network import Floats
from circlet.runtime.ranking import PER_SCORE, Found, best_columns, budget_of, together, without

__all__ = [
    "Ensemble",
    "Gain",
    "Scorer",
    "top_k_by_gain",
]


Mask = npt.NDArray[np.bool_]


class Scorer:
    """Scores labels: scale · similarity + bias, or the output itself for head `fc`, which has no codes.

    Parameters
    ----------
    codebook : Codebook or None
    n_labels : int
    scale : float
    bias : ndarray of shape (n_labels,) or None
    absolute : bool
        Whether similarities lose their sign.
    """

    def __init__(
        self,
        codebook: Codebook | None,
        n_labels: int,
        scale: float,
        bias: Floats | None,
        *,
        absolute: bool = False,
    ) -> None:
        self.codebook, self.n_labels, self.absolute = codebook, n_labels, absolute
        self.scale, self.bias = np.float32(scale), bias
        #: Biases in the form that the codebook takes, without offsets and with the last ones.
        self._plain: tuple[Floats | None] | None = None
        self._shifted: tuple[Floats, Floats | None] | None = None

    def logits(self, output: Floats) -> Floats:
        """The scores that labels are ranked by, `(n, n_labels)`."""
        if self.codebook is None:
            return output
        scores = self.codebook.scores(output * self.scale)
        if self.absolute:
            return np.abs(scores)
        if self.bias is not None:
            scores += self.bias
        return scores

    def top_k(
        self,
        output: Floats,
        k: int,
        *,
        offsets: Floats | None = None,
        memory: int | None = None,
        allowed: Mask | None = None,
        threshold: float | None = None,
    ) -> Found:
        """Ids and scores of the k best labels of each output; `offsets`, `(n_labels,)`, are added to the scores.

        Where `allowed` and `threshold` leave no label, the id is −1 and the score −∞.
        """
        k, budget = min(k, self.n_labels), budget_of(memory)
        if not len(output) or k < 1:
            return _nothing(len(output), k)
        found: Iterable[Found]
        if self.codebook is None:
            found = _of_rows(self.logits, output, PER_SCORE * self.n_labels, offsets, allowed, k, budget)
        else:
            prepared = self._offsets(self.codebook, offsets)
            found = self.codebook.best(output * self.scale, k, prepared, allowed, budget)
            if self.absolute:
                # |s| is the larger of s and −s, so the k best by |s| are among the k best of either sign.
                negated = self.codebook.best(output * -self.scale, k, prepared, allowed, budget)
                found = [_larger(together(found), together(negated))]
        return without(together(found), threshold)

    def _offsets(self, codebook: Codebook, offsets: Floats | None) -> Floats | None:
        """What the codebook adds to similarities; it is kept, because documents may come one by one."""
        if offsets is None:
            plain = self._plain
            if plain is None:
                plain = self._plain = (codebook.offsets(self.bias),)
            return plain[0]
        shifted = self._shifted
        if shifted is None or shifted[0] is not offsets:
            bias = offsets if self.bias is None else self.bias + offsets
            shifted = self._shifted = offsets, codebook.offsets(bias)
        return shifted[1]


class Ensemble:
    """Scores labels by the outputs of all networks of a model; mostly it is one.

    What a single network computes is used as it is. Of several, the score is the log-odds of the mean of their
    probabilities.

    Parameters
    ----------
    scorers : list of Scorer
        One for each network.
    calibrations : list of (slope, intercept)
        The logistic curve from each scorer's scores to probabilities; that of a single one does not matter.
    """

    def __init__(self, scorers: list[Scorer], calibrations: list[tuple[float, float]]) -> None:
        self.scorers, self.calibrations = scorers, calibrations
        self.n_labels = scorers[0].n_labels

    def logits(self, outputs: list[Floats]) -> Floats:
        """The scores that labels are ranked by, `(n, n_labels)`, from the outputs of each network."""
        if len(self.scorers) == 1:
            return self.scorers[0].logits(outputs[0])
        scores = (scorer.logits(own) for scorer, own in zip(self.scorers, outputs, strict=True))
        curves = zip(scores, self.calibrations, strict=True)
        return mean_log_odds(
            each * np.float32(slope) + np.float32(intercept) for each, (slope, intercept) in curves
        )

    def top_k(
        self,
        outputs: list[Floats],
        k: int,
        *,
        offsets: Floats | None = None,
        memory: int | None = None,
        allowed: Mask | None = None,
        threshold: float | None = None,
    ) -> Found:
        """See `Scorer.top_k`."""
        if len(self.scorers) == 1:
            return self.scorers[0].top_k(
                outputs[0], k, offsets=offsets, memory=memory, allowed=allowed, threshold=threshold
            )
        n, k = len(outputs[0]), min(k, self.n_labels)
        if not n or k < 1:
            return _nothing(n, k)
        joined, book = np.concatenate(outputs, axis=1), self.scorers[0].codebook
        # The sums so far, a network's scores and what computing them takes, then the ranking: bytes per score.
        row_bytes = 40 * max(self.n_labels, 0 if book is None else book.per_row)

        def logits(part: Floats) -> Floats:
            return self.logits(np.split(part, len(self.scorers), axis=1))

        found = _of_rows(logits, joined, row_bytes, offsets, allowed, k, budget_of(memory))
        return without(together(found), threshold)


def _larger(first: Found, second: Found) -> Found:
    """The best labels of two rankings, `(n, k)` each; a label of both has the higher of its scores."""
    ids, scores = (np.concatenate(both, axis=1) for both in zip(first, second, strict=True))
    order = np.lexsort((-scores, ids), axis=1)
    ids, scores = (np.take_along_axis(each, order, axis=1) for each in (ids, scores))
    scores[:, 1:][ids[:, 1:] == ids[:, :-1]] = -np.inf
    places, best = best_columns(scores, first[0].shape[1])
    return np.where(best == -np.inf, -1, np.take_along_axis(ids, places, axis=1)), best


def mean_log_odds(logits: Iterable[Floats]) -> Floats:
    """Log-odds of the mean of the probabilities that have these log-odds."""
    # Sums of logarithms: probabilities next to 0 and 1 would be rounded to them, and their order would be lost.
    true: Floats | None = None
    false: Floats | None = None
    for each in logits:
        log_true = np.minimum(each, 0) - np.log1p(np.exp(-np.abs(each)))
        log_false = log_true - each
        true = log_true if true is None else _log_sum(true, log_true)
        false = log_false if false is None else _log_sum(false, log_false)
    assert true is not None
    assert false is not None
    return true - false


def _log_sum(a: Floats, b: Floats) -> Floats:
    """The logarithm of the sum of two numbers, from their logarithms."""
    total: Floats = np.maximum(a, b) + np.log1p(np.exp(-np.abs(a - b)))
    return total


def _of_rows(
    logits: Callable[[Floats], Floats],
    output: Floats,
    row_bytes: int,
    offsets: Floats | None,
    allowed: Mask | None,
    k: int,
    budget: int,
) -> Iterator[Found]:
    """The best labels by a function from outputs to the scores of all labels, which take `row_bytes` a row."""
    size = max(1, budget // row_bytes)
    for start in range(0, len(output), size):
        scores = logits(output[start : start + size])
        if offsets is not None:
            scores = scores + offsets
        if allowed is not None:
            scores = np.where(allowed, scores, np.float32(-np.inf))
        yield best_columns(scores, k)


def _nothing(n: int, k: int) -> Found:
    return np.zeros((n, max(k, 0)), dtype=np.int64), np.zeros((n, max(k, 0)), dtype=np.float32)


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


def top_k_by_gain(
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
