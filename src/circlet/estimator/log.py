"""One log line per epoch."""

from __future__ import annotations

import logging
from typing import Any

from circlet.training import Reporter

__all__ = ["Log"]

logger = logging.getLogger("circlet.estimator")


class Log(Reporter):
    """Logs each epoch, at level INFO if `verbose`, else DEBUG."""

    def __init__(self, epochs: int, verbose: bool) -> None:
        self.epochs, self.level = epochs, logging.INFO if verbose else logging.DEBUG

    def record(self, record: dict[str, Any]) -> None:
        others = ("member", "epoch")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in record.items() if name not in others)
        member = f"member {record['member']}, " if "member" in record else ""
        logger.log(self.level, "%sepoch %d of %d: %s", member, record["epoch"], self.epochs, numbers)
