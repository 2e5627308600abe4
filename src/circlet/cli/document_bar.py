"""The progress of tagging: a bar on a terminal, if it takes longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from circlet.cli.console import err

#: Seconds before the bar appears.
DELAY = 1.0


class DocumentBar:
    """How far the input is read, and how many documents have their labels; a context manager.

    Parameters
    ----------
    shown : bool
        False for no bar at all.
    clock : callable
        The time in seconds.

    Attributes
    ----------
    total : int or None
        Size of the input in the unit of `advance`; None if it is not known.
    """

    def __init__(self, *, shown: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.total: int | None = None
        self.read = self.documents = 0
        self.bars = Progress(
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not (shown and err.is_terminal),
            redirect_stdout=False,  # it would send the results to the bar's console
        )
        self.bar = self.bars.add_task("", total=None, numbers="")

    def __enter__(self) -> DocumentBar:
        self._started = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars.live.is_started:
            self.bars.stop()

    def advance(self, amount: int) -> None:
        """Count what has been read; the bar moves when documents are done."""
        self.read += amount

    def done(self, documents: int) -> None:
        """Count documents that have their labels, and show the numbers."""
        self.documents += documents
        elapsed = self._clock() - self._started
        speed = f"{self.documents:,} documents  {self.documents / max(elapsed, 1e-9):,.0f} documents/s"
        self.bars.update(self.bar, total=self.total, completed=self.read, numbers=speed)
        if elapsed >= DELAY:
            self.bars.start()
