"""The progress of training: a live bar on a terminal, and a line per epoch."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from circlet.cli.console import err
from circlet.training import Reporter, StepsTaken


class TrainingBar(Reporter):
    """A progress bar, used as a context manager around training."""

    def __init__(self, epochs: int, name: str = "", *, quiet: bool = False) -> None:
        self.epochs, self.name, self.quiet = epochs, f"{name} " if name else "", quiet
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self.bar = self.bars.add_task("", total=None, numbers="")
        self.documents = 0

    def __enter__(self) -> TrainingBar:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        self.bars.update(
            self.bar,
            total=self.epochs * n_steps,
            completed=number * n_steps + done,
            description=f"{self.name}epoch {number + 1}/{self.epochs}",
        )

    def step(self, taken: StepsTaken) -> None:
        self.documents += taken.documents
        elapsed = self.bars.tasks[0].elapsed or 0
        speed = f"{self.documents / elapsed:,.0f} documents/s" if elapsed else ""
        self.bars.update(self.bar, advance=taken.steps, numbers=f"loss {taken.loss / taken.steps:.4g}  {speed}")

    def record(self, record: dict[str, Any]) -> None:
        if self.quiet:
            return
        others = ("epoch", "loss", "lr", "seconds", "documents_per_second")
        metrics = "".join(f"  {name} {100 * value:.2f}" for name, value in record.items() if name not in others)
        err.print(
            f"{self.name}epoch {record['epoch']:>3}/{self.epochs}  loss {record['loss']:.4g}{metrics}  "
            f"{record['documents_per_second']:,} documents/s",
            highlight=False,
        )
