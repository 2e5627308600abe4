"""From heads' outputs to the scores of labels, and to the best of them, as `circlet.network.scorer` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.scoring import arrays
from circlet.scoring.arrays import Floats, Found, best_columns
from circlet.scoring.ranking import (
    PER_SCORE,
    Gain,
    budget_of,
    larger,
    mean_log_odds,
    together,
    top_k_by_gain,
    without,
)

__all__ = ["Ensemble", "Scorer"]


Mask = npt.NDArray[np.bool_]


class Scorer:
    """Scores labels: scale · similarity + bias, or the output itself for head `fc`, which has no codes.

    Parameters
    ----------
    codebook : circlet.runtime.codebooks.Codebook or None
    n_labels : int
    scale : float
    bias : ndarray of shape (n_labels,) or None
    absolute : bool
        Whether similarities lose their sign.
    """

    def __init__(
        self,
        codebook: Any,
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
        scores: Floats = self.codebook.scores(output * self.scale)
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
            return arrays.nothing(output, max(k, 0))
        found: Iterable[Found]
        if self.codebook is None:
            found = _of_rows(self.logits, output, PER_SCORE * self.n_labels, offsets, allowed, k, budget)
        else:
            prepared = self._offsets(self.codebook, offsets)
            found = self.codebook.best(output * self.scale, k, prepared, allowed, budget)
            if self.absolute:
                # |s| is the larger of s and −s, so the k best by |s| are among the k best of either sign.
                negated = self.codebook.best(output * -self.scale, k, prepared, allowed, budget)
                found = [larger(arrays, together(found), together(negated))]
        best: Found = without(together(found), threshold)
        return best

    def _offsets(self, codebook: Any, offsets: Floats | None) -> Floats | None:
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
        mean: Floats = mean_log_odds(arrays, (each * slope + intercept for each, (slope, intercept) in curves))
        return mean

    def top_k(
        self,
        outputs: list[Floats],
        k: int,
        *,
        gain: Gain | None = None,
        offsets: Floats | None = None,
        memory: int | None = None,
        allowed: Mask | None = None,
        threshold: float | None = None,
    ) -> Found:
        """See `Scorer.top_k`; `gain` ranks labels by their gain instead of their score."""
        options: dict[str, Any] = {"memory": memory, "allowed": allowed, "threshold": threshold}
        if gain is not None:
            return top_k_by_gain(self, outputs, k, gain, **options)  # type: ignore[no-any-return]
        if len(self.scorers) == 1:
            return self.scorers[0].top_k(outputs[0], k, offsets=offsets, **options)
        n, k = len(outputs[0]), min(k, self.n_labels)
        if not n or k < 1:
            return arrays.nothing(outputs[0], max(k, 0))
        joined, book = np.concatenate(outputs, axis=1), self.scorers[0].codebook
        # The sums so far, a network's scores and what computing them takes, then the ranking: bytes per score.
        row_bytes = 40 * max(self.n_labels, 0 if book is None else book.per_row)

        def logits(part: Floats) -> Floats:
            return self.logits(np.split(part, len(self.scorers), axis=1))

        found = _of_rows(logits, joined, row_bytes, offsets, allowed, k, budget_of(memory))
        best: Found = without(together(found), threshold)
        return best


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
