"""Calibration: map a label's score to the probability that the label is right, and choose the threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.metrics.measures import best_threshold
from circlet.network import Ensemble
from circlet.network.network import top_k
from circlet.settings.run import ThresholdGoal
from circlet.training import CALIBRATION, THRESHOLD


def calibrate(ensemble: Ensemble, X: Any, Y: sp.csr_matrix, *, depth: int = 10) -> tuple[float, float]:
    """Fit Platt's scaling: slope and intercept of the logistic curve from score to probability.

    The curve is fitted on the `depth` best labels of each held-out row, since other labels are hardly ever shown.
    As in Platt's paper, the target for n right labels is (n + 1) / (n + 2) instead of 1, and likewise for wrong
    labels, so that a few rows never give a probability of 0 or 1.
    """
    ids, scores = top_k(ensemble, X, depth)
    right = _are_right(Y, ids)
    if right.all() or not right.any():
        return 1.0, 0.0
    n_right = int(right.sum())
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    slope, intercept = _logistic_curve(scores.ravel().astype(np.float64), target)
    # A falling curve would reverse the ranking; it means that the network learned nothing.
    return (slope, intercept) if slope > 0 else (1.0, 0.0)


def choose_threshold(
    ensemble: Ensemble, X: Any, Y: sp.csr_matrix, curve: tuple[float, float], goal: str
) -> float | None:
    """Choose the probability threshold for predicting labels on held-out rows; None if they show none."""
    ids, scores = top_k(ensemble, X, 100)  # of other labels, hardly any is ever predicted
    chances = _sigmoid(curve[0] * scores.astype(np.float64) + curve[1])
    return best_threshold(chances.ravel(), _are_right(Y, ids), int(Y.nnz), ThresholdGoal.of(goal))


def calibration_record(ensemble: Ensemble, X: Any, Y: sp.csr_matrix, goal: str) -> dict[str, Any]:
    """Compute calibration and threshold on held-out rows, as entries for an epoch's record."""
    curve = calibrate(ensemble, X, Y)
    return {CALIBRATION: list(curve), THRESHOLD: choose_threshold(ensemble, X, Y, curve, goal)}


def _are_right(Y: sp.csr_matrix, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each of the ids, `(n, k)`, is a label of its row; flattened."""
    rows = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
    found: npt.NDArray[np.bool_] = np.asarray(Y[rows.ravel(), ids.ravel()]).ravel() > 0
    return found


def _logistic_curve(x: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Fit slope and intercept of a logistic curve by Newton's method, minimizing the cross-entropy.

    For two numbers this takes a few steps, and less time than importing scikit-learn.
    """
    center, spread = float(x.mean()), float(x.std()) or 1.0
    inputs = np.stack([(x - center) / spread, np.ones_like(x)])
    curve = np.array([0.0, np.log(target.mean() / (1 - target.mean()))])
    loss = _cross_entropy(curve @ inputs, target)
    for _ in range(100):
        chance = _sigmoid(curve @ inputs)
        gradient = inputs @ (chance - target)
        # A small multiple of the identity makes the matrix invertible if all scores are equal.
        curvature = (inputs * (chance * (1 - chance))) @ inputs.T + 1e-9 * np.eye(2)
        step, before = np.linalg.solve(curvature, gradient), loss
        # Far from the minimum, a full step may overshoot.
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
