"""From rows to the best labels or to the scores of all labels: for prediction, validation and calibration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet.checks import check_ranking
from circlet.codebooks.decoding import MEMORY
from circlet.features.rows import TokenRows
from circlet.network import gain as gains
from circlet.network.batch import as_batch, label_sets
from circlet.network.ensemble import Ensemble
from circlet.network.network import Network

__all__ = ["mean_loss", "score_blocks", "top_k"]

#: Documents at a time, and texts that are read word by word, each of which takes far more memory.
BATCH, TEXTS = 1024, 128


def top_k(
    network: Network | Ensemble,
    X: Any,
    k: int,
    *,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
    gain: gains.Gain | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Ids and scores of the k best labels of every row, `(n, min(k, n_labels))`.

    Parameters
    ----------
    network : Network or Ensemble
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), or TokenRows
        Scaled features, or the words of texts.
    k : int
    memory, allowed, threshold
        See `circlet.codebooks.decoding.top_k`; `allowed` is an array.
    gain : Gain, optional
        Rank labels by their gain instead of their score.
    """
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed)).to(network.device)
    check_ranking(network.n_labels, memory, mask, threshold)
    scorer = network.scorer
    find = scorer.top_k if gain is None else partial(gains.top_k, scorer, gain=gain)
    found = [
        find(output, k, memory=memory, allowed=mask, threshold=threshold) for output in _outputs(network, X, BATCH)
    ]
    if not found:
        empty = (0, min(k, network.n_labels))
        return np.zeros(empty, dtype=np.int64), np.zeros(empty, dtype=np.float32)
    ids, scores = zip(*found, strict=True)
    return torch.cat(ids).cpu().numpy(), torch.cat(scores).cpu().numpy()


def mean_loss(network: Network, X: Any, Y: sp.csr_matrix) -> float:
    """The mean loss of rows with these labels."""
    total, start = 0.0, 0
    for output in _outputs(network, X, BATCH):
        labels = label_sets(Y[start : start + len(output)]).to(network.device)
        start += len(output)
        with torch.no_grad():
            total += float(network.loss(output, labels)) * len(labels)
    return total / max(int(X.shape[0]), 1)


def score_blocks(network: Network | Ensemble, X: Any) -> Iterator[npt.NDArray[np.float32]]:
    """Scores of all labels, `(some rows, n_labels)` at a time; there is at least one block."""
    if not X.shape[0]:
        yield np.zeros((0, network.n_labels), dtype=np.float32)
    for output in _outputs(network, X, min(BATCH, max(1, MEMORY // (12 * network.n_labels)))):
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = network.scorer.logits(output).cpu().numpy()
        yield scores


def _outputs(network: Network | Ensemble, X: Any, size: int) -> Iterator[Tensor]:
    network.eval()
    size = min(size, TEXTS) if isinstance(X, TokenRows) else size
    for start in range(0, X.shape[0], size):
        # Not inference_mode, because codes that are cached here may be used in training later.
        with torch.no_grad():
            output: Tensor = network(as_batch(X[start : start + size]).to(network.device))
        yield output.float()
