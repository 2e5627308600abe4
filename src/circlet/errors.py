"""The errors that circlet raises for a caller's mistakes.

Every message names what was found and what was wanted. Each class also derives from the built-in that a
Python programmer would catch. The command line prints them as one line and exits with 2.

What does not fit into memory is said in one way too: NumPy, CPUs and GPUs each have their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Most characters of a message; what a file holds or a user types may be megabytes.
LONGEST = 600


class CircletError(Exception):
    """Base of every error that circlet raises on purpose."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message as one line of at most `LONGEST` characters.

    A very long one loses its middle: its start says where, and its end what was wanted. What a terminal would obey
    and not show, such as an escape or a change of direction, is spelled out.
    """
    line = " ".join(_ends(message).splitlines())
    if not line.isprintable():
        line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    return _ends(line)


def _ends(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST * 2 // 3]} … {text[3 - LONGEST // 3 :]}"


class ParameterError(CircletError, ValueError):
    """An argument has an invalid value."""


class ShapeError(CircletError, ValueError):
    """A tensor has the wrong shape, or two tensors do not fit together."""


class DTypeError(CircletError, TypeError):
    """A tensor has the wrong dtype, or something is not a tensor."""


class DataError(CircletError, ValueError):
    """Input data is malformed; the message names the file and, where there is one, the line."""


class FetchError(CircletError, OSError):
    """A download failed, or is not what was expected."""


class OutputError(CircletError, OSError):
    """A result cannot be written to the requested place."""


class MemoryLimitError(CircletError, MemoryError):
    """Something does not fit into memory."""


class MissingExtraError(CircletError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'circlet[{extra}]'")


def bad(path: Path | str, line: int | None, found: str, wanted: str) -> DataError:
    """The error for `path` (at `line`, if there is one): what was found and what was wanted."""
    place = f"{path}:{line}" if line else f"{path}"
    return DataError(f"{place}: found {found}; wanted {wanted}")


def shown(value: bytes | str, limit: int = 60) -> str:
    """`value` quoted for an error message, cut to `limit` characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return repr(text if len(text) <= limit else text[:limit] + "…")


#: Torch has no error of its own for a CPU's memory, nor for sizes that no memory could have.
_WORDS = (
    "allocate",
    "out of memory",
    "not enough memory",
    "Storage size",
    "integer multiplication",
    "too large to convert",
    "Overflow when unpacking",
)


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Raise `MemoryLimitError` if the body, which makes `what`, asks for more memory than there is."""
    try:
        yield
    except (MemoryError, RuntimeError, OverflowError, TypeError) as error:
        reason = about_memory(error)
        if reason is None or isinstance(error, MemoryLimitError):
            raise
        raise MemoryLimitError(f"{what} does not fit into memory ({reason}); wanted smaller sizes") from error


def check_fits(size: int) -> None:
    """Raise `MemoryError` if `size` bytes are more than the machine has.

    A system may grant them all the same, and kill the process that uses them.
    """
    try:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # not on Windows, which grants no more than it has
        return
    if size > most:
        raise MemoryError(f"it takes {size:,} bytes or more, and there are {most:,}")


def about_memory(error: BaseException) -> str | None:
    """What an error says about a lack of memory; None if it is about something else."""
    text = str(error).partition("\n")[0]
    if not isinstance(error, MemoryError) and not any(word in text for word in _WORDS):
        return None
    # Torch begins with the place in its own code.
    return text.rpartition("DefaultCPUAllocator: ")[2].partition(". Error code")[0] or "there is none left"
