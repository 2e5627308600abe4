"""Read documents with texts, one at a time, from files, folders and streams, and number their labels.

- **Lines of a file**: see `circlet.data.records`.
- **Plain texts**: one document per file, with its labels in a second file, as in Annif's full-text corpora. The
  labels of `report.txt` are in `report.tsv`, one per line: a URI with or without angle brackets, optionally
  followed by a tab and a name; or in `report.key`, one name per line. The path of the text file within the folder
  is the document's id.
- **Parquet**: a column of texts and one of lists of labels, read by pyarrow a few rows at a time.
- **A stream** such as standard input: it is read once. Its first non-empty line determines the format. The writer
  of a pipe may expect an answer before it sends the next line, so `iter_stream` calls back before it waits.
"""

from __future__ import annotations

import io
import json
import re
import select
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.checks import require
from circlet.data import records
from circlet.data.dataset import Split, check_label
from circlet.data.records import (
    Columns,
    Record,
    check_columns,
    header_delimiter,
    is_annif,
    parse,
    parts_of,
    record_of,
)
from circlet.errors import DataError, bad
from circlet.files import BOM, MAX_LINE, explained, iter_text, open_bytes

#: The formats with texts, named as in `circlet.data.load`.
FORMATS = (*records.FORMATS, "parquet", "plain")

#: The suffix of plain texts.
PLAIN = ".txt"

#: The suffixes of files with their labels; the first file that exists counts.
LABELS = (".tsv", ".key")

#: The first bytes of a Parquet file.
MAGIC = b"PAR1"


def iter_documents(
    path: Path,
    kind: str,
    columns: Columns | None = None,
    *,
    need_labels: bool = True,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """Read the documents of a file or folder in one of the `FORMATS`, one at a time.

    The other parameters are those of `circlet.data.records.iter_records`.
    """
    if kind == "parquet":
        return iter_parquet(path, columns, need_labels=need_labels, progress=progress)
    if kind == "plain":
        return iter_texts(path, need_labels=need_labels, progress=progress)
    return records.iter_records(path, kind, columns, need_labels=need_labels, progress=progress)


def size_of(path: Path) -> int | None:
    """Return about how many bytes `progress` will count, or None if a file is compressed."""
    paths = text_files(path)
    return None if any(each.suffix == ".gz" for each in paths) else sum(each.stat().st_size for each in paths)


def text_files(path: Path) -> list[Path]:
    """Return the plain texts of a folder and its subfolders, sorted; for a file, the file itself.

    Hidden files and folders, such as `.git`, are left out.
    """
    if path.is_dir():
        texts = (each for each in path.rglob("*") if each.suffix.lower() == PLAIN and each.is_file())
        return sorted(
            each for each in texts if not any(part.startswith(".") for part in each.relative_to(path).parts)
        )
    return [path] if path.is_file() else []


def iter_texts(
    path: Path, *, need_labels: bool = True, progress: Callable[[int], object] | None = None
) -> Iterator[Record]:
    """Read the documents of a folder, or of one file.

    With `need_labels`, documents without a file of labels are left out; otherwise no labels are read.
    `progress` gets the length of each text.
    """
    found = False
    for number, file in enumerate(text_files(path), 1):
        labels = _labels_of(file) if need_labels else ()
        if labels is None:
            continue
        found = True
        text = _content(file)
        if progress is not None:
            progress(len(text))
        yield Record(number, text, labels, file.relative_to(path).as_posix() if path.is_dir() else file.name)
    if not found:
        wanted = "its labels beside it: those of a.txt in a.tsv or a.key"
        raise bad(path, None, "plain text without labels", wanted)


def _content(path: Path) -> str:
    content = bytearray()
    with explained(path), open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            content += block
            if len(content) > MAX_LINE:
                raise bad(path, None, f"more than {MAX_LINE:,} bytes", "the text of one document")
    if b"\0" in content:
        raise bad(path, None, "a zero byte (a binary file?)", "text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found byte 0x{content[error.start]:02x}; wanted UTF-8 text") from error


def _labels_of(path: Path) -> tuple[str, ...] | None:
    """Return the labels in the file beside a text, or None if there is no such file."""
    for ending in LABELS:
        file = path.with_suffix(ending)
        if not file.is_file():
            continue
        labels = []
        for number, line in iter_text(file) if file.stat().st_size else ():
            label = line.rstrip("\r\n").partition("\t")[0] if ending == ".tsv" else line.strip()
            if line.isspace():
                continue
            label = label[1:-1] if label[:1] + label[-1:] == "<>" else label
            check_label(label, file, number)
            labels.append(label)
        return tuple(dict.fromkeys(labels))
    return None


def iter_parquet(
    path: Path,
    columns: Columns | None = None,
    *,
    need_labels: bool = True,
    groups: Sequence[int] | None = None,
    first: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """Read the documents of a Parquet file, one at a time; `Record.line` is the row number, from 1.

    The labels of a row are a string, an integer, or a list of these; a missing value means no labels. `groups`
    are the numbers of the row groups to read, all by default; `first` is the number of the first row in them.
    `progress` gets a share of the file's bytes for each row.
    """
    columns, number = columns or Columns(), first
    with reading(path) as file:
        present = file.schema_arrow.names
        check_columns(path, None, present, columns, need_labels)
        wanted = [columns.text, columns.labels if need_labels else None, columns.id]
        read = [name for name in dict.fromkeys(wanted) if name in present]
        share = path.stat().st_size // max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(1024, row_groups=groups, columns=read):
            for row in batch.to_pylist():
                if progress is not None:
                    progress(share)
                yield record_of(path, number, *parts_of(path, number, row, columns, need_labels=False))
                number += 1
    if number == first and groups is None:
        raise bad(path, None, "no documents", "at least one")


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """Open a `pyarrow.parquet.ParquetFile`; its read errors, now or inside the block, become `DataError`."""
    require("pyarrow", extra="parquet", purpose="reading Parquet")
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, DataError):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise bad(path, None, f"no readable Parquet ({why})", "a complete file") from error


def iter_stream(
    stream: io.BufferedIOBase,
    columns: Columns | None = None,
    name: str = "stdin",
    before_waiting: Callable[[], object] = lambda: None,
) -> Iterator[Record]:
    """Read the documents of a stream, one at a time; labels are optional.

    The first non-empty line determines the format: JSONL, CSV or TSV with a header, fastText lines, or Annif's
    TSV. In any other stream, every line is a text, empty lines included; so is every line of a stream that starts
    with more than 65,536 empty lines.

    Parameters
    ----------
    stream : binary file with a buffer
        UTF-8.
    columns : Columns, optional
        Names of the columns of JSONL, CSV and TSV.
    name : str
        Name of the stream in error messages.
    before_waiting : callable
        Called when all complete documents that have arrived are read, before waiting for more. Where the system
        cannot tell whether more has arrived (on Windows), it is called before each read.

    Raises
    ------
    DataError
        If a line is not UTF-8 or does not fit the format of the first one; the message names its number.
    """
    columns, lines = columns or Columns(), _lines(stream, name, before_waiting)
    start: list[tuple[int, str]] = []
    kind = None
    for number, line in lines:
        start.append((number, line))
        if line.strip():
            kind = _kind(line, columns)
            break
        if len(start) > 1 << 16:  # holding more empty lines could exhaust the memory
            break
    if kind is None:
        for number, line in chain(start, lines):
            yield Record(number, line.rstrip("\r\n"), ())
    else:
        yield from parse(chain(start[-1:], lines), name, kind, columns, need_labels=False)


def _lines(
    stream: io.BufferedIOBase, name: str, before_waiting: Callable[[], object]
) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a stream, each as soon as it is complete."""
    number, held = 1, bytearray()
    while block := _read(stream, name, before_waiting):
        for piece in io.BytesIO(block):
            held += piece
            if len(held) > MAX_LINE:
                raise bad(name, number, f"a line of more than {MAX_LINE} bytes", "shorter lines")
            if piece.endswith(b"\n"):
                yield number, _decoded(held, name, number)
                number += 1
                held.clear()
    if held:
        yield number, _decoded(held, name, number)


def _decoded(line: bytearray, name: str, number: int) -> str:
    try:
        return (line.removeprefix(BOM) if number == 1 else line).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}:{number}: found bytes that are not UTF-8 ({error.reason})") from error


def _read(stream: io.BufferedIOBase, name: str, before_waiting: Callable[[], object]) -> bytes:
    """Wait for at least one byte and return what has arrived; return no bytes at the end of the stream."""
    try:
        # The stream's own buffer is empty here, since `read1` returns all of it.
        has_more = bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):  # the stream has no file descriptor, or the system can select only sockets
        has_more = False
    if not has_more:
        before_waiting()
    try:
        return stream.read1(1 << 18)  # more than a pipe holds
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def _kind(first: str, columns: Columns) -> str | None:
    """Return the format of a stream from its first non-empty line, or None for plain text."""
    if first.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(first), dict):
                return "jsonl"
    if re.search(r"(?:^|\s)__label__\S", first):
        return "fasttext"
    if mark := header_delimiter(first, columns.text):
        return "tsv" if mark == "\t" else "csv"
    return "annif" if is_annif(first) else None


def read_splits(
    train: Iterable[Record], test: Iterable[Record] | None = None
) -> tuple[Split, Split | None, list[str]]:
    """Number the labels and build the splits.

    The labels of `train` come first, sorted by name; labels that are only in `test` follow, sorted as well.
    """
    vocabulary: dict[str, int] = {}
    parts = [_gathered(train, vocabulary)]
    known = len(vocabulary)
    if test is not None:
        parts.append(_gathered(test, vocabulary))
    names = list(vocabulary)
    names = sorted(names[:known]) + sorted(names[known:])
    position = np.empty(len(names), np.int32)
    position[[vocabulary[name] for name in names]] = np.arange(len(names))
    splits = []
    for texts, ids, labels, counts in parts:
        indices = position[np.asarray(labels, dtype=np.int64)]
        starts = np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))])
        ones = np.ones(len(indices), np.float32)
        Y = sp.csr_matrix((ones, indices, starts), shape=(len(texts), len(names)))
        Y.sort_indices()
        splits.append(Split(None, Y, texts, ids))
    return splits[0], splits[1] if test is not None else None, names


def _gathered(
    records: Iterable[Record], vocabulary: dict[str, int]
) -> tuple[list[str], list[str | int] | None, array[int], array[int]]:
    """Return texts, ids (None if no document has one), label numbers, and the label count of each document.

    Adds new labels to `vocabulary`.
    """
    texts: list[str] = []
    ids: list[str | int] = []
    has_ids, labels, counts = False, array("q"), array("q")
    for row, record in enumerate(records):
        texts.append(record.text)
        ids.append(row if record.id is None else record.id)
        has_ids |= record.id is not None
        labels.extend([vocabulary.setdefault(label, len(vocabulary)) for label in record.labels])
        counts.append(len(record.labels))
    return texts, ids if has_ids else None, labels, counts
