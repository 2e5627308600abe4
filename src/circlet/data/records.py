"""Raw text with labels: JSONL, CSV and TSV, fastText's `__label__` lines, Annif's short-text TSV.

All are UTF-8, compressed by gzip or not, and read as a stream of records.

- `jsonl`: one object a line; labels are a list of strings, or a string, which is one label. A whole number in
  place of a string is a label too, called by its decimal digits.
- `csv`, `tsv`: a header names the columns; fields are quoted as spreadsheets do; labels stand in one field,
  with `;` between them unless another separator is given. Spaces around a label and empty labels are dropped.
- `fasttext`: every word that starts with `__label__` is a label; the text is the rest of the line.
- `annif`: text, a tab, subject URIs in angle brackets or without, separated by spaces; no header.
"""

from __future__ import annotations

import csv
import io
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import Split, label_fault
from circlet.data.lines import MAX_LINE, bad, iter_text, shown, writing
from circlet.errors import DataError, ParameterError

FORMATS = ("jsonl", "csv", "tsv", "fasttext", "annif")
# fastText splits at ASCII spaces only, so a label may hold other ones.
_LABEL_WORD = re.compile(r"(?:^|(?<=[ \t\v\f\r\n]))__label__([^ \t\v\f\r\n]*)[ \t\v\f\r\n]?")
_DELIMITER = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True)
class Record:
    """One document: the line it starts on, its text and its labels, each once, in their order."""

    line: int
    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """How the columns of JSONL, CSV and TSV files are called, and what separates labels in CSV and TSV."""

    text: str = "text"
    labels: str = "labels"
    separator: str = ";"

    def __post_init__(self) -> None:
        if not self.separator or self.text == self.labels:
            raise ParameterError(
                f"text column {self.text!r}, label column {self.labels!r}, separator {self.separator!r}; "
                "wanted two different columns and at least one character between labels"
            )


def iter_records(
    path: Path | str,
    kind: str,
    columns: Columns | None = None,
    *,
    need_labels: bool = True,
) -> Iterator[Record]:
    """Read the documents of one file, one at a time.

    Parameters
    ----------
    path : Path or str
        The file, compressed or not.
    kind : str
        One of `FORMATS`; `circlet.data.load.recognise` finds it out.
    columns : Columns
        For JSONL, CSV and TSV.
    need_labels : bool
        False takes records without labels too, as for prediction.
    """
    path, columns = Path(path), columns or Columns()
    if kind not in FORMATS:
        raise ParameterError(f"kind is {kind!r}; wanted one of {', '.join(FORMATS)}")
    raw: Iterator[tuple[int, str, list[str]]]
    if kind == "jsonl":
        raw = _jsonl(path, columns, need_labels)
    elif kind in _DELIMITER:
        raw = _table(path, columns, need_labels, _DELIMITER[kind])
    else:
        raw = (_fasttext if kind == "fasttext" else partial(_annif, need_labels=need_labels))(path)
    empty = True
    for line, text, labels in raw:
        empty = False
        for label in labels:
            if fault := label_fault(label):
                raise bad(path, line, *f"{shown(label)}, {fault}".split("; wanted ", 1))
        _check_unicode(path, line, text, labels)
        yield Record(line, text, tuple(dict.fromkeys(labels)))
    if empty:
        raise bad(path, None, "no documents", "at least one")


def _check_unicode(path: Path, line: int, text: str, labels: list[str]) -> None:
    # JSON can spell half of a surrogate pair, which no file can hold.
    for one in (text, *labels):
        try:
            one.encode("utf-8")
        except UnicodeEncodeError as error:
            raise bad(path, line, "half of a surrogate pair", "text that UTF-8 can hold") from error


def _wanted(columns: Columns, need_labels: bool) -> tuple[tuple[str, str, bool], ...]:
    """Name of each column, the option that says it, and whether it must be there."""
    return (columns.text, "--text-column", True), (columns.labels, "--label-column", need_labels)


def _jsonl(path: Path, columns: Columns, need_labels: bool) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in iter_text(path):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise bad(path, number, f"{shown(line.strip())} ({error})", "a JSON object") from error
        if not isinstance(record, dict):
            raise bad(path, number, shown(line.strip()), "a JSON object")
        for column, option, needed in _wanted(columns, need_labels):
            if needed and column not in record:
                wanted = f"{column!r} among them, or {option} with the name of another"
                raise bad(path, number, f"the keys {shown(', '.join(record))}", wanted)
        text, labels = record[columns.text], record.get(columns.labels)
        if not isinstance(text, str):
            raise bad(path, number, f"{columns.text!r} of type {type(text).__name__}", "a string")
        if labels is None and not need_labels:
            labels = []
        labels = [labels] if type(labels) in (str, int) else labels
        # By type: isinstance takes true and false for whole numbers.
        if not isinstance(labels, list) or not all(type(label) in (str, int) for label in labels):
            kinds = sorted({type(one).__name__ for one in labels}) if isinstance(labels, list) else []
            found = f"{columns.labels!r} of type {type(labels).__name__}{' of ' * bool(kinds)}{', '.join(kinds)}"
            raise bad(path, number, found, "a list of strings or whole numbers, or one of them")
        yield number, text, [str(label) for label in labels]


def _table(path: Path, columns: Columns, need_labels: bool, mark: str) -> Iterator[tuple[int, str, list[str]]]:
    # Documents can be longer than the module's 128 KiB. The limit is the process's: it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader((line for _, line in iter_text(path)), delimiter=mark, strict=True)
    start = 1
    try:
        header = next(reader)
        position = {name: header.index(name) for name in (columns.text, columns.labels) if name in header}
        for name, option, needed in _wanted(columns, need_labels):
            if needed and name not in position:
                wanted = f"a column {name!r}, or {option} with the name of another"
                raise bad(path, 1, f"the columns {shown(', '.join(header))}", wanted)
            if header.count(name) > 1:
                raise bad(path, 1, f"two columns {name!r}", "one")
        start = reader.line_num + 1
        for row in reader:
            if len(row) not in (0, len(header)):
                raise bad(path, start, f"{len(row)} fields", f"{len(header)}, as in the header")
            if row:
                field = row[position[columns.labels]] if columns.labels in position else ""
                labels = [label.strip(" ") for label in field.split(columns.separator)]
                yield start, row[position[columns.text]], [label for label in labels if label]
            start = reader.line_num + 1
    except csv.Error as error:
        raise bad(
            path, start, f"a row that cannot be read ({error})", "quotes as spreadsheets write them"
        ) from error


def _fasttext(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in iter_text(path):
        if not line.isspace():
            yield number, _LABEL_WORD.sub("", line).strip(), _LABEL_WORD.findall(line)


def _annif(path: Path, need_labels: bool) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in iter_text(path):
        if line.isspace():
            continue
        text, tab, field = line.rstrip("\r\n").partition("\t")
        if not tab and need_labels:
            raise bad(path, number, f"no tab in {shown(text)}", "text, a tab, subject URIs")
        uris = field.split()
        yield number, text, [uri[1:-1] if uri[0] + uri[-1] == "<>" else uri for uri in uris]


@dataclass
class Labelled:
    """Texts of one file, and their labels as numbers into `vocabulary`, which several files may share."""

    texts: list[str]
    ids: array[int]
    counts: array[int]

    @classmethod
    def gather(cls, records: Iterable[Record], vocabulary: dict[str, int]) -> Labelled:
        """Read `records` to their end; new labels are added to `vocabulary`."""
        out = cls([], array("q"), array("q"))
        for record in records:
            out.texts.append(record.text)
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
        return Split(None, Y, self.texts)


def read_splits(
    train: Iterable[Record], test: Iterable[Record] | None = None
) -> tuple[Split, Split | None, list[str]]:
    """Number the labels and build the splits.

    Labels are numbered in the sorted order of their names in `train`; those only in `test` follow, sorted.
    """
    vocabulary: dict[str, int] = {}
    first = Labelled.gather(train, vocabulary)
    known = len(vocabulary)
    second = None if test is None else Labelled.gather(test, vocabulary)
    names = list(vocabulary)
    names = sorted(names[:known]) + sorted(names[known:])
    position = np.empty(len(names), np.int32)
    position[[vocabulary[name] for name in names]] = np.arange(len(names))
    return first.split(position), None if second is None else second.split(position), names


def write_records(
    path: Path | str,
    records: Iterable[Record],
    kind: str,
    columns: Columns | None = None,
) -> None:
    """Write documents in one of `FORMATS`; compressed if the name ends in `.gz`.

    What a format cannot hold (a line end in a fastText text, a space in its label…) raises `DataError`.
    """
    path, columns = Path(path), columns or Columns()
    if kind not in FORMATS:
        raise ParameterError(f"kind is {kind!r}; wanted one of {', '.join(FORMATS)}")
    line_of = _LINES.get(kind) or partial(_table_line, mark=_DELIMITER[kind])
    with writing(path) as out:
        if kind in _DELIMITER:
            out.write(_fields([columns.text, columns.labels], _DELIMITER[kind]))
        for number, record in enumerate(records, 1):
            if fault := next(filter(None, map(label_fault, record.labels)), None):
                raise DataError(f"document {number}: found {record.labels!r}, {fault}")
            line = line_of(record, columns)
            if line is None:
                where = f"document {number}, for {path}"
                raise DataError(f"{where}: found {shown(repr(record))}; wanted what {kind} can hold")
            out.write(line)


def _json_line(record: Record, columns: Columns) -> bytes:
    content = {columns.text: record.text, columns.labels: list(record.labels)}
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _fields(fields: list[str], mark: str) -> bytes:
    out = io.StringIO()
    # Before Python 3.13 the module does not quote a carriage return by itself.
    if any("\r" in one for one in fields):
        csv.writer(out, delimiter=mark, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(fields)
    else:
        csv.writer(out, delimiter=mark, lineterminator="\n").writerow(fields)
    return out.getvalue().encode()


def _table_line(record: Record, columns: Columns, mark: str) -> bytes | None:
    if any(columns.separator in one or one != one.strip(" ") for one in record.labels) or "\0" in record.text:
        return None
    return _fields([record.text, columns.separator.join(record.labels)], mark)


def _fasttext_line(record: Record, columns: Columns) -> bytes | None:
    words = [f"__label__{label}" for label in record.labels]
    held = " ".join([*words, record.text])
    spaced = re.search(r"[ \t\v\f]", "".join(record.labels))
    if spaced or re.search(r"[\n\0]", held) or _LABEL_WORD.search(record.text) or held.isspace() or not held:
        return None
    return held.encode() + b"\n"


def _annif_line(record: Record, columns: Columns) -> bytes | None:
    if not record.labels and not record.text.strip():
        return None  # a blank line
    if re.search(r"[\t\n\r\0]", record.text) or any(re.search(r"[\s<>]", one) for one in record.labels):
        return None
    return f"{record.text}\t{' '.join(f'<{label}>' for label in record.labels)}\n".encode()


_LINES: dict[str, Callable[[Record, Columns], bytes | None]] = {
    "jsonl": _json_line,
    "fasttext": _fasttext_line,
    "annif": _annif_line,
}
