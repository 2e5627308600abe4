"""Ranking by expected gain: by a label's probability times its weight, which is how rare labels are favored.

A suggestion that is right with probability p and then worth w has the expected gain p · w. In logarithms, with
p = σ(x) and x = slope · score + intercept,

    log p + log w  ≤  x + log w  =  slope · (score + log w / slope) + intercept,

because σ(x) < eˣ. The right-hand side is a bound that the scorer's fast `top_k` can rank by, with log w / slope as
an offset of each label. It finds some candidates, those with the highest bounds, and their gains are computed. All
other labels have bounds, and so gains, of at most the last candidate's bound. If the k best candidates by gain are
above it, they are the k best of all labels; if not, more candidates are found. So the ranking is exact, and only
few of the labels' scores are ever kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.codebooks import decoding

__all__ = ["Gain", "best_by_gain", "top_k"]

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


def best_by_gain(log_probabilities: Tensor, log_weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k columns with the highest gains in each row, and these gains; among equals the lower column first.

    Parameters
    ----------
    log_probabilities : Tensor of shape (rows, columns)
        −∞ for labels that are left out.
    log_weights : Tensor of shape (rows, columns) or (columns,)
    k : int
        At most the number of columns.
    """
    return decoding.best_columns(log_probabilities + log_weights, k)


@torch.no_grad()
def top_k(
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
    places, gains = best_by_gain(log_probabilities, gain.log_weights[ids], k)
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
