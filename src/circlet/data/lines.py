"""Reading lines from files that may be compressed, damaged or not text at all."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from circlet.errors import DataError
from circlet.files import output
from circlet.unpacking import open_gzip

MAX_LINE = 1 << 26  # bytes; a longer line means a damaged or hostile file, and would fill the memory
BOM = b"\xef\xbb\xbf"


def bad(path: Path | str, line: int | None, found: str, wanted: str) -> DataError:
    """The error for `path` (at `line`, if there is one): what was found and what was wanted."""
    place = f"{path}:{line}" if line else f"{path}"
    return DataError(f"{place}: found {found}; wanted {wanted}")


def shown(value: bytes | str, limit: int = 60) -> str:
    """`value` quoted for an error message, cut to `limit` characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return repr(text if len(text) <= limit else text[:limit] + "…")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the system and of the decompressor about `path` into a `DataError`."""
    try:
        yield
    except EOFError as error:
        raise bad(path, None, "a gzip file that ends too early", "a complete one") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise bad(path, None, f"a damaged gzip file ({error})", "an intact one") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def open_bytes(path: Path) -> IO[bytes]:
    """Open `path` for reading; gzip is recognized by its first two bytes, whatever the file's name."""
    check_regular(path)
    stream = path.open("rb")
    magic = stream.read(2)
    stream.seek(0)
    if magic != b"\x1f\x8b":
        return stream
    stream.close()
    return open_gzip(path)


def check_regular(path: Path) -> None:
    """Raise `DataError` for a pipe or a device, which can't be read twice, or never ends."""
    # Before it is opened: opening a pipe waits for somebody who writes into it.
    if path.exists() and not path.is_file() and not path.is_dir():
        wanted = "a regular file (only `circlet predict` reads texts from pipes, and from standard input as -)"
        raise bad(path, None, "a pipe or device", wanted)


def iter_lines(
    path: Path, *, start: int = 0, end: int | None = None, first: int = 1
) -> Iterator[tuple[int, bytes]]:
    """The lines of `path`, line ends included, with their numbers from 1.

    An empty file, a zero byte (a binary file), a line longer than `MAX_LINE` and a damaged or truncated gzip
    stream raise `DataError`; a byte order mark is dropped.

    `start` and `end` ask for the lines between two bytes of a file that is not compressed; the first of them
    starts at `start` and has the number `first`.
    """
    number, at = first - 1, start
    with explained(path), open_bytes(path) as stream:
        if start:
            stream.seek(start)
        while (end is None or at < end) and (line := stream.readline(MAX_LINE + 1)):
            at += len(line)
            if at == len(line) and line.startswith(BOM):
                line = line[len(BOM) :]
                if not line:
                    break
            number += 1
            if b"\0" in line:
                raise bad(path, number, "a zero byte (a binary file?)", "lines of text")
            if len(line) > MAX_LINE:
                raise bad(path, number, f"a line of more than {MAX_LINE} bytes", "shorter lines")
            yield number, line
    if not number:
        raise bad(path, None, "an empty file", "data")


def iter_text(
    path: Path,
    progress: Callable[[int], object] | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    first: int = 1,
) -> Iterator[tuple[int, str]]:
    """`iter_lines`, decoded from UTF-8; `progress` is told the bytes of each line."""
    for number, line in iter_lines(path, start=start, end=end, first=first):
        if progress is not None:
            progress(len(line))
        yield number, decode(path, number, line)


def decode(path: Path, number: int, line: bytes) -> str:
    """`line` as text; a `DataError` that names the byte if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
        raise bad(path, number, byte, "UTF-8 text") from error


def peek(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of the (decompressed) content, without a byte order mark."""
    with explained(path), open_bytes(path) as stream:
        return stream.read(size).removeprefix(BOM)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open `path` for writing, whole or not at all; compressed if its name ends in `.gz`."""
    with output(path) as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # No name and no time in the header, so that the same content gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            yield cast(IO[bytes], packed)
