"""From label scores to decisions: thresholds, and rows that have exactly one class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.checks import check_share

__all__ = ["best", "cut", "shares"]


def cut(threshold: Any, calibration: tuple[float, float]) -> float:
    """The score whose calibrated probability is `threshold`."""
    check_share("threshold", threshold)
    slope, intercept = calibration
    with np.errstate(divide="ignore"):  # at 0 and 1, where it is infinite
        log_odds = np.log(threshold) - np.log1p(-float(threshold))
    least = float((log_odds - intercept) / slope)
    # No score is beyond single precision, and NumPy warns when it compares one with a finite number that is.
    return math.copysign(math.inf, least) if abs(least) > float(np.finfo(np.float32).max) else least


def shares(scores: npt.NDArray[np.float32], slope: float) -> npt.NDArray[np.float32]:
    """Probabilities of classes if exactly one is true: proportional to the odds of each class by itself."""
    log_odds = slope * scores.astype(np.float64)
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    found: npt.NDArray[np.float32] = (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


def best(
    chances: npt.NDArray[np.float32],
    k: int,
    allowed: npt.NDArray[np.bool_] | None,
    *,
    threshold: float = 0.0,
    weights: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Ids and probabilities of the k most probable classes, or of those with the highest probability × weight.

    Where `allowed` and `threshold` leave no class, the id is −1 and the probability 0.
    """
    values: npt.NDArray[Any] = chances if weights is None else chances * weights
    left = chances >= threshold if allowed is None else (chances >= threshold) & allowed
    values = np.where(left, values, -1)
    ids = np.argsort(-values, axis=1, kind="stable")[:, :k]
    none = np.take_along_axis(values, ids, axis=1) < 0
    return np.where(none, -1, ids), np.where(none, np.float32(0), np.take_along_axis(chances, ids, axis=1))
