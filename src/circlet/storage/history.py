"""`history.json`: the record of a training run, one entry per epoch, and the expected loss of smaller copies.

A model trained on all rows has no rows left to measure on. Before it, a calibration run trained a network of the
same size without some rows, and measured on these how many points of `METRIC` rounding its weights loses. The last
record of each network has the result as `lost`: pairs of a coarseness (see
`circlet.storage.packed_weights.rounded`) and points, from fine to coarse.

With a few hundred rows, each measurement has an error of about a tenth of a point. Rounding errors grow with the
step, and the loss grows with their square, so one curve through all points is much more accurate.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.errors import DataError

__all__ = ["KEPT", "LOST", "METRIC", "Curve", "curve_of", "kept_epochs", "metrics_of", "read_history"]

#: Marks the record of the epoch whose weights the model has: the best one on held-out rows.
KEPT = "kept"


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the records of all epochs."""
    history = files.read_json(path)
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise DataError(f"{path}: found no history; wanted a list with a record per epoch")
    for number, record in enumerate(history, 1):
        counts = [record.get("epoch"), record.get("member", 1)]
        measures = [value for name, value in record.items() if name == "loss" or "@" in name]
        if not all(is_integer(count, 1) for count in counts) or not all(map(is_real, measures)):
            raise DataError(
                f"{path}: found a damaged record, number {number}; wanted an epoch, and finite numbers"
            )
    return history


def kept_epochs(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the chosen epochs, one per network; none if the model has the last epochs' weights.

    No epoch is chosen if held-out rows are trained on in the end, in a calibration run, or in further training,
    which is not validated.
    """
    last = {record.get("member", 1): record["epoch"] for record in history}
    chosen = {record.get("member", 1): record for record in history if record.get(KEPT) is True}
    further = any(
        not metrics_of(record) and "validation_loss" not in record
        for record in history
        if last[record.get("member", 1)] == record["epoch"]
    )
    return [] if further or chosen.keys() != last.keys() else list(chosen.values())


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    """Return the metrics on validation rows in an epoch's record."""
    return {name: value for name, value in record.items() if "@" in name}


#: The metric of the curve.
METRIC = "nDCG@5"
#: The key of the measurements in a record.
LOST = "lost"


class Curve(NamedTuple):
    """Points lost as a function of coarseness: ``factor * coarseness ** 2``.

    Parameters
    ----------
    factor : float
        At least 0.
    most : float
        The largest coarseness that was tried.
    """

    factor: float
    most: float

    def at(self, coarseness: float) -> float:
        """Return the points that this coarseness loses."""
        return self.factor * coarseness**2

    def coarsest(self, loss: float) -> float:
        """Return the largest coarseness up to `most` that loses at most `loss` points."""
        return self.most if loss >= self.at(self.most) else math.sqrt(loss / self.factor)


def curve_of(path: Path, history: list[dict[str, Any]]) -> Curve | None:
    """Fit the curve of a model with this history, read from `path`; None if it had no calibration run.

    A model that was trained further has no curve either, since the calibration run measured other weights. Of
    several networks, the one that loses most counts: together they hardly lose more.
    """
    last = {record.get("member", 1): record for record in history}.values()
    if not last or any(LOST not in record for record in last):
        return None
    curves = [_curve(path, record[LOST]) for record in last]
    return Curve(max(curve.factor for curve in curves), min(curve.most for curve in curves))


def _curve(path: Path, pairs: Any) -> Curve:
    """Fit the curve to these pairs by least squares."""
    valid = isinstance(pairs, list) and pairs and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not valid or not all(is_real(x) and 0 < x < 1e6 and is_real(y) for x, y in pairs):
        raise DataError(f"{path}: found damaged `{LOST}`; wanted pairs of coarseness and points")
    coarseness, lost = np.array(pairs, dtype=np.float64).T
    factor = float((lost * coarseness**2).sum() / (coarseness**4).sum())
    return Curve(max(0.0, factor), float(coarseness.max()))
