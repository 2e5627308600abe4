"""Which labels are probable enough: what a threshold gives, and which one is best on held-out rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from circlet.settings.aim import Aim

__all__ = ["Curve", "best_threshold", "curve_of"]

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Precision, recall and F1 over all decisions, if all labels of at least a probability are predicted.

    Parameters
    ----------
    thresholds : ndarray
        Every probability that occurs, falling.
    precision, recall, f1 : ndarray
    """

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats


def curve_of(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int) -> Curve:
    """What every threshold gives.

    Parameters
    ----------
    chances : ndarray of shape (m,)
        Probabilities of labels that are predicted for some document.
    right : ndarray of shape (m,)
        Whether each is a label of its document.
    n_true : int
        How many labels the documents have, those that are not among the predicted ones included.
    """
    order = np.argsort(-chances, kind="stable")
    falling, found = chances[order].astype(np.float64), np.cumsum(right[order])
    # Labels of the same probability are predicted together.
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
    hits, predicted = found[last].astype(np.float64), last + 1.0
    return Curve(falling[last], hits / predicted, hits / max(n_true, 1), 2 * hits / (predicted + n_true))


def best_threshold(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int, aim: Aim) -> float | None:
    """The threshold that suits an aim best; None if nothing shows one. Parameters are those of `curve_of`.

    For a precision, it is the lowest threshold that reaches it; for a recall, the highest. Where none does, the
    one that comes closest. It lies halfway between the lowest probability that is predicted and the next one.
    """
    if not right.any():
        return None
    thresholds, precision, recall, f1 = curve_of(chances, right, n_true)
    if aim.measure == "f1" or aim.target is None:
        place = int(np.argmax(f1))
    elif aim.measure == "precision":
        reached = np.flatnonzero(precision >= aim.target)
        place = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    else:
        place = min(int(np.searchsorted(recall, aim.target)), len(recall) - 1)
        place = int(np.searchsorted(recall, recall[place]))  # no wrong label more than needed
    if place + 1 == len(thresholds):
        return float(thresholds[place])
    return float(thresholds[place] + thresholds[place + 1]) / 2
