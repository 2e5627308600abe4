"""How much compressed input may grow: a file of a megabyte can unpack to gigabytes, which no real data does."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from circlet.errors import DataError, ParameterError

__all__ = ["VARIABLE", "check_unpacked", "most_unpacked", "open_gzip", "read_gzip"]

#: Environment variable with the most times that a file may grow, 100 if it is not set; real data grows 20 times.
VARIABLE = "CIRCLET_UNPACK_RATIO"
#: Bytes that any file may unpack to.
FREE = 1 << 26
#: The same where lines are read, each of which may take a hundred times its size in memory.
FREE_LINES = 1 << 20
_BLOCK = 1 << 16


def most_unpacked(packed: int, free: int = FREE) -> int:
    """The bytes that `packed` bytes of a file may unpack to."""
    return free + _ratio() * packed


def check_unpacked(path: Path, packed: int, unpacked: int, free: int = FREE) -> None:
    """Raise `DataError` if `packed` bytes of a file unpack to too many bytes, or claim to do so."""
    if unpacked > (most := most_unpacked(packed, free)):
        raise DataError(
            f"{path}: found {packed} bytes that unpack to {unpacked} or more; wanted at most {most}, which is "
            f"{_ratio()} times as many and {free} (if you trust it, set {VARIABLE} in the environment to more)"
        )


def open_gzip(path: Path) -> IO[bytes]:
    """Open a gzip file to read lines from it."""
    # Lines take far longer to understand than to unpack, so the start is unpacked twice: what expands without
    # bound is refused before its first line is looked at.
    with (
        _Gunzip(path, path.open("rb"), FREE_LINES) as start,
        suppress(OSError, EOFError, zlib.error),  # whoever reads on finds it too
    ):
        while start.size <= 2 * FREE_LINES and start.read(_BLOCK):
            pass
    # In a BufferedReader, because GzipFile.readline is a slow Python function.
    return io.BufferedReader(_Gunzip(path, path.open("rb"), FREE_LINES), _BLOCK)


def read_gzip(path: Path) -> bytes:
    """The content of a gzip file."""
    with io.BufferedReader(_Gunzip(path, path.open("rb"), FREE), _BLOCK) as stream:
        return stream.read()


class _Gunzip(io.RawIOBase):
    """What a gzip file holds; it is checked while it is read, before memory or time are spent on it."""

    def __init__(self, path: Path, packed: IO[bytes], free: int) -> None:
        self.path, self.packed, self.free, self.size = path, packed, free, 0
        self.unpacked = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.unpacked.readinto(buffer)
        self.size += count
        check_unpacked(self.path, self.packed.tell(), self.size, self.free)
        return count

    def close(self) -> None:
        self.unpacked.close()
        self.packed.close()
        super().close()


def _ratio() -> int:
    given = os.environ.get(VARIABLE, "100")
    if not (given.isdecimal() and given.isascii() and 1 <= len(given) <= 9):
        raise ParameterError(f"{VARIABLE} must be a whole number of at most 9 digits, got {given!r}")
    return int(given)
