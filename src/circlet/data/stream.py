"""Texts from a stream such as standard input, one at a time, in the formats that files may have.

A stream is read once and never ahead: a person who types a line gets its answer before typing the next. So its
first line that is not empty decides what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import IO

from circlet.data.lines import BOM, MAX_LINE, bad
from circlet.data.recognize import is_annif
from circlet.data.records import Columns, header_delimiter, parse
from circlet.errors import DataError

__all__ = ["iter_texts"]


def iter_texts(stream: IO[bytes], columns: Columns | None = None, name: str = "stdin") -> Iterator[str]:
    """Read the texts of a stream, never its labels.

    JSONL, CSV and TSV with a header, fastText lines and Annif's TSV are recognized; in any other stream every line
    is a text, an empty line included.

    Parameters
    ----------
    stream : binary file
        UTF-8, read line by line as texts are asked for.
    columns : Columns, optional
        Names of the text and label columns of JSONL, CSV and TSV.
    name : str
        What to call the stream in errors.

    Raises
    ------
    DataError
        If a line is not UTF-8 or does not fit the format of the first one; the message names its number.
    """
    columns, lines = columns or Columns(), _lines(stream, name)
    blank = []
    for number, line in lines:
        if line.strip():
            break
        blank.append((number, line))
    else:
        yield from (_text(line) for _, line in blank)
        return
    kind, lines = _kind(line, columns), chain([(number, line)], lines)
    if kind is None:
        yield from (_text(line) for _, line in chain(blank, lines))
    else:
        yield from (record.text for record in parse(lines, name, kind, columns, need_labels=False))


def _lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise bad(name, number, f"a line of more than {MAX_LINE} bytes", "shorter lines")
        try:
            yield number, (line.removeprefix(BOM) if number == 1 else line).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}:{number}: found bytes that are not UTF-8 ({error.reason})") from error


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


def _text(line: str) -> str:
    return line.rstrip("\r\n")
