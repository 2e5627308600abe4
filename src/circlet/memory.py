"""What does not fit into memory, said in one way: NumPy, CPUs and GPUs each have their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from circlet.errors import MemoryLimitError

__all__ = ["about_memory", "check_fits", "within_memory"]

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
