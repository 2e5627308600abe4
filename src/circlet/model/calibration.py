"""Calibration: the logistic curve from a label's score to the probability that the label is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.network import Ensemble, Network
from circlet.network.inference import top_k

__all__ = ["calibrate"]


def calibrate(network: Network | Ensemble, X: Any, Y: sp.csr_matrix, *, depth: int = 50) -> tuple[float, float]:
    """Platt's scaling: slope and intercept of the logistic curve from score to probability.

    It is fitted on the `depth` best labels of each held-out row, since nobody asks for the probability of others.
    As in Platt's paper, the target for n right labels is (n + 1) / (n + 2) instead of 1, and likewise for wrong
    ones, so that a few rows never make anything certain.
    """
    from sklearn.linear_model import LogisticRegression

    ids, scores = top_k(network, X, depth)
    rows = np.arange(len(ids))[:, None]
    right = np.asarray(Y[np.broadcast_to(rows, ids.shape).ravel(), ids.ravel()]).ravel() > 0
    if right.all() or not right.any():
        return 1.0, 0.0
    n_right = int(right.sum())
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    both = np.tile(scores.reshape(-1, 1), (2, 1)), np.repeat([True, False], right.size)
    curve = LogisticRegression(C=1e6).fit(*both, sample_weight=np.concatenate([target, 1 - target]))
    slope, intercept = float(curve.coef_[0, 0]), float(curve.intercept_[0])
    # A falling curve would reverse the ranking, and means that there was nothing to learn.
    return (slope, intercept) if slope > 0 else (1.0, 0.0)
