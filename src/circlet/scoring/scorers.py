"""From the outputs of heads to the scores of labels, and to the best labels.

What a score is stands in two places: `Scorer.scores` for all labels, and `Scorer.top_k`, which finds the best ones
without computing all scores. A new term of the score must be added to both; torch, NumPy and ONNX then have it.
The fast losses (`circlet.network.losses`), explanations and feedback repeat the formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from circlet.scoring import primitives
from circlet.scoring.ranking import PER_SCORE, Gain, larger, mean_log_odds, of_rows, top_k, top_k_by_gain

__all__ = ["Ensemble", "Scorer"]

#: Bytes per score of several networks: sums, a network's scores and their temporaries, then the ranking.
PER_MEAN = 40


class Scorer:
    """Scores labels: scale · similarity + bias, or the output itself for head `fc`, which has no codes.

    Parameters
    ----------
    codebook : Codebook or None
    n_labels : int
    scale : float or Tensor
    bias : array or Tensor of shape (at least n_labels,), or None
    absolute : bool
        Whether similarities lose their sign.
    """

    #: The logarithm of the scale, if the scale is learned.
    log_scale: Any

    def __init__(
        self, codebook: Any, n_labels: int, scale: Any = 1.0, bias: Any = None, *, absolute: bool = False
    ) -> None:
        self.codebook, self.n_labels, self.absolute = codebook, n_labels, absolute
        self.scale, self.bias = scale, bias
        #: The last offsets, and their sum with the biases.
        self._sum: tuple[Any, Any] | None = None

    def logits(self, output: Any) -> Any:
        """The scores that labels are ranked by, `(batch, n_labels)`."""
        return self.scores(primitives(output), output)

    def scores(self, ops: Any, output: Any) -> Any:
        """Compute the scores of all labels; `ops` has the operations: NumPy's, torch's or ONNX's."""
        if self.codebook is None:
            return output
        bias = None if self.bias is None else self.bias[: self.n_labels]
        scores = ops.scores(self.codebook, output, self.scale, bias)
        return ops.absolute(scores) if self.absolute else scores

    def top_k(self, output: Any, k: int, *, offsets: Any = None, **options: Any) -> Any:
        """Ids and scores of the k best labels of each output, with the options of `circlet.scoring.ranking.top_k`.

        `offsets`, `(n_labels,)`, are added to the scores.
        """
        if self.codebook is None:
            row_bytes = PER_SCORE * self.n_labels
            return top_k(
                lambda k, mask, budget: of_rows(self.logits, output, row_bytes, offsets, mask, k, budget),
                output,
                self.n_labels,
                k,
                **options,
            )
        scaled, bias = output * self.scale, self._biases(offsets)
        found = self.codebook.top_k(scaled, k, bias=bias, **options)
        if not self.absolute:
            return found
        # |s| is the larger of s and −s, so the k best by |s| are among the k best of either sign.
        return larger(primitives(output), found, self.codebook.top_k(-scaled, k, bias=bias, **options))

    def _biases(self, offsets: Any) -> Any:
        """Biases plus offsets; the last sum is cached, because documents may come one by one."""
        if self.bias is None or offsets is None:
            return self.bias if offsets is None else offsets
        if self._sum is None or self._sum[0] is not offsets:
            self._sum = offsets, self.bias + offsets
        return self._sum[1]


class Ensemble:
    """Scores labels by the outputs of all networks of a model, usually only one.

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

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorers[0].n_labels

    def logits(self, outputs: Sequence[Any]) -> Any:
        """The scores that labels are ranked by, `(batch, n_labels)`, from the output of each network."""
        each = (scorer.logits(output) for scorer, output in zip(self.scorers, outputs, strict=True))
        return self.mean(primitives(outputs[0]), each)

    def mean(self, ops: Any, scores: Iterable[Any]) -> Any:
        """The scores of all networks as one, by the primitives for scores."""
        if len(self.scorers) == 1:
            return next(iter(scores))
        curves = zip(scores, self.calibrations, strict=True)
        return mean_log_odds(ops, (ops.affine(each, *curve) for each, curve in curves))

    def top_k(
        self, outputs: Sequence[Any], k: int, *, gain: Gain | None = None, offsets: Any = None, **options: Any
    ) -> Any:
        """Ids and scores of the k best labels of each document; see `Scorer.top_k`.

        `gain` ranks labels by their gain instead of their score. Of several networks, all labels are scored, for
        as many documents at a time as `memory` has room for. The last digits of a score may depend on how many
        these are.
        """
        if gain is not None:
            return top_k_by_gain(self, outputs, k, gain, **options)
        if len(self.scorers) == 1:
            return self.scorers[0].top_k(outputs[0], k, offsets=offsets, **options)
        book, numbers = self.scorers[0].codebook, primitives(outputs[0]).numbered(outputs)
        row_bytes = PER_MEAN * max(self.n_labels, (0 if book is None else book.capacity) or 0)

        def find(k: int, mask: Any, budget: int) -> Any:
            logits = lambda some: self.logits([own[some] for own in outputs])  # noqa: E731
            return of_rows(logits, numbers, row_bytes, offsets, mask, k, budget)

        return top_k(find, numbers, self.n_labels, k, **options)
