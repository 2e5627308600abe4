"""`history.json`: the record of a training run, an entry per epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.errors import DataError

__all__ = ["metrics_of", "read_history"]


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


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    """The metrics on validation rows in an epoch's record."""
    return {name: value for name, value in record.items() if "@" in name}
