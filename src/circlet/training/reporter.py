"""How training reports its progress."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from circlet.settings import Decision

__all__ = ["Reporter", "StepsTaken"]

logger = logging.getLogger(__name__)


class StepsTaken(NamedTuple):
    """One or more training steps: how many, the sum of their losses, and the number of documents in them."""

    steps: int
    loss: float
    documents: int


class Reporter:
    """Receives the progress of training and logs each epoch; the command line's subclass draws bars."""

    def member(self, number: int) -> None:
        """Called before each of several networks is trained, which are numbered from 0."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called before training, with the settings that were decided from the data."""
        for each in decisions:
            logger.info("%s: %s (%s)", each.name, each.value, each.why)

    def plan(self, epochs: int, members: int) -> None:
        """Called before training: each of so many networks is trained for so many epochs, or fewer.

        If held-out rows join in the end, a short epoch of that number follows, which has no record.
        """

    def rehearsal(self, documents: int) -> None:
        """Called before a network is trained only to calibrate the next one, which learns from all documents."""

    def rehearsed(self, metrics: dict[str, float]) -> None:
        """Called after it, with its metrics on held-out rows."""
        logger.info("rehearsal: %s", metrics)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        """Called when an epoch of `n_steps` steps begins, or is resumed after `done` of them."""

    def step(self, taken: StepsTaken) -> None:
        """Called after one or more steps."""

    def record(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its numbers."""
        logger.info("%s", record)
