"""The errors that circlet raises for a caller's mistakes.

Every message names what was found and what was wanted. Each class also derives from the built-in exception that a
Python programmer would catch. The command line prints the message as one line and exits with 2.

Errors about memory, which differ between NumPy, CPUs and GPUs, become one `MemoryLimitError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Most characters of a message; quoted content of a file or command line may be megabytes long.
LONGEST = 600


class CircletError(Exception):
    """Base of every error that circlet raises on purpose."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """Shorten a message to one line of at most `LONGEST` characters.

    A very long message loses its middle: the start has the place, and the end what was wanted. Control characters,
    such as an escape or a change of direction, are spelled out, so that no terminal obeys them.
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
    """Make the error for `path` (at `line`, if given): what was found and what was wanted."""
    place = f"{path}:{line}" if line else f"{path}"
    return DataError(f"{place}: found {found}; wanted {wanted}")


def shown(value: bytes | str, limit: int = 60) -> str:
    """Quote `value` for an error message, cut to `limit` characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return repr(text if len(text) <= limit else text[:limit] + "…")


#: Torch has no error class for a lack of CPU memory, or for impossible sizes; its messages have these words.
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
    """Raise `MemoryLimitError` if the body, which makes `what`, runs out of memory."""
    try:
        yield
    except (MemoryError, RuntimeError, OverflowError, TypeError) as error:
        reason = about_memory(error)
        if reason is None or isinstance(error, MemoryLimitError):
            raise
        raise MemoryLimitError(f"{what} does not fit into memory ({reason}); wanted smaller sizes") from error


def check_fits(size: int) -> None:
    """Raise `MemoryError` if `size` bytes are more than the machine has.

    The system might grant the memory anyway, and kill the process that uses it.
    """
    try:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # not available on Windows, which grants no more memory than it has
        return
    if size > most:
        raise MemoryError(f"it takes {size:,} bytes or more, and there are {most:,}")


def about_memory(error: BaseException) -> str | None:
    """Return what an error says about a lack of memory; None if it has another reason."""
    text = str(error).partition("\n")[0]
    if not isinstance(error, MemoryError) and not any(word in text for word in _WORDS):
        return None
    # Torch's messages start with the place in torch's code.
    return text.rpartition("DefaultCPUAllocator: ")[2].partition(". Error code")[0] or "there is none left"
