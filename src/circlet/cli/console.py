"""Where commands print: results to `out`, everything else to `err`; their progress bar, and pictures of --plot."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import typer
from rich.console import Console

from circlet import files
from circlet.checks import require
from circlet.errors import OutputError, ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.progress import Task

AnyBar = TypeVar("AnyBar", bound="Bar")
out = Console()
err = Console(stderr=True)


def occupy_closed_streams() -> None:
    """Keep the numbers of standard streams that are closed from files opened later.

    A library that writes to standard error would write into a model's file otherwise.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def give_up(stream: TextIO) -> None:
    """Throw away what could not be written: Python would try it again when it exits, and fail again."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


@contextmanager
def explained_stdout() -> Iterator[None]:
    """End the command quietly if nobody reads its output anymore; other faults are one clear error."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        # Windows has no error of its own for a closed pipe.
        if isinstance(error, BrokenPipeError) or (os.name == "nt" and error.errno == errno.EINVAL):
            raise typer.Exit from error
        raise OutputError(f"cannot write to standard output: {error.strerror or error}") from error


class Stdout:
    """Standard output, or None if it is closed; its faults are `explained_stdout`'s, whoever prints to it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def isatty(self) -> bool:
        return self.stream is not None and bool(self.stream.isatty())

    def write(self, text: str) -> int:
        check_stdout()
        with explained_stdout():
            return int(self.stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.stream is not None:
            with explained_stdout():
                self.stream.flush()


def check_stdout() -> None:
    """Raise `OutputError` if standard output is closed."""
    if getattr(sys.stdout, "stream", sys.stdout) is None:
        raise OutputError("cannot write to standard output: it is closed")


class Bar:
    """The progress bar of all commands: on a terminal only, and gone when it is done. A context manager.

    Parameters
    ----------
    text : str
        What is in progress.
    total : int or None
        None if it is not known.
    counts : {"steps", "bytes", "nothing"}
        What is counted beside the bar.
    shown : bool
        False for no bar at all.
    after : float
        Seconds before it appears; not before the first `update` then.
    console : Console
        Where it appears.
    clock : callable
        The time in seconds.
    """

    def __init__(
        self,
        text: str = "",
        total: int | None = None,
        *,
        counts: str = "steps",
        shown: bool = True,
        after: float = 0.0,
        console: Console = err,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        from rich import progress  # would slow down start-up

        columns: dict[str, tuple[progress.ProgressColumn, ...]] = {
            "steps": (progress.MofNCompleteColumn(),),
            "bytes": (progress.DownloadColumn(), progress.TransferSpeedColumn()),
            "nothing": (),
        }
        self.after, self._clock = after, clock
        self._started = clock()
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *columns[counts],
            progress.TextColumn("{task.fields[numbers]}"),
            progress.TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
            redirect_stdout=False,  # it would send results to the bar's console
        )
        self._bar = self._bars.add_task(text, total=total, numbers="")

    def __enter__(self: AnyBar) -> AnyBar:
        self._started = self._clock()
        if not self.after:
            self.start()
        return self

    def __exit__(self, *ended: object) -> None:
        if self._bars.live.is_started:
            self._bars.stop()

    def start(self) -> None:
        """Show the bar; does nothing if it is shown already."""
        if not self._bars.live.is_started:
            self._started = self._clock()
            self._bars.start()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return self._clock() - self._started

    @property
    def now(self) -> Task:
        """What it shows."""
        return self._bars.tasks[0]

    def update(self, **changes: Any) -> None:
        """Change `completed`, `total`, `description` or `numbers`, or `advance` it by so much."""
        self._bars.update(self._bar, **changes)
        if self.after and self.seconds >= self.after:
            self._bars.start()

    def begin(self, text: str, total: int | None = None) -> None:
        """Begin with something else."""
        self._bars.remove_task(self._bar)  # a total can't be taken back
        self._bar = self._bars.add_task(text, total=total, numbers="")


class DocumentBar(Bar):
    """How far the input is read, and how many documents have their labels; a bar if it takes longer than a moment.

    Attributes
    ----------
    total : int or None
        Size of the input in the unit of `advance`; None if it is not known.
    """

    def __init__(self, *, shown: bool, after: float = 1.0, **given: Any) -> None:
        super().__init__(counts="nothing", shown=shown, after=after, **given)
        self.total: int | None = None
        self.read = self.documents = 0

    def advance(self, amount: int) -> None:
        """Count what has been read; the bar moves when documents are done."""
        self.read += amount

    def done(self, documents: int) -> None:
        """Count documents that have their labels, and show the numbers."""
        self.documents += documents
        speed = f"{self.documents:,} documents  {self.documents / max(self.seconds, 1e-9):,.0f} documents/s"
        self.update(total=self.total, completed=self.read, numbers=speed)


def track(description: str, steps: Sequence[int]) -> Iterator[int]:
    """Iterate over `steps` with a progress bar that shows the time left."""
    with Bar(description, len(steps)) as bar:
        for step in steps:
            yield step
            bar.update(advance=1)


#: The formats of pictures, by what a name ends in; without an ending, as devices are, it is the first.
PICTURES = ("png", "svg", "pdf")


def check_picture(path: Path | None) -> None:
    """Refuse a place that a picture can't be written to; None is no place."""
    if path is None:
        return
    require("matplotlib", extra="plot", purpose="drawing")
    if not path.parent.is_dir():
        raise OutputError(f"--plot: found no folder {path.parent}; wanted one that exists")
    if path.suffix and _ending(path) not in PICTURES:
        raise ParameterError(f"--plot: found {path.name}; wanted a name that ends in .{', .'.join(PICTURES)}")


def write_picture(path: Path, figure: Figure) -> None:
    """Write a picture, and say so."""
    with files.output(path) as file:
        figure.savefig(file, dpi=110, format=_ending(path) or PICTURES[0])
    err.print(f"{path} drawn", highlight=False)


def _ending(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
