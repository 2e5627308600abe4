"""Calibration: from a label's score to the probability that it is right, and the probability that is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import norm

from circlet.data.sparse import column_counts
from circlet.features.rows import ScaledRows, TokenRows
from circlet.metrics.decisions import best_threshold
from circlet.network import Ensemble
from circlet.network.ensemble import top_k
from circlet.settings.run import Aim
from circlet.training import CALIBRATION, THRESHOLD

__all__ = ["as_if_new", "calibrate", "calibration_record", "choose_threshold"]

#: So many labels of each row, the best ones, can be predicted when a threshold is chosen.
DEPTH = 100


def calibrate(ensemble: Ensemble, X: Any, Y: sp.csr_matrix, *, depth: int = 10) -> tuple[float, float]:
    """Platt's scaling: slope and intercept of the logistic curve from score to probability.

    It is fitted on the `depth` best labels of each held-out row, since nobody asks for the probability of others.
    As in Platt's paper, the target for n right labels is (n + 1) / (n + 2) instead of 1, and likewise for wrong
    ones, so that a few rows never make anything certain.
    """
    ids, scores = top_k(ensemble, X, depth)
    right = _are_right(Y, ids)
    if right.all() or not right.any():
        return 1.0, 0.0
    n_right = int(right.sum())
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    slope, intercept = _logistic_curve(scores.ravel().astype(np.float64), target)
    # A falling curve would reverse the ranking, and means that there was nothing to learn.
    return (slope, intercept) if slope > 0 else (1.0, 0.0)


def choose_threshold(
    ensemble: Ensemble, X: Any, Y: sp.csr_matrix, curve: tuple[float, float], aim: str
) -> float | None:
    """The probability from which on labels should be predicted, by held-out rows; None if they don't show one."""
    ids, scores = top_k(ensemble, X, DEPTH)
    chances = _sigmoid(curve[0] * scores.astype(np.float64) + curve[1])
    return best_threshold(chances.ravel(), _are_right(Y, ids), int(Y.nnz), Aim.of(aim))


def calibration_record(ensemble: Ensemble, X: Any, Y: sp.csr_matrix, aim: str) -> dict[str, Any]:
    """The calibration and the threshold by held-out rows, as the record of an epoch has them."""
    curve = calibrate(ensemble, X, Y)
    return {CALIBRATION: list(curve), THRESHOLD: choose_threshold(ensemble, X, Y, curve, aim)}


def _are_right(Y: sp.csr_matrix, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each of the ids, `(n, k)`, is a label of its row; flat."""
    rows = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
    found: npt.NDArray[np.bool_] = np.asarray(Y[rows.ravel(), ids.ravel()]).ravel() > 0
    return found


def _logistic_curve(x: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Slope and intercept of the logistic curve with the least cross-entropy, by Newton's method.

    For two numbers it needs a few steps, which take less time than importing scikit-learn.
    """
    center, spread = float(x.mean()), float(x.std()) or 1.0
    inputs = np.stack([(x - center) / spread, np.ones_like(x)])
    curve = np.array([0.0, np.log(target.mean() / (1 - target.mean()))])
    loss = _cross_entropy(curve @ inputs, target)
    for _ in range(100):
        chance = _sigmoid(curve @ inputs)
        gradient = inputs @ (chance - target)
        # A little of the identity, since the scores may all be equal.
        curvature = (inputs * (chance * (1 - chance))) @ inputs.T + 1e-9 * np.eye(2)
        step, before = np.linalg.solve(curvature, gradient), loss
        # Far from the minimum, a whole step may go too far.
        while (loss := _cross_entropy((curve - step) @ inputs, target)) > before and np.abs(step).max() > 1e-12:
            step /= 2
        curve -= step
        if before - loss <= 1e-12 * before:
            break
    return float(curve[0] / spread), float(curve[1] - curve[0] * center / spread)


def _sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    chances: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0, -x))
    return chances


def _cross_entropy(logits: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> float:
    return float((np.logaddexp(0, logits) - target * logits).sum())


def as_if_new(rows: Any, held_out: npt.NDArray[np.int64]) -> Any:
    """Rows that are held out, without the features that no other row has, as new documents would come.

    A vectorizer that has seen all texts knows all their words, and no network has learned anything about words
    that only held-out texts have. What is left of a row keeps the row's length.
    """
    own = rows[held_out]
    if isinstance(rows, TokenRows):
        return own.forgetting((rows.counts() == own.counts())[own.ids])
    if not sp.issparse(own) or isinstance(rows, ScaledRows):
        return own
    unseen = column_counts(rows) == column_counts(own)
    lengths = norm(own, axis=1)
    own = own.copy()
    own.data[unseen[own.indices]] = 0
    own.eliminate_zeros()
    left = norm(own, axis=1)
    scale = np.divide(lengths, left, out=np.ones_like(lengths), where=left > 0)
    own.data *= np.repeat(scale, np.diff(own.indptr)).astype(own.dtype)
    return own
