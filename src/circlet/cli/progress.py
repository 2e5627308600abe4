"""The progress of training on a terminal: a live bar, and a line per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circlet.cli.console import Bar, say
from circlet.data import Dataset
from circlet.settings import Decision
from circlet.settings.run import FEWEST_TO_SPLIT
from circlet.storage.contents import metrics_of
from circlet.training import Reporter, StepsTaken


class TrainingBar(Reporter):
    """One progress bar for all epochs of all members; a context manager around training."""

    def __init__(self, name: str = "", *, quiet: bool = False) -> None:
        self.name, self.quiet = f"{name} " if name else "", quiet
        self.epochs, self.members, self.now = 0, 1, 0
        #: The finished stages, with their seconds.
        self.stages: list[dict[str, Any]] = []
        self.calibrating = False
        self.bar = Bar()
        self.documents = 0

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *ended: object) -> None:
        self.bar.__exit__(*ended)

    def begins(self, dataset: Dataset, labels: int, *, new: int | None = None, processes: int = 1) -> None:
        several, n = f", {processes} processes" if processes > 1 else "", dataset.train.n
        say(f"{dataset.name}: {dataset.format}; {n:,} documents, {labels:,} labels{several}")
        if new is None and n < FEWEST_TO_SPLIT:
            say(
                f"found {n} documents, too few to hold any out, so nothing shows how good the model is; wanted at "
                f"least {FEWEST_TO_SPLIT}, better some hundred",
                "yellow",
            )
        if new is None and labels == 1:
            say("found only one label, which every document will get; wanted two or more", "yellow")

    def stage(self, record: dict[str, Any]) -> None:
        self.stages.append(record)

    def decided(self, decisions: Sequence[Decision]) -> None:
        if decisions and not self.quiet:
            values = ", ".join(f"{each.name.replace('_', '-')} {each.shown}" for each in decisions)
            say(f"decided from the data: {values}")
            for each in decisions:
                if each.tried:
                    say(f"{each.name.replace('_', '-')}: {each.why}")

    def plan(self, epochs: int, members: int) -> None:
        self.epochs, self.members = epochs, members
        self.bar.start()

    def member(self, number: int) -> None:
        self.now = number

    def calibration_run(self, documents: int) -> None:
        self.calibrating = True
        if not self.quiet:
            say(f"{self._of(self.now + 1)}calibration run: {documents:,} documents, to calibrate on the others")

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        self.calibrating = False
        if not self.quiet:
            numbers = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics.items())
            say(f"{self._of(self.now + 1)}calibrated{numbers}; now all documents")

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        what = f"epoch {number + 1}/{self.epochs}" if number < self.epochs else "adding held-out rows"
        self.bar.update(
            total=self.members * self.epochs * n_steps,
            completed=(self.now * self.epochs + number) * n_steps + done,
            description=f"{self._of(self.now + 1)}{'calibration run, ' if self.calibrating else ''}{what}",
        )

    def step(self, taken: StepsTaken) -> None:
        self.documents += taken.documents
        speed = f"{self.documents / max(self.bar.seconds, 1e-9):,.0f} documents/s"
        self.bar.update(advance=taken.steps, numbers=f"loss {taken.loss / taken.steps:.4g}  {speed}")

    def record(self, record: dict[str, Any]) -> None:
        if self.quiet or self.calibrating:
            return
        metrics = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        say(
            f"{self._of(record.get('member', 1))}epoch {record['epoch']:>3}/{self.epochs}  "
            f"loss {record['loss']:.4g}{metrics}  {record['documents_per_second']:,} documents/s"
        )

    def indexing(self, done: int, total: int) -> None:
        self.bar.update(total=total, completed=done, description="indexing documents", numbers="")

    def _of(self, member: int) -> str:
        """The start of a line about a member, counted from 1."""
        return f"{self.name}member {member}/{self.members}, " if self.members > 1 else self.name
