"""`history.json`: the record of a training run, an entry per epoch; and what it says about smaller copies.

A model that has learned from all its rows has none to measure on. But before it, a network of the same sizes was
trained without some rows, a calibration run, and rounding its weights cost it some points of `METRIC` on these.
The history has that in the last record of each network, as `lost`: pairs of a coarseness (see
`circlet.folder.deflated.rounded`) and points, from fine to coarse.

With a few hundred rows, each of these numbers is off by a tenth of a point or so. Rounding errors grow with the
step, and what is lost grows with their squares, so one curve through all of them is known much better.
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

#: In the record of an epoch: that it was the best on held-out rows, and that its weights are the model's.
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
    """The records of the epochs that were chosen, one for each network; none if the last epochs' weights count.

    Held-out rows that join in the end choose nothing, nor do those of a calibration run, nor do epochs of further
    training, which are not validated.
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
    """The metrics on validation rows in an epoch's record."""
    return {name: value for name, value in record.items() if "@" in name}


#: What is compared.
METRIC = "nDCG@5"
#: The name of the entry.
LOST = "lost"


class Curve(NamedTuple):
    """Points that are lost by coarseness: a multiple of its square.

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
        """Points that this coarseness loses."""
        return self.factor * coarseness**2

    def coarsest(self, loss: float) -> float:
        """The largest coarseness that loses at most so many points, among those that something is known about."""
        return self.most if loss >= self.at(self.most) else math.sqrt(loss / self.factor)


def curve_of(path: Path, history: list[dict[str, Any]]) -> Curve | None:
    """The curve of a model with this history, which was read from `path`; None if it had no calibration run.

    Nor does a model have one that was trained further: that changes its weights, and the calibration run did not
    see it. Of several networks, the one that loses most counts: together they hardly lose more.
    """
    last = {record.get("member", 1): record for record in history}.values()
    if not last or any(LOST not in record for record in last):
        return None
    curves = [_curve(path, record[LOST]) for record in last]
    return Curve(max(curve.factor for curve in curves), min(curve.most for curve in curves))


def _curve(path: Path, pairs: Any) -> Curve:
    """The curve with the least squared distance from these pairs."""
    valid = isinstance(pairs, list) and pairs and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not valid or not all(is_real(x) and 0 < x < 1e6 and is_real(y) for x, y in pairs):
        raise DataError(f"{path}: found damaged `{LOST}`; wanted pairs of coarseness and points")
    coarseness, lost = np.array(pairs, dtype=np.float64).T
    factor = float((lost * coarseness**2).sum() / (coarseness**4).sum())
    return Curve(max(0.0, factor), float(coarseness.max()))
