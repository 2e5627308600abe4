"""Where commands print: results to `out`, everything else to `err`; progress bars, labels, pictures."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from circlet import files
from circlet.checks import require
from circlet.errors import OutputError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.progress import Task

AnyBar = TypeVar("AnyBar", bound="Bar")
out = Console()
err = Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print a text to standard error as it is; only the terminal breaks its lines."""
    err.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any, indent: int | None = 1) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=indent))


def occupy_closed_streams() -> None:
    """Keep files that are opened later from getting the number of a standard stream that is closed.

    A library that writes to standard error would write into a model's file otherwise.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def give_up(stream: TextIO) -> None:
    """Discard what could not be written: Python would try again when it exits, and fail again."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class Stdout:
    """Standard output; `stream` is None if it is closed.

    If nobody reads it anymore, the command ends quietly. Any other fault is one `OutputError`, whoever prints.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def isatty(self) -> bool:
        return self.stream is not None and bool(self.stream.isatty())

    def write(self, text: str) -> int:
        check_stdout()
        with self._explained():
            return int(self.stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.stream is not None:
            with self._explained():
                self.stream.flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            give_up(self.stream)
            # Windows has no error of its own for a closed pipe.
            if isinstance(error, BrokenPipeError) or (os.name == "nt" and error.errno == errno.EINVAL):
                raise typer.Exit from error
            raise OutputError(f"cannot write to standard output: {error.strerror or error}") from error


def check_stdout() -> None:
    """Raise `OutputError` if standard output is closed."""
    if getattr(sys.stdout, "stream", sys.stdout) is None:
        raise OutputError("cannot write to standard output: it is closed")


def label_lines(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[Text]:
    """Labels and their probabilities in lines of at most this width, which break only between labels."""
    line = Text()
    for label, chance in pairs:
        one = Text.assemble(f"{label} ", (chance, "dim"))
        if line and line.cell_len + 3 + one.cell_len > width:
            yield line
            line = Text()
        line = one if not line else Text("   ").join([line, one])
    yield line


def printable(text: str, kept: str = "") -> str:
    """Replace the characters of a text that a terminal would obey, except those that are `kept`."""
    return "".join(letter if letter.isprintable() or letter in kept else " " for letter in text)


class Bar:
    """A progress bar, for terminals only, which disappears at the end; a context manager.

    The unit of the numbers beside it is `counts`: steps, bytes or nothing. `total` is None if unknown. With
    `after` above 0, the bar appears with the first `update` after so many seconds. `clock` returns the seconds.
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
        from rich import progress  # at the top, it would slow down start-up

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
        """Show the bar, unless it is shown already."""
        if not self._bars.live.is_started:
            self._started = self._clock()
            self._bars.start()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def now(self) -> Task:
        """The numbers that the bar shows."""
        return self._bars.tasks[0]

    def update(self, **changes: Any) -> None:
        """Change `completed`, `total`, `description` or `numbers`, or add `advance` to `completed`."""
        self._bars.update(self._bar, **changes)
        if self.after and self.seconds >= self.after:
            self._bars.start()

    def begin(self, text: str, total: int | None = None) -> None:
        """Start again from 0, with another description and total."""
        self._bars.remove_task(self._bar)  # rich does not reset a total to None
        self._bar = self._bars.add_task(text, total=total, numbers="")


class DocumentBar(Bar):
    """The progress through the input and the number of tagged documents; appears after a second."""

    def __init__(self, *, shown: bool, after: float = 1.0, **given: Any) -> None:
        super().__init__(counts="nothing", shown=shown, after=after, **given)
        self.total: int | None = None  # size of the input in the unit of `advance`, if it is known
        self.read = self.documents = 0

    def advance(self, amount: int) -> None:
        """Count input that has been read; the bar moves when documents are done."""
        self.read += amount

    def done(self, documents: int) -> None:
        """Count tagged documents, and show the numbers."""
        self.documents += documents
        speed = f"{self.documents:,} documents  {self.documents / max(self.seconds, 1e-9):,.0f} documents/s"
        self.update(total=self.total, completed=self.read, numbers=speed)


def track(description: str, steps: Sequence[int]) -> Iterator[int]:
    """Iterate over `steps` with a progress bar."""
    with Bar(description, len(steps)) as bar:
        for step in steps:
            yield step
            bar.update(advance=1)


#: The formats of pictures, by file suffix; the first one for names without a suffix, such as devices.
PICTURES = (".png", ".svg", ".pdf")


def check_picture(path: Path | None) -> None:
    """Raise an error, before any work, if a picture could not be written to `path`."""
    if path is None:
        return
    require("matplotlib", extra="plot", purpose="drawing")
    if not path.parent.is_dir():
        raise OutputError(f"--plot: found no folder {path.parent}; wanted one that exists")
    if path.suffix and path.suffix.lower() not in PICTURES:
        raise ParameterError(f"--plot: found {path.name}; wanted a name that ends in {', '.join(PICTURES)}")


def mark(axis: Axes, x: float, text: str, *, left: bool = False) -> None:
    """Draw a dotted vertical line, with a text at its top, on the right side or the left one."""
    axis.axvline(x, color="black", linewidth=1, linestyle=":")
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    axis.annotate(text, (x, 1), xytext=(-4 if left else 4, -12), ha="right" if left else "left", **place)


def write_picture(path: Path, figure: Figure) -> None:
    """Write a picture, and report it."""
    with files.output(path) as file:
        figure.savefig(file, dpi=110, format=(path.suffix.lower() or PICTURES[0]).removeprefix("."))
    say(f"{path} drawn")
