"""From a head's output to the scores of all labels, and to the best of them; rare labels may be favored.

Similarities lie between −1 and 1. If all labels compete in the loss, a learned scale and, for binary
cross-entropy, a learned bias per label turn them into logits.

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

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from circlet.codebooks import Codebook, decoding
from circlet.errors import ParameterError

__all__ = [
    "Gain",
    "Scorer",
    "log_odds",
    "top_k_by_gain",
]


class Scorer(nn.Module):
    """Scores labels: scale · similarity + bias, or the output itself for head `fc`, which has no codes.

    Parameters
    ----------
    codebook : Codebook or None
        None if outputs are scores already.
    n_labels : int
    scaled : bool
        Whether there is a learned scale. Without a codebook there is neither scale nor bias: the head has its own.
    biased : bool
        Whether there is a learned bias per label.
    absolute : bool
        Whether similarities lose their sign.
    """

    def __init__(
        self, codebook: Codebook | None, n_labels: int, *, scaled: bool, biased: bool, absolute: bool = False
    ) -> None:
        super().__init__()
        self.codebook, self.n_labels, self.absolute = codebook, n_labels, absolute
        self.log_scale: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if codebook is not None and scaled:
            # Similarities of unrelated codes have deviation 1/√(2d), so at first this gives logits of about 1.
            self.log_scale = nn.Parameter(torch.tensor(math.log(math.sqrt(2 * codebook.dim))))
        if codebook is not None and biased:
            # If the codebook has a capacity, labels that may be added later already have their biases.
            self.bias = nn.Parameter(torch.zeros(codebook.capacity or n_labels))

    def logits(self, output: Tensor) -> Tensor:
        """The scores that labels are ranked by, `(batch, n_labels)`."""
        if self.codebook is None:
            return output
        scores = self.codebook.scores(output)
        if self.absolute:
            return scores.abs()
        if self.log_scale is None:
            return scores
        if self.bias is None:
            return scores * self.log_scale.exp()
        return torch.addcmul(self.bias[: self.n_labels], scores, self.log_scale.exp())

    @torch.no_grad()
    def top_k(
        self,
        output: Tensor,
        k: int,
        *,
        offsets: Tensor | None = None,
        memory: int | None = None,
        allowed: Tensor | None = None,
        threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Ids and scores of the k best labels of each output; see `circlet.codebooks.decoding.top_k`.

        `offsets`, `(n_labels,)`, are added to the scores.
        """
        if self.codebook is None:
            logits = self.logits if offsets is None else lambda part: self.logits(part) + offsets
            row_bytes = decoding.PER_SCORE * self.n_labels
            return decoding.top_k(
                lambda k, budget: decoding.of_rows(logits, output, row_bytes, allowed, k, budget),
                output,
                self.n_labels,
                k,
                memory=memory,
                allowed=allowed,
                threshold=threshold,
            )
        scale = 1.0 if self.log_scale is None else float(self.log_scale.exp())
        bias = None if self.bias is None else self.bias[: self.n_labels].float()
        if offsets is not None:
            bias = offsets if bias is None else bias + offsets
        options: dict[str, Any] = {"bias": bias, "memory": memory, "allowed": allowed, "threshold": threshold}
        found = self.codebook.top_k(output.float() * scale, k, **options)
        if not self.absolute:
            return found
        # |s| is the larger of s and −s, so the k best by |s| are among the k best of either sign.
        return _larger(found, self.codebook.top_k(output.float() * -scale, k, **options))

    def start_from(self, counts: Tensor, n: int) -> None:
        """Initialize biases from label frequencies: `counts` has how many of n documents have each label."""
        # For each label that is true, thousands are false: learning that from zero biases takes epochs.
        if self.bias is not None:
            with torch.no_grad():
                self.bias.fill_(math.log(0.5 / (n + 0.5)))
                self.bias[: len(counts)] = log_odds(counts, n)

    def grow(self, n_labels: int) -> None:
        """Add labels; no weight changes its shape, and the scores of the old labels stay the same."""
        if self.codebook is None:
            raise ParameterError("head fc has one output per label and can't take new labels: choose another head")
        if self.bias is not None and n_labels > len(self.bias):
            raise ParameterError(
                f"loss bce has a bias for {len(self.bias)} labels and can't take {n_labels}: "
                "train a new model, or choose loss cosine or softmax"
            )
        self.codebook.grow(n_labels)
        self.n_labels = n_labels


def _larger(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The best labels of two rankings, `(batch, k)` each; a label of both has the higher of its scores."""
    ids, scores = (torch.cat(both, dim=1) for both in zip(first, second, strict=True))
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    ids, by_id = ids.gather(1, order).sort(dim=1, stable=True)
    scores = scores.gather(1, by_id)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = ids[:, 1:] == ids[:, :-1]
    scores = scores.masked_fill(again, -torch.inf)
    places, best = decoding.best_columns(scores, first[0].shape[1])
    return ids.gather(1, places).masked_fill(best == -torch.inf, -1), best


def log_odds(counts: Tensor, n: int) -> Tensor:
    """Smoothed log-odds of labels that occur in `counts` of n documents."""
    return ((counts + 0.5) / (n - counts + 0.5)).log()


#: Candidates for k places at first: some for each place, and some more.
PER_PLACE, MORE = 2, 16
#: How many times as many candidates there are in each further round.
GROWTH = 4
#: Bytes per candidate: ids, scores and gains, and copies for sorting.
PER_CANDIDATE = 100
#: By how much a gain may exceed its bound, which is rounded to single precision.
SLACK = 1e-6


class RanksLabels(Protocol):
    """A scorer of one network, or all networks of a model."""

    @property
    def n_labels(self) -> int:
        """Number of labels."""

    def top_k(
        self,
        output: Tensor,
        k: int,
        *,
        offsets: Tensor | None = None,
        memory: int | None = None,
        allowed: Tensor | None = None,
        threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `circlet.network.scorer.Scorer.top_k`."""


@dataclass(frozen=True, eq=False)
class Gain:
    """What suggesting a label is expected to bring.

    Parameters
    ----------
    slope, intercept : float
        A label's probability is σ(slope · score + intercept); slope > 0.
    log_weights : Tensor of shape (n_labels,), float64
        Logarithms of what right labels are worth, on the scorer's device.
    """

    slope: float
    intercept: float
    log_weights: Tensor

    @cached_property
    def offsets(self) -> Tensor:
        """What is added to scores so that they are ranked by the bounds of gains, `(n_labels,)`."""
        return (self.log_weights / self.slope).float()

    @cached_property
    def least_offset(self) -> float:
        """The smallest of the offsets."""
        return float(self.offsets.min())

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """What right labels are worth, `(n_labels,)`, as an array."""
        worth: npt.NDArray[np.float64] = self.log_weights.exp().cpu().numpy()
        return worth

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Logarithms of the probabilities of labels with these scores."""
        return torch.nn.functional.logsigmoid(self.slope * scores + self.intercept)


@torch.no_grad()
def top_k_by_gain(
    scorer: RanksLabels,
    output: Tensor,
    k: int,
    gain: Gain,
    *,
    memory: int | None = None,
    allowed: Tensor | None = None,
    threshold: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Ids and scores of the k labels with the highest gains for each output, like `Scorer.top_k` otherwise.

    Labels below the threshold leave their places to others.
    """
    k = max(0, min(k, scorer.n_labels))
    ids = torch.zeros(len(output), k, dtype=torch.int64, device=output.device)
    scores = torch.zeros(len(output), k, device=output.device)
    rows = torch.arange(len(output) if k else 0, device=output.device)
    budget = decoding.MEMORY if memory is None else min(int(memory), decoding.MEMORY)
    depth = min(PER_PLACE * k + MORE, scorer.n_labels)
    while len(rows):
        open_rows = []
        for some in torch.split(rows, max(1, budget // (PER_CANDIDATE * depth))):
            found = scorer.top_k(output[some], depth, offsets=gain.offsets, memory=memory, allowed=allowed)
            ids[some], scores[some], settled = _best_candidates(*found, k, gain, threshold)
            open_rows.append(some[~settled])
        if depth == scorer.n_labels:
            break
        rows, depth = torch.cat(open_rows), min(GROWTH * depth, scorer.n_labels)
    return ids, scores


def _best_candidates(
    ids: Tensor, sums: Tensor, k: int, gain: Gain, threshold: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and scores of the k best candidates, and whether no other label can be among them.

    `ids` and `sums` are the candidates and their scores plus offsets, `(rows, candidates)`, highest first.
    """
    last = sums[:, -1].double()
    # In the order of their ids, so that the lower id is the first of equals.
    ids, order = ids.sort(dim=1)
    precise = sums.gather(1, order).double() - gain.offsets[ids]  # −∞ where there is no label
    scores, log_probabilities = precise.float(), gain.log_probabilities(precise)
    if threshold is not None:
        log_probabilities = log_probabilities.masked_fill(scores < threshold, -torch.inf)
    places, gains = decoding.best_columns(log_probabilities + gain.log_weights[ids], k)
    none = gains == -torch.inf
    settled = (last == -torch.inf) | (gains[:, -1] > gain.slope * last + gain.intercept + SLACK)
    if threshold is not None:
        # All other labels are below the threshold.
        settled |= (last - gain.least_offset).float() < threshold
    return (
        ids.gather(1, places).masked_fill(none, -1),
        scores.gather(1, places).masked_fill(none, -torch.inf),
        settled,
    )
