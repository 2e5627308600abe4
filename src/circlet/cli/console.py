"""Where commands print: results to `out`, everything else to `err`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console

from circlet.errors import OutputError

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


def track(description: str, steps: Sequence[int]) -> Iterable[int]:
    """Iterate over `steps` with a progress bar that shows the time left; on a terminal only."""
    from rich.progress import track as rich_track  # would slow down start-up

    return rich_track(steps, description, console=err, transient=True, disable=not err.is_terminal)
