"""How training reports its progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from circlet.settings import Decision

if TYPE_CHECKING:
    from circlet.data import Dataset

__all__ = ["Reporter", "StepsTaken"]

logger = logging.getLogger(__name__)


class StepsTaken(NamedTuple):
    """One or more training steps: how many, the sum of their losses, and the number of documents in them."""

    steps: int
    loss: float
    documents: int


class Reporter:
    """Receives the progress of training and logs each epoch; the command line's subclass draws bars."""

    def begins(self, dataset: Dataset, labels: int, *, new: int | None = None, processes: int = 1) -> None:
        """Called when the documents of a run have been read.

        Parameters
        ----------
        dataset : Dataset
        labels : int
            How many the model will have.
        new : int, optional
            How many of these a finished model did not know, if one is trained further.
        processes : int
            How many train together.
        """

    @contextmanager
    def timed(self, stage: str, **about: Any) -> Iterator[None]:
        """Tell `stage` how long the body took, unless it fails."""
        started = time.perf_counter()
        yield
        self.stage({"stage": stage, **about, "seconds": round(time.perf_counter() - started, 3)})

    def stage(self, record: dict[str, Any]) -> None:
        """Called after each stage of a run, with its name and seconds, and the member if there are several."""

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

    def calibration_run(self, documents: int) -> None:
        """Called before a network is trained only to calibrate the next one, which learns from all documents."""

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        """Called after it, with its metrics on held-out rows."""
        logger.info("calibration run: %s", metrics)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        """Called when an epoch of `n_steps` steps begins, or is resumed after `done` of them."""

    def step(self, taken: StepsTaken) -> None:
        """Called after one or more steps."""

    def record(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its numbers."""
        logger.info("%s", record)

    def indexing(self, done: int, total: int) -> None:
        """Called while documents are added to the index of a model, with how many already are."""
