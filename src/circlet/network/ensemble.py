"""The networks of a model as one: a label's probability is the mean of what each network says. Mostly it is one.

From rows to the best labels or to the scores of all labels, for prediction, validation and calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.checks import check_ranking
from circlet.codebooks import decoding
from circlet.codebooks.decoding import MEMORY
from circlet.features.rows import TokenRows
from circlet.network.batch import as_batch
from circlet.network.network import Network
from circlet.scoring import tensors
from circlet.scoring.ranking import Gain, mean_log_odds, top_k_by_gain
from circlet.storage.network_spec import member_prefix

__all__ = ["Ensemble", "outputs_of", "score_blocks", "top_k"]

#: Bytes per score of a row: the sums so far, a network's scores and what computing them takes, then the ranking.
PER_SCORE = 40
#: The slope and intercept of scores that are log-odds already.
PLAIN = (1.0, 0.0)
#: Documents at a time, and texts that are read word by word, each of which takes far more memory.
BATCH, TEXTS = 1024, 128


class Ensemble:
    """Networks that score the same labels.

    What a single network computes is used as it is; its own calibration does not matter.

    Parameters
    ----------
    networks : sequence of Network
        At least one. Their settings differ only in the seed.
    calibrations : sequence of (slope, intercept), optional
        The logistic curve from each network's scores to probabilities. By default scores are log-odds.
    """

    def __init__(
        self, networks: Sequence[Network], calibrations: Sequence[tuple[float, float]] | None = None
    ) -> None:
        self.networks = list(networks)
        self.calibrations = list(calibrations or [PLAIN] * len(networks))

    def __call__(self, batch: Any) -> Tensor:
        """The outputs of all networks for a batch, side by side or, if they are scores already, averaged."""
        if len(self.networks) == 1:
            return self.networks[0](batch).float()  # type: ignore[no-any-return]
        outputs = (network(batch).float() for network in self.networks)
        # Without a codebook, outputs are as wide as there are labels: too wide to keep several.
        return self._mean(outputs) if self._codeless else torch.cat(list(outputs), dim=1)

    def logits(self, output: Tensor) -> Tensor:
        """The scores that labels are ranked by, `(batch, n_labels)`, from outputs of all networks.

        Of several networks, they are the log-odds of the mean of their probabilities.
        """
        scorers = [network.scorer for network in self.networks]
        if len(scorers) == 1:
            return scorers[0].logits(output)
        if self._codeless:
            return output
        pairs = zip(scorers, output.chunk(len(scorers), dim=1), strict=True)
        return self._mean(scorer.logits(part) for scorer, part in pairs)

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

        Of several networks, all labels are scored, for as many rows at a time as `memory` has room for. The last
        digits of a score may depend on how many these are.
        """
        options: dict[str, Any] = {"memory": memory, "allowed": allowed, "threshold": threshold}
        if len(self.networks) == 1:
            return self.networks[0].scorer.top_k(output, k, offsets=offsets, **options)
        book = self.networks[0].codebook
        row_bytes = PER_SCORE * max(self.n_labels, (0 if book is None else book.capacity) or 0)
        logits = self.logits if offsets is None else lambda part: self.logits(part) + offsets
        return decoding.top_k(
            lambda k, budget: decoding.of_rows(logits, output, row_bytes, allowed, k, budget),
            output,
            self.n_labels,
            k,
            **options,
        )

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

    @property
    def _codeless(self) -> bool:
        return self.networks[0].codebook is None

    def _mean(self, scores: Iterable[Tensor]) -> Tensor:
        curves = zip(scores, self.calibrations, strict=True)
        mean: Tensor = mean_log_odds(
            tensors, ((each * slope).add_(intercept) for each, (slope, intercept) in curves)
        )
        return mean


def top_k(
    ensemble: Ensemble,
    X: Any,
    k: int,
    *,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
    gain: Gain | None = None,
    batch: int = BATCH,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Ids and scores of the k best labels of every row, `(n, min(k, n_labels))`.

    Parameters
    ----------
    ensemble : Ensemble
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), or TokenRows
        Scaled features, or the words of texts.
    k : int
    memory, allowed, threshold
        See `circlet.codebooks.decoding.top_k`; `allowed` is an array.
    gain : Gain, optional
        Rank labels by their gain instead of their score.
    batch : int
        Rows at a time.
    """
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed)).to(ensemble.device)
    check_ranking(ensemble.n_labels, memory, mask, threshold)
    find = ensemble.top_k if gain is None else partial(top_k_by_gain, ensemble, gain=gain)
    found = [
        find(output, k, memory=memory, allowed=mask, threshold=threshold)
        for output in outputs_of(ensemble, X, batch)
    ]
    if not found:
        empty = (0, min(k, ensemble.n_labels))
        return np.zeros(empty, dtype=np.int64), np.zeros(empty, dtype=np.float32)
    ids, scores = zip(*found, strict=True)
    return torch.cat(ids).cpu().numpy(), torch.cat(scores).cpu().numpy()


def score_blocks(ensemble: Ensemble, X: Any, batch: int = BATCH) -> Iterator[npt.NDArray[np.float32]]:
    """Scores of all labels, `(some rows, n_labels)` at a time; there is at least one block."""
    if not X.shape[0]:
        yield np.zeros((0, ensemble.n_labels), dtype=np.float32)
    for output in outputs_of(ensemble, X, min(batch, max(1, MEMORY // (12 * ensemble.n_labels)))):
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = ensemble.logits(output).cpu().numpy()
        yield scores


def outputs_of(ensemble: Ensemble, X: Any, size: int = BATCH) -> Iterator[Tensor]:
    """The outputs for rows, so many at a time."""
    ensemble.eval()
    size = min(size, TEXTS) if isinstance(X, TokenRows) else size
    for start in range(0, X.shape[0], size):
        # Not inference_mode, because codes that are cached here may be used in training later.
        with torch.no_grad():
            output = ensemble(as_batch(X[start : start + size]).to(ensemble.device))
        yield output
