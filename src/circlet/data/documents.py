"""Documents from a stream such as standard input, as they come, in the formats that files may have.

A stream is read once, and its first line that is not empty decides what it is. Whoever writes into a pipe may wait
for an answer before writing the next line, so a reader is told before it has to wait for more.
"""

from __future__ import annotations

import io
import json
import re
import select
from collections.abc import Callable, Iterator
from itertools import chain

from circlet.data.lines import BOM, MAX_LINE, bad
from circlet.data.recognize import is_annif
from circlet.data.records import Columns, Record, header_delimiter, parse
from circlet.errors import DataError

__all__ = ["iter_stream"]

_MOST_BLANK = 1 << 16  # lines before one that tells the format; more of them would fill the memory
_BLOCK = 1 << 18  # bytes to ask for at a time; a pipe gives less


def iter_stream(
    stream: io.BufferedIOBase,
    columns: Columns | None = None,
    name: str = "stdin",
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[Record]:
    """Read the documents of a stream, one at a time; their labels play no part.

    JSONL, CSV and TSV with a header, fastText lines and Annif's TSV are recognized; in any other stream every line
    is a text, an empty line included. Empty lines at the start tell no format: they wait for one that does, unless
    there are thousands of them.

    Parameters
    ----------
    stream : binary file with a buffer
        UTF-8.
    columns : Columns, optional
        Names of the columns of JSONL, CSV and TSV.
    name : str
        What to call the stream in errors.
    before_waiting : callable
        Called whenever all documents that have arrived completely are read, and the next may be long in coming.
        Where the system cannot tell (on Windows), it is called before each read.

    Raises
    ------
    DataError
        If a line is not UTF-8 or does not fit the format of the first one; the message names its number.
    """
    columns, lines = columns or Columns(), _lines(stream, name, before_waiting)
    blank: list[tuple[int, str]] = []
    for number, line in lines:
        if line.strip() or len(blank) == _MOST_BLANK:
            break
        blank.append((number, line))
    else:
        yield from map(_plain, blank)
        return
    kind, lines = _kind(line, columns), chain([(number, line)], lines)
    if kind is None:
        yield from map(_plain, chain(blank, lines))
    else:
        yield from parse(lines, name, kind, columns, need_labels=False)


def _lines(
    stream: io.BufferedIOBase, name: str, before_waiting: Callable[[], object]
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_raw_lines(stream, name, before_waiting), 1):
        if len(line) > MAX_LINE:
            raise bad(name, number, f"a line of more than {MAX_LINE} bytes", "shorter lines")
        try:
            yield number, (line.removeprefix(BOM) if number == 1 else line).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}:{number}: found bytes that are not UTF-8 ({error.reason})") from error


def _raw_lines(stream: io.BufferedIOBase, name: str, before_waiting: Callable[[], object]) -> Iterator[bytes]:
    """The lines of a stream; of one that is too long, only the start."""
    held = bytearray()
    while block := _read(stream, name, before_waiting):
        for piece in io.BytesIO(block):
            held += piece
            if piece.endswith(b"\n") or len(held) > MAX_LINE:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


def _read(stream: io.BufferedIOBase, name: str, before_waiting: Callable[[], object]) -> bytes:
    """What the stream has by now, and at least one byte; nothing at its end."""
    if not _has_more(stream):
        before_waiting()
    try:
        return stream.read1(_BLOCK)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def _has_more(stream: io.BufferedIOBase) -> bool:
    """Whether reading certainly does not wait."""
    try:
        # Its buffer is empty, since `read1` gives all of it at once.
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):  # no file of the system, or a system that can select only sockets
        return False


def _kind(first: str, columns: Columns) -> str | None:
    """The format of a stream by its first line that is not empty; None for plain text."""
    if first.lstrip().startswith("{") and _is_json_object(first):
        return "jsonl"
    if re.search(r"(?:^|\s)__label__\S", first):
        return "fasttext"
    if mark := header_delimiter(first, columns.text):
        return "tsv" if mark == "\t" else "csv"
    return "annif" if is_annif(first) else None


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _plain(numbered: tuple[int, str]) -> Record:
    number, line = numbered
    return Record(number, line.rstrip("\r\n"), ())
