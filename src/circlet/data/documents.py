"""Documents with texts, one at a time, from whatever holds them; and the numbers of their labels.

- **Lines of a file**: see `circlet.data.records`.
- **Plain texts**: a document in each file, and its labels in a file beside it, as in Annif's full-text corpora.
  Beside `report.txt`, labels are in `report.tsv`, a line for each: a URI with or without angle brackets, and maybe
  a tab and its name; or in `report.key`, a name on each line. The path of the text file within the folder is the
  document's id.
- **Parquet**: a column of texts and one of lists of labels, read some rows at a time by pyarrow.
- **A stream** such as standard input: it is read once, and its first line that is not empty decides what it is.
  Whoever writes into a pipe may wait for an answer before writing the next line, so a reader is told before it has
  to wait for more.
"""

from __future__ import annotations

import io
import json
import re
import select
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data import records
from circlet.data.dataset import Split, label_fault
from circlet.data.records import Columns, Record, header_delimiter, is_annif, parse
from circlet.errors import DataError, bad, shown
from circlet.extras import require
from circlet.files import BOM, MAX_LINE, explained, iter_text, open_bytes, writing

#: The formats that hold texts, by the names that `circlet.data.load` has for them.
FORMATS = (*records.FORMATS, "parquet", "plain")

#: What the names of plain texts end in.
PLAIN = ".txt"

#: What the names of files with their labels end in; the first that is there counts.
LABELS = (".tsv", ".key")

#: The first bytes of such a file.
MAGIC = b"PAR1"
_ROWS = 1024  # at a time
_MOST_BLANK = 1 << 16  # lines before one that tells the format; more of them would fill the memory
_BLOCK = 1 << 18  # bytes to ask for at a time; a pipe gives less


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
    """How much `progress` will be told of, about; None if that is not known, as of compressed files."""
    paths = text_files(path)
    return None if any(each.suffix == ".gz" for each in paths) else sum(each.stat().st_size for each in paths)


def text_files(path: Path) -> list[Path]:
    """The plain texts of a folder and of the folders in it, in the order of their names; or the one file itself.

    What is hidden, like the content of `.git`, is left out.
    """
    if path.is_dir():
        texts = (each for each in path.rglob("*") if each.suffix.lower() == PLAIN and each.is_file())
        return sorted(each for each in texts if not any(_is_hidden(part) for part in each.relative_to(path).parts))
    return [path] if path.is_file() else []


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def iter_texts(
    path: Path, *, need_labels: bool = True, progress: Callable[[int], object] | None = None
) -> Iterator[Record]:
    """The documents of a folder, or of one file; without the labels of any, if they are not needed.

    If they are, documents without a file of labels are left out. `progress` is told the bytes of each document.
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
    """The labels beside a text; None if there is no file of them."""
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
            if fault := label_fault(label):
                raise bad(file, number, *f"{shown(label)}, {fault}".split("; wanted ", 1))
            labels.append(label)
        return tuple(dict.fromkeys(labels))
    return None


def write_texts(folder: Path, records: Iterable[Record]) -> None:
    """Write documents to a folder, a text and a file of labels (`.key`) for each."""
    for number, record in enumerate(records, 1):
        name = str(record.id or f"{number:06}.txt")
        with writing(folder / name) as out:
            out.write(record.text.encode())
        with writing((folder / name).with_suffix(".key")) as out:
            out.writelines(f"{label}\n".encode() for label in record.labels)


def iter_parquet(
    path: Path,
    columns: Columns | None = None,
    *,
    need_labels: bool = True,
    groups: Sequence[int] | None = None,
    first: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """The documents of a file, one at a time; their line is the number of their row, from 1.

    Labels are lists of strings or integers, or one of them; a missing value is no label. `groups` are the numbers
    of the row groups to read, of which the first begins with row `first`; by default, all are read. `progress` is
    told a share of the file's bytes for each row.
    """
    columns = columns or Columns()
    with reading(path) as file:
        wanted = _present(path, file.schema_arrow.names, columns, need_labels)
        rows = file.metadata.num_rows
        share = path.stat().st_size // max(rows, 1)
        number, names = first, list(dict.fromkeys(wanted.values()))
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names):
            for row in batch.to_pylist():
                if progress is not None:
                    progress(share)
                yield _record(path, number, row, wanted)
                number += 1
    if number == first and groups is None:
        raise bad(path, None, "no documents", "at least one")


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; what it can't read, here or later, raises `DataError`."""
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


def _present(path: Path, names: list[str], columns: Columns, need_labels: bool) -> dict[str, str]:
    """The columns to read, by what they hold."""
    if columns.text not in names:
        wanted = f"a column {columns.text!r}, or --text-column with the name of another"
        raise bad(path, None, f"the columns {shown(', '.join(names))}", wanted)
    if need_labels and columns.labels not in names:
        wanted = f"a column {columns.labels!r}, or --label-column with the name of another"
        raise bad(path, None, f"the columns {shown(', '.join(names))}", wanted)
    found = {"text": columns.text}
    if need_labels:
        found["labels"] = columns.labels
    if columns.id is not None and columns.id in names:
        found["id"] = columns.id
    return found


def _record(path: Path, number: int, row: dict[str, Any], wanted: dict[str, str]) -> Record:
    text, labels = row[wanted["text"]], row[wanted["labels"]] if "labels" in wanted else []
    if not isinstance(text, str):
        raise bad(path, number, f"{wanted['text']!r} of type {type(text).__name__}", "a string")
    labels = [] if labels is None else [labels] if type(labels) in (str, int) else labels
    if not isinstance(labels, list) or not all(type(label) in (str, int) for label in labels):
        raise bad(
            path, number, f"the labels {shown(repr(labels))}", "a list of strings or integers, or one of them"
        )
    for label in map(str, labels):
        if fault := label_fault(label):
            raise bad(path, number, *f"{shown(label)}, {fault}".split("; wanted ", 1))
    identifier = row[wanted["id"]] if "id" in wanted else None
    if type(identifier) not in (str, int, type(None)):
        raise bad(path, number, f"{wanted['id']!r} of type {type(identifier).__name__}", "a string or an integer")
    return Record(number, text, tuple(dict.fromkeys(map(str, labels))), identifier)


def write_parquet(path: Path, records: Iterable[Record], columns: Columns | None = None) -> None:
    """Write documents; the file appears complete or not at all."""
    require("pyarrow", extra="parquet", purpose="writing Parquet")
    import pyarrow
    import pyarrow.parquet

    columns, rows = columns or Columns(), list(records)
    schema = pyarrow.schema({columns.text: pyarrow.string(), columns.labels: pyarrow.list_(pyarrow.string())})
    content = {columns.text: [row.text for row in rows], columns.labels: [list(row.labels) for row in rows]}
    with writing(path) as out:
        pyarrow.parquet.write_table(pyarrow.table(content, schema=schema), out)


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


def read_splits(
    train: Iterable[Record], test: Iterable[Record] | None = None
) -> tuple[Split, Split | None, list[str]]:
    """Number the labels and build the splits.

    Labels are numbered in the sorted order of their names in `train`; those only in `test` follow, sorted.
    """
    vocabulary: dict[str, int] = {}
    first = _Labeled.gather(train, vocabulary)
    known = len(vocabulary)
    second = None if test is None else _Labeled.gather(test, vocabulary)
    names = list(vocabulary)
    names = sorted(names[:known]) + sorted(names[known:])
    position = np.empty(len(names), np.int32)
    position[[vocabulary[name] for name in names]] = np.arange(len(names))
    return first.split(position), None if second is None else second.split(position), names


@dataclass
class _Labeled:
    """The texts of one file, what they are called, and their labels as numbers in a shared vocabulary."""

    texts: list[str]
    names: list[str | int]
    named: bool
    ids: array[int]
    counts: array[int]

    @classmethod
    def gather(cls, records: Iterable[Record], vocabulary: dict[str, int]) -> _Labeled:
        """Read all `records`; new labels are added to `vocabulary`."""
        out = cls([], [], False, array("q"), array("q"))
        for row, record in enumerate(records):
            out.texts.append(record.text)
            out.names.append(row if record.id is None else record.id)
            out.named |= record.id is not None
            out.ids.extend([vocabulary.setdefault(label, len(vocabulary)) for label in record.labels])
            out.counts.append(len(record.labels))
        return out

    def split(self, position: Any) -> Split:
        """A `Split` with label `id` in column `position[id]`."""
        indices = position[np.asarray(self.ids, dtype=np.int64)]
        indptr = np.concatenate([[0], np.cumsum(np.asarray(self.counts, dtype=np.int64))])
        ones = np.ones(len(indices), np.float32)
        Y = sp.csr_matrix((ones, indices, indptr), shape=(len(self.texts), len(position)))
        Y.sort_indices()
        return Split(None, Y, self.texts, self.names if self.named else None)
