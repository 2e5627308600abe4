"""Who is told how training goes."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

__all__ = ["Reporter", "StepsTaken"]

logger = logging.getLogger(__name__)


class StepsTaken(NamedTuple):
    """Some steps of training: how many, the sum of their losses, and the number of documents they learned from."""

    steps: int
    loss: float
    documents: int


class Reporter:
    """Told how training goes; the command line draws bars from it."""

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        """An epoch of `n_steps` steps begins, or goes on after a resume with `done` of them taken."""

    def step(self, taken: StepsTaken) -> None:
        """One step or a few have been taken."""

    def record(self, record: dict[str, Any]) -> None:
        """An epoch has ended, with these numbers."""
        logger.info("%s", record)
