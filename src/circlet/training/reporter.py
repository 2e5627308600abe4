"""The interface by which training reports its progress."""

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
    """One or more training steps: their number, the sum of their losses, and the number of documents."""

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
            Number of labels that the model will have.
        new : int, optional
            Number of new labels, if a finished model is trained further.
        processes : int
            Number of processes that train together.
        """

    @contextmanager
    def timed(self, stage: str, **about: Any) -> Iterator[None]:
        """Measure the time of the body and report it by `stage`, unless the body fails."""
        started = time.perf_counter()
        yield
        self.stage({"stage": stage, **about, "seconds": round(time.perf_counter() - started, 3)})

    def stage(self, record: dict[str, Any]) -> None:
        """Called after each stage of a run, with its name and seconds, and the member if there are several."""

    def member(self, number: int) -> None:
        """Called before each of several networks is trained; `number` starts from 0."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called before training, with the settings that were decided from the data."""
        for each in decisions:
            logger.info("%s: %s (%s)", each.name, each.value, each.why)

    def plan(self, epochs: int, members: int) -> None:
        """Called before training, with the number of networks and the maximum number of epochs of each.

        If held-out rows are added in the end, a short epoch with that number follows, which has no record.
        """

    def calibration_run(self, documents: int) -> None:
        """Called before a calibration run: its network is trained only to calibrate the next one."""

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        """Called after a calibration run, with the metrics on held-out rows."""
        logger.info("calibration run: %s", metrics)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        """Called when an epoch of `n_steps` steps begins, or is resumed after `done` of them."""

    def step(self, taken: StepsTaken) -> None:
        """Called after one or more steps."""

    def record(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its record."""
        logger.info("%s", record)

    def indexing(self, done: int, total: int) -> None:
        """Called while documents are added to a model's index, with the number added so far."""
