"""One log line per epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from circlet.folder.history import metrics_of
from circlet.settings import Decision
from circlet.training import Reporter

__all__ = ["Log"]

logger = logging.getLogger("circlet.estimator")


class Log(Reporter):
    """Logs each epoch, at level INFO if `verbose`, else DEBUG."""

    def __init__(self, verbose: bool) -> None:
        self.epochs, self.level = 0, logging.INFO if verbose else logging.DEBUG

    def decided(self, decisions: Sequence[Decision]) -> None:
        for each in decisions:
            logger.log(self.level, "%s: %s, %s", each.name, each.shown, each.why)

    def plan(self, epochs: int, members: int) -> None:
        self.epochs = epochs

    def record(self, record: dict[str, Any]) -> None:
        shown = {name: record[name] for name in ("loss", "lr", "seconds", "documents_per_second")}
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in (shown | metrics_of(record)).items())
        member = f"member {record['member']}, " if "member" in record else ""
        logger.log(self.level, "%sepoch %d of %d: %s", member, record["epoch"], self.epochs, numbers)
