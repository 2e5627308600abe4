"""`history.json`: the record of a training run, an entry per epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.errors import DataError

__all__ = ["KEPT", "kept_epochs", "metrics_of", "read_history"]

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

    Held-out rows that join in the end choose nothing, nor do those of a rehearsal, nor do epochs of further
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
