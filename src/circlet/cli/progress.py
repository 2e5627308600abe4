"""The progress of training: a live bar on a terminal, and a line per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circlet.cli.console import Bar, err
from circlet.folder.history import metrics_of
from circlet.settings import Decision
from circlet.training import Reporter, StepsTaken


class TrainingBar(Reporter):
    """A progress bar, used as a context manager around training: one for all epochs of all members."""

    def __init__(self, name: str = "", *, quiet: bool = False) -> None:
        self.name, self.quiet = f"{name} " if name else "", quiet
        self.epochs, self.members, self.now = 0, 1, 0
        self.rehearsing = False
        self.bar = Bar()
        self.documents = 0

    def __enter__(self) -> TrainingBar:
        self.bar.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self.bar.__exit__(*ended)

    def decided(self, decisions: Sequence[Decision]) -> None:
        if decisions and not self.quiet:
            values = ", ".join(f"{each.name.replace('_', '-')} {each.shown}" for each in decisions)
            err.print(f"decided from the data: {values}", highlight=False, soft_wrap=True)
            for each in decisions:
                if each.tried:
                    err.print(f"{each.name.replace('_', '-')}: {each.why}", highlight=False, soft_wrap=True)

    def plan(self, epochs: int, members: int) -> None:
        self.epochs, self.members = epochs, members

    def member(self, number: int) -> None:
        self.now = number

    def rehearsal(self, documents: int) -> None:
        self.rehearsing = True
        if not self.quiet:
            text = f"{self._of(self.now + 1)}rehearsal: {documents:,} documents, to calibrate on the others"
            err.print(text, highlight=False)

    def rehearsed(self, metrics: dict[str, float]) -> None:
        self.rehearsing = False
        if not self.quiet:
            numbers = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics.items())
            err.print(f"{self._of(self.now + 1)}rehearsed{numbers}; now all documents", highlight=False)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        what = f"epoch {number + 1}/{self.epochs}" if number < self.epochs else "held-out rows join"
        self.bar.update(
            total=self.members * self.epochs * n_steps,
            completed=(self.now * self.epochs + number) * n_steps + done,
            description=f"{self._of(self.now + 1)}{'rehearsal, ' if self.rehearsing else ''}{what}",
        )

    def step(self, taken: StepsTaken) -> None:
        self.documents += taken.documents
        speed = f"{self.documents / max(self.bar.seconds, 1e-9):,.0f} documents/s"
        self.bar.update(advance=taken.steps, numbers=f"loss {taken.loss / taken.steps:.4g}  {speed}")

    def record(self, record: dict[str, Any]) -> None:
        if self.quiet or self.rehearsing:
            return
        metrics = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        err.print(
            f"{self._of(record.get('member', 1))}epoch {record['epoch']:>3}/{self.epochs}  "
            f"loss {record['loss']:.4g}{metrics}  {record['documents_per_second']:,} documents/s",
            highlight=False,
        )

    def _of(self, member: int) -> str:
        """What is trained, in words before its epochs; members are numbered from 1."""
        return f"{self.name}member {member}/{self.members}, " if self.members > 1 else self.name
