"""Several networks that are used as one: a label's probability is the mean of what each network says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from circlet.codebooks import decoding
from circlet.folder.members import member_prefix
from circlet.network.network import Network
from circlet.network.scorer import Scorer

__all__ = ["Ensemble", "MeanScorer", "as_one", "mean_log_odds"]

#: Bytes per score of a row: the sums so far, a network's scores and what computing them takes, then the ranking.
PER_SCORE = 40
#: The slope and intercept of scores that are log-odds already.
PLAIN = (1.0, 0.0)


def as_one(networks: Sequence[Network]) -> Network | Ensemble:
    """The only network, or an ensemble of several."""
    return networks[0] if len(networks) == 1 else Ensemble(networks)


class Ensemble:
    """Networks that score the same labels, with the parts of `Network` that prediction and saving need.

    Parameters
    ----------
    networks : sequence of Network
        Their settings differ only in the seed.
    calibrations : sequence of (slope, intercept), optional
        The logistic curve from each network's scores to probabilities. By default scores are log-odds.
    """

    def __init__(
        self, networks: Sequence[Network], calibrations: Sequence[tuple[float, float]] | None = None
    ) -> None:
        self.networks = list(networks)
        self.scorer = MeanScorer(
            [network.scorer for network in networks], list(calibrations or [PLAIN] * len(networks))
        )

    def __call__(self, batch: Any) -> Tensor:
        """The outputs of all networks for a batch of documents, in the form that the scorer takes."""
        return self.scorer.joined(network(batch).float() for network in self.networks)

    def eval(self) -> Ensemble:
        """Switch dropout off."""
        for network in self.networks:
            network.eval()
        return self

    def to(self, device: torch.device) -> Ensemble:
        """Move all networks to a device."""
        for network in self.networks:
            network.to(device)
        return self

    def grow(self, n_labels: int) -> None:
        """Add labels to all networks; see `Network.grow`."""
        for network in self.networks:
            network.grow(n_labels)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.networks[0].device

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.networks[0].n_labels

    def weights(self) -> dict[str, Tensor]:
        """All weights, under their names in files."""
        numbered = enumerate(self.networks)
        return {member_prefix(i) + name: tensor for i, each in numbered for name, tensor in each.weights().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights that `weights` returned."""
        for i, network in enumerate(self.networks):
            prefix = member_prefix(i)
            own = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
            network.load_weights(own)

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of parameters of all networks together; see `Network.parameter_counts`."""
        counts = [network.parameter_counts() for network in self.networks]
        return {part: sum(each[part] for each in counts) for part in counts[0]}


class MeanScorer:
    """Scores labels by the log-odds of the mean of their probabilities.

    Parameters
    ----------
    scorers : list of Scorer
    calibrations : list of (slope, intercept)
        The logistic curve from each scorer's scores to probabilities.
    """

    def __init__(self, scorers: list[Scorer], calibrations: list[tuple[float, float]]) -> None:
        self.scorers, self.calibrations = scorers, calibrations

    def joined(self, outputs: Iterable[Tensor]) -> Tensor:
        """The outputs of all networks as one tensor: side by side or, if they are scores already, combined."""
        # Without a codebook, outputs are as wide as there are labels: too wide to keep several.
        return self._combined(outputs) if self._codeless else torch.cat(list(outputs), dim=1)

    def logits(self, output: Tensor) -> Tensor:
        """The scores that labels are ranked by, `(batch, n_labels)`, from joined outputs."""
        if self._codeless:
            return output
        parts = output.chunk(len(self.scorers), dim=1)
        pairs = zip(self.scorers, parts, strict=True)
        return self._combined(scorer.logits(part) for scorer, part in pairs)

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
        """Ids and scores of the k best labels of each output; see `Scorer.top_k`.

        All labels are scored, for as many rows at a time as `memory` has room for. The last digits of a score may
        depend on how many these are.
        """
        book = self.scorers[0].codebook
        row_bytes = PER_SCORE * max(self.n_labels, (0 if book is None else book.capacity) or 0)
        logits = self.logits if offsets is None else lambda part: self.logits(part) + offsets
        return decoding.top_k(
            lambda k, budget: decoding.of_rows(logits, output, row_bytes, allowed, k, budget),
            output,
            self.n_labels,
            k,
            memory=memory,
            allowed=allowed,
            threshold=threshold,
        )

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorers[0].n_labels

    @property
    def _codeless(self) -> bool:
        return self.scorers[0].codebook is None

    def _combined(self, scores: Iterable[Tensor]) -> Tensor:
        curves = zip(scores, self.calibrations, strict=True)
        return mean_log_odds((each * slope).add_(intercept) for each, (slope, intercept) in curves)


def mean_log_odds(logits: Iterable[Tensor]) -> Tensor:
    """Log-odds of the mean of the probabilities that have these log-odds."""
    # Sums of logarithms: probabilities next to 0 and 1 would be rounded to them, and their order would be lost.
    true: Tensor | None = None
    false: Tensor | None = None
    for each in logits:
        log_true = logsigmoid(each)
        log_false = log_true - each
        true = log_true if true is None else _log_sum(true, log_true)
        false = log_false if false is None else _log_sum(false, log_false)
    assert true is not None
    assert false is not None
    return true - false


def _log_sum(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the sum of two numbers, from their logarithms."""
    # On a CPU, torch.logaddexp may give equal numbers at different places different last digits, and labels with
    # equal scores would no longer be ordered by id.
    return (a - b).abs_().neg_().exp_().log1p_().add_(torch.maximum(a, b))
