"""Progress bars for a run of an experiment's cells: one for all cells, one for the epochs of the current cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from circlet.cli.console import err
from circlet.training import Reporter
from circlet_paper.cells import Cell, Watcher

if TYPE_CHECKING:
    from rich.progress import TaskID


class CellBars(Watcher):
    """A context manager around `run_cells`; without a terminal it prints only the notes."""

    def __init__(self) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self.all = self.bars.add_task("cells", total=None)

    def __enter__(self) -> CellBars:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def start(self, done: int, total: int) -> None:
        self.bars.update(self.all, total=total, completed=done)

    @contextmanager
    def begin(self, cell: Cell) -> Iterator[Reporter | None]:
        bar = self.bars.add_task(cell.name, total=None)
        try:
            yield _Epochs(self.bars, bar)
        finally:
            self.bars.remove_task(bar)

    def end(self, cell: Cell) -> None:
        self.bars.update(self.all, advance=1)

    def note(self, line: str) -> None:
        err.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


class _Epochs(Reporter):
    """Moves a bar forward after each epoch."""

    def __init__(self, bars: Progress, bar: TaskID) -> None:
        self.bars, self.bar = bars, bar

    def plan(self, epochs: int, members: int) -> None:
        self.bars.update(self.bar, total=epochs * members)

    def record(self, record: dict[str, Any]) -> None:
        self.bars.update(self.bar, completed=record["epoch"])
