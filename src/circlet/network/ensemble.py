"""The networks of a model as one: from rows to the best labels or to the scores of all labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.checks import check_ranking
from circlet.encoders import RowPairs, TextRows
from circlet.network.batch import as_batch
from circlet.network.network import Network
from circlet.scoring import scorers
from circlet.scoring.arrays import MEMORY
from circlet.scoring.ranking import Gain
from circlet.storage.network_spec import member_prefix

__all__ = ["Ensemble", "outputs_of", "score_blocks", "top_k"]

#: The slope and intercept of scores that are log-odds already.
PLAIN = (1.0, 0.0)
#: Documents at a time, and texts that an encoder reads, each of which takes far more memory.
BATCH, TEXTS = 1024, 128


class Ensemble(scorers.Ensemble):
    """Networks that score the same labels.

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
        super().__init__(
            [network.scorer for network in self.networks], list(calibrations or [PLAIN] * len(networks))
        )

    def __call__(self, batch: Any) -> list[Tensor]:
        """The output of each network for a batch."""
        return [network(batch).float() for network in self.networks]

    top_k = torch.no_grad()(scorers.Ensemble.top_k)

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
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), RowPairs or TextRows
        Scaled features, rows of an encoder of texts, or both.
    k : int
    memory, allowed, threshold
        See `circlet.scoring.ranking.top_k`; `allowed` is an array.
    gain : Gain, optional
        Rank labels by their gain instead of their score.
    batch : int
        Rows at a time.
    """
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed)).to(ensemble.device)
    check_ranking(ensemble.n_labels, memory, mask, threshold)
    found = [
        ensemble.top_k(outputs, k, gain=gain, memory=memory, allowed=mask, threshold=threshold)
        for outputs in outputs_of(ensemble, X, batch)
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
    for outputs in outputs_of(ensemble, X, min(batch, max(1, MEMORY // (12 * ensemble.n_labels)))):
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = ensemble.logits(outputs).cpu().numpy()
        yield scores


def outputs_of(ensemble: Ensemble, X: Any, size: int = BATCH) -> Iterator[list[Tensor]]:
    """The outputs of each network for rows, so many at a time."""
    ensemble.eval()
    size = min(size, TEXTS) if isinstance(X, (RowPairs, TextRows)) else size
    for start in range(0, X.shape[0], size):
        # Not inference_mode, because codes that are cached here may be used in training later.
        with torch.no_grad():
            outputs = ensemble(as_batch(X[start : start + size]).to(ensemble.device))
        yield outputs
