"""Read and write documents with texts, one at a time, from files, folders and streams.

All texts are UTF-8, compressed by gzip or not.

- `jsonl`: one object per line; labels are a list of strings, or one string for a single label. An integer may
  replace a string; the label's name is then its decimal digits.
- `csv`, `tsv`: a header names the columns, which in CSV may be separated by semicolons; fields are quoted as
  spreadsheets do; labels share one field, with a separator between them or as a list. Spaces around a label and
  empty labels are dropped.
- `fasttext`: every word that starts with `__label__` is a label; the text is the rest of the line.
- `annif`: text, a tab, subject URIs separated by spaces, with or without angle brackets; no header.
- `parquet`: a column of texts and one of lists of labels, read by pyarrow a few rows at a time.
- `plain`: one document per file, with its labels in a second file, as in Annif's full-text corpora. The labels of
  `report.txt` are in `report.tsv`, one per line: a URI with or without angle brackets, optionally followed by a
  tab and a name; or in `report.key`, one name per line. The path of the text file is the document's id.
- A stream such as standard input is read once. Its first non-empty line determines the format. The writer of a
  pipe may expect an answer before it sends the next line, so `iter_stream` calls back before it waits.

CSV and TSV files rarely state how labels are separated. `guess_separator` looks at some of the fields and needs
clear evidence: parts of a field that also occur as labels in other rows, either alone or at a different position.
"Paris, France" and "Lyon, France" are no evidence, because France is always in second position.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import logging
import re
import select
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from circlet.checks import require
from circlet.data.dataset import check_label, label_fault
from circlet.errors import DataError, ParameterError, bad, shown
from circlet.files import BOM, MAX_LINE, decode, explained, iter_text, open_bytes, writing

logger = logging.getLogger(__name__)
#: Formats with a document on each line or row of a file, and all formats; named as in `circlet.data.load`.
LINE_FORMATS = ("jsonl", "csv", "tsv", "fasttext", "annif")
FORMATS = (*LINE_FORMATS, "parquet", "plain")
DELIMITERS = {"csv": ",", "tsv": "\t"}

#: The separator if there is no evidence for another one.
SEPARATOR = ";"

#: Instead of a separator: each field is a list in Python's or JSON's notation, such as ['a', 'b'].
LISTS = "[]"
_CANDIDATES = ("|", "\t", ",")

# fastText splits at ASCII spaces only, so a label may contain other spaces.
_LABEL_WORD = re.compile(r"(?:^|(?<=[ \t\v\f\r\n]))__label__([^ \t\v\f\r\n]*)[ \t\v\f\r\n]?")
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_PYTHON_LIST = re.compile(
    rf"\[\s*(?:(?:'(?:[^'\\\r\n]|{_ESCAPE})*'|\"(?:[^\"\\\r\n]|{_ESCAPE})*\"|-?[0-9]{{1,18}})\s*(?:,\s*|(?=\])))*\]"
)

#: Numbered lines, and the results of the parsers: line, text, labels, id.
Lines = Iterator[tuple[int, str]]
_Parsed = Iterator[tuple[int, str, list[str], str | int | None]]


@dataclass(frozen=True)
class Record:
    """One document: its first line's number, its text, and its distinct labels in their original order.

    `id` is None unless `Columns` names a column of ids and the document has an id.
    """

    line: int
    text: str
    labels: tuple[str, ...]
    id: str | int | None = None


@dataclass(frozen=True)
class Columns:
    """Column names of JSONL, CSV and TSV files, and the separator of labels in CSV and TSV.

    The separator `[]` stands for lists in Python's or JSON's notation; None leaves it to `with_separator`. `id`
    names the column of ids; None reads no ids, and a file need not have the column.
    """

    text: str = "text"
    labels: str = "labels"
    separator: str | None = None
    id: str | None = None

    @classmethod
    def unlabeled(cls, text: str) -> Columns:
        """Return the columns of documents to tag: texts, and ids unless `id` is the column of texts."""
        return cls(text=text, id=None if text == "id" else "id")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str) and (value is not None or name in ("text", "labels")):
                raise ParameterError(f"found {shown(str(value))} as the {name} of columns; wanted text")
        if self.separator == "" or self.text == self.labels:
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
    progress: Callable[[int], object] | None = None,
) -> Iterator[Record]:
    """Read the documents of a file, compressed or not, or of a folder of plain texts, one at a time.

    `kind` is one of `FORMATS`, such as `circlet.data.load.recognize` returns. `progress` is called with the number
    of (decompressed) bytes of each line or text; in Parquet, with a row's share.

    Unless `need_labels`, accept records without labels, as for prediction; labels of plain texts are then not
    read. Otherwise, plain texts without a file of labels are left out.
    """
    path, columns = Path(path), columns or Columns()
    if kind not in FORMATS:
        raise ParameterError(f"found the format {kind!r}; wanted one of {', '.join(FORMATS)}")
    if kind == "parquet":
        yield from iter_parquet(path, columns, need_labels=need_labels, progress=progress)
        return
    if kind == "plain":
        yield from _iter_texts(path, need_labels, progress)
        return
    if need_labels:
        columns, _ = with_separator(path, kind, columns)
    empty = True
    for record in parse(iter_text(path, progress), path, kind, columns, need_labels=need_labels):
        empty = False
        yield record
    if empty:
        raise bad(path, None, "no documents", "at least one")


def with_separator(path: Path, kind: str, columns: Columns) -> tuple[Columns, str]:
    """Guess the separator of labels in a CSV or TSV file, unless `columns` has one.

    Returns the columns with a separator, for this file and others of the same dataset, and a description of it for
    users, with any doubt about it; empty for other formats.
    """
    if kind not in DELIMITERS:
        return columns, ""
    if columns.separator is not None:
        return columns, separator_name(columns.separator)
    fields: list[str] = []  # up to 200 that are not empty, from the first rows
    with suppress(DataError):  # `iter_records` reports the error, after the records before it
        for _, _, field, _ in islice(_rows(iter_text(path), path, kind, columns, True), 2000):
            if field.strip():
                fields.append(field)
            if len(fields) == 200:
                break
    found = guess_separator(fields)
    words = found.words
    if found.doubt:
        words += f" (but {found.doubt}: is --label-separator needed?)"
        logger.warning("%s: found %s", path, words)
    return replace(columns, separator=found.separator), words


def parse(
    lines: Lines, where: Path | str, kind: str, columns: Columns, *, need_labels: bool = True
) -> Iterator[Record]:
    """Yield documents from numbered lines, one at a time; error messages start with `where`."""
    parser = {"jsonl": _jsonl, "fasttext": _fasttext, "annif": _annif}.get(kind) or partial(_table, kind=kind)
    for line, text, labels, identifier in parser(lines, where, columns, need_labels):
        yield record_of(where, line, text, labels, identifier)


def record_of(where: Path | str, line: int, text: str, labels: list[str], identifier: str | int | None) -> Record:
    """Check the parts of a document and return its record."""
    for label in labels:
        check_label(label, where, line)
    try:  # JSON can spell half of a surrogate pair, which no file can hold
        text.encode()
        str(identifier).encode()
    except UnicodeEncodeError as error:
        raise bad(where, line, "half of a surrogate pair", "text that UTF-8 can hold") from error
    return Record(line, text, tuple(dict.fromkeys(labels)), identifier)


def check_columns(
    where: Path | str,
    line: int | None,
    found: Collection[str],
    columns: Columns,
    need_labels: bool,
    what: str = "the columns",
    wanted: str = "a column {!r}",
) -> None:
    """Raise `DataError` unless the columns are there."""
    for name, option, needed in (
        (columns.text, "--text-column", True),
        (columns.labels, "--label-column", need_labels),
    ):
        if needed and name not in found:
            wanted = f"{wanted.format(name)}, or {option} with the name of another"
            raise bad(where, line, f"{what} {shown(', '.join(found))}", wanted)


def _jsonl(lines: Lines, where: Path | str, columns: Columns, need_labels: bool) -> _Parsed:
    for number, line in lines:
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise bad(where, number, f"{shown(line.strip())} ({error})", "a JSON object") from error
        if not isinstance(record, dict):
            raise bad(where, number, shown(line.strip()), "a JSON object")
        check_columns(where, number, record, columns, need_labels, "the keys", "{!r} among them")
        yield number, *parts_of(where, number, record, columns, need_labels)


def parts_of(
    where: Path | str, number: int, record: dict[str, Any], columns: Columns, need_labels: bool
) -> tuple[str, list[str], str | int | None]:
    """Return text, labels and id of an object with keys, or of a row with columns."""
    text, labels = record[columns.text], record.get(columns.labels)
    if not isinstance(text, str):
        raise bad(where, number, f"{columns.text!r} of type {type(text).__name__}", "a string")
    if labels is None and not need_labels:
        labels = []
    # By type, because isinstance takes true and false for integers.
    labels = [labels] if type(labels) in (str, int) else labels
    if not isinstance(labels, list) or not all(type(label) in (str, int) for label in labels):
        kinds = sorted({type(one).__name__ for one in labels}) if isinstance(labels, list) else []
        found = f"{columns.labels!r} of type {type(labels).__name__}{' of ' * bool(kinds)}{', '.join(kinds)}"
        raise bad(where, number, found, "a list of strings or integers, or one of them")
    identifier = None if columns.id is None else record.get(columns.id)
    if identifier is not None and type(identifier) not in (str, int):
        found = f"{columns.id!r} of type {type(identifier).__name__}"
        raise bad(where, number, found, "a string or an integer")
    return text, [str(label) for label in labels], identifier


def _table(lines: Lines, where: Path | str, columns: Columns, need_labels: bool, kind: str) -> _Parsed:
    separator = columns.separator or SEPARATOR
    for number, text, field, identifier in _rows(lines, where, kind, columns, need_labels):
        labels = split_field(field, separator)
        if labels is None:
            wanted = "a list such as ['a', 'b'] as in the first rows, or --label-separator"
            raise bad(where, number, f"the labels {shown(field)}", wanted)
        yield number, text, labels, identifier


def _rows(
    lines: Lines, where: Path | str, kind: str, columns: Columns, need_labels: bool
) -> Iterator[tuple[int, str, str, str | None]]:
    """Yield line, text, label field and id of each row of a table; an empty id becomes None."""
    # Texts may be longer than the csv module's limit of 128 KiB. Never lower it: it applies to the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    first, top = next(((number, line) for number, line in lines if not line.isspace()), (1, ""))
    mark = (header_delimiter(top, columns.text, ",;") if kind == "csv" else None) or DELIMITERS[kind]
    reader = csv.reader(chain([top], (line for _, line in lines)), delimiter=mark, strict=True)
    start = first
    try:
        header = next(reader)
        names = (columns.text, columns.labels, columns.id)
        position = {name: header.index(name) for name in names if name in header}
        check_columns(where, first, header, columns, need_labels)
        for name in position:
            if header.count(name) > 1:
                raise bad(where, first, f"two columns {name!r}", "one")
        start = first + reader.line_num
        for row in reader:
            if len(row) not in (0, len(header)):
                raise bad(where, start, f"{len(row)} fields", f"{len(header)}, as in the header")
            if row:
                labels = row[position[columns.labels]] if columns.labels in position else ""
                identifier = row[position[columns.id]] if columns.id in position else ""
                yield start, row[position[columns.text]], labels, identifier or None
            start = first + reader.line_num
    except csv.Error as error:
        found = f"a row that cannot be read ({error})"
        raise bad(where, start, found, "quotes as spreadsheets write them") from error


def header_delimiter(header: str, column: str, marks: Iterable[str] = ("\t", ",", ";")) -> str | None:
    """Return the one of `marks` that separates a header's columns, or None if no mark yields `column`."""
    for mark in marks:
        with suppress(csv.Error):  # then the line is not the header of a table
            if column in next(csv.reader([header[: 1 << 16]], delimiter=mark), []):
                return mark
    return None


def _fasttext(lines: Lines, where: Path | str, columns: Columns, need_labels: bool) -> _Parsed:
    for number, line in lines:
        if not line.isspace():
            yield number, _LABEL_WORD.sub("", line).strip(), _LABEL_WORD.findall(line), None


def _annif(lines: Lines, where: Path | str, columns: Columns, need_labels: bool) -> _Parsed:
    for number, line in lines:
        if line.isspace():
            continue
        text, tab, field = line.rstrip("\r\n").partition("\t")
        if not tab and need_labels:
            raise bad(where, number, f"no tab in {shown(text)}", "text, a tab, subject URIs")
        uris = field.split()
        yield number, text, [uri[1:-1] if uri[0] + uri[-1] == "<>" else uri for uri in uris], None


def is_annif(line: str) -> bool:
    """Whether a line consists of text, a tab, and subject URIs."""
    _, tab, uris = line.rstrip("\r\n").partition("\t")
    return bool(tab) and all(re.fullmatch(r"<\S+>|\S+:\S+", uri) for uri in uris.split())


class Notation(NamedTuple):
    """The result of `guess_separator`: a separator or `LISTS`, its description, and a doubt about it, if any."""

    separator: str
    words: str
    doubt: str = ""


def guess_separator(fields: Sequence[str]) -> Notation:
    """Guess the separator of labels from non-empty label fields; about 200 are enough."""
    fields = [field.strip(" ") for field in fields]
    distinct = list(dict.fromkeys(fields))
    if distinct and all(parse_list(field) is not None for field in distinct):
        return Notation(LISTS, separator_name(LISTS))
    separator, words = SEPARATOR, "one label per row"
    if any(SEPARATOR in field for field in distinct):
        words = separator_name(SEPARATOR)
    elif found := next((mark for mark in _CANDIDATES if _separates(mark, distinct)), None):
        separator, words = found, separator_name(found)
    return Notation(separator, words, _doubt(fields, separator))


def separator_name(separator: str) -> str:
    """Describe a separator to users."""
    if separator == LISTS:
        return "labels as lists"
    return f"labels separated by {'tabs' if separator == chr(9) else separator}"


def _separates(mark: str, fields: list[str]) -> bool:
    """Whether distinct fields give clear evidence that `mark` separates labels."""
    split = [list(dict.fromkeys(split_field(field, mark) or [])) for field in fields]
    several = [parts for parts in split if len(parts) > 1]
    places: dict[str, set[int]] = {}
    for parts in several:
        for place, part in enumerate(parts):
            places.setdefault(part, set()).add(place)
    # Independent labels: alone in a row, or at different positions in different rows.
    free = {parts[0] for parts in split if len(parts) == 1}
    free |= {part for part, at in places.items() if len(at) > 1}
    if mark == "," and any(", " in field for field in fields):
        # Single labels may contain commas, so most parts must be labels. In "Art, French" beside "Art", half are.
        return sum(part in free for parts in several for part in parts) > 0.6 * sum(map(len, several))
    with_free = sum(not free.isdisjoint(parts) for parts in several)
    return with_free > 0 and with_free >= 0.2 * len(several)


def _doubt(fields: list[str], separator: str) -> str:
    """Describe what looks wrong with the fields when they are split, or return an empty string."""
    lists = sum(field.startswith("[") and field.endswith("]") for field in fields)
    if lists and lists >= len(fields) / 2:
        return "labels look like lists, but not in Python's or JSON's notation"
    if len(fields) >= 3 and len(set(fields)) >= 0.9 * len(fields):
        for mark in _CANDIDATES:
            if sum(mark in field and separator not in field for field in fields) >= 0.9 * len(fields):
                return f"nearly every row has a label of its own, with {mark!r} in it"
    return ""


def split_field(field: str, separator: str) -> list[str] | None:
    """Split a field into labels, without surrounding spaces and without empty labels.

    Returns None if the field should be a list and is not.
    """
    labels = field.split(separator) if separator != LISTS else parse_list(field) if field.strip() else []
    return None if labels is None else [label for part in labels if (label := part.strip(" "))]


def parse_list(field: str) -> list[str] | None:
    """Parse a list of strings and integers in Python's or JSON's notation; return None for anything else."""
    field = field.strip()
    if not field.startswith("[") or not field.endswith("]") or len(field) > 1 << 20:
        return None
    try:
        items = json.loads(field)
    except (ValueError, RecursionError):
        # The pattern accepts only a flat list without adjacent strings, which Python would concatenate.
        if not _PYTHON_LIST.fullmatch(field):
            return None
        try:
            items = ast.literal_eval(field)
        except (ValueError, SyntaxError):  # an integer such as 007, or an escape beyond Unicode
            return None
    # By type, because isinstance takes true and false for integers.
    return [str(item) for item in items] if all(type(item) in (str, int) for item in items) else None


def write_records(path: Path | str, records: Iterable[Record], kind: str, columns: Columns | None = None) -> None:
    """Write documents in one of `LINE_FORMATS`; compressed if the name ends in `.gz`.

    In CSV and TSV, labels are separated by `;` unless `columns` has another separator. Raises `DataError` for a
    document that the format cannot represent: in fastText, for instance, a label with a space.
    """
    path, columns = Path(path), columns or Columns()
    if kind not in LINE_FORMATS:
        raise ParameterError(f"found the format {kind!r}; wanted one of {', '.join(LINE_FORMATS)}")
    with writing(path) as out:
        if kind in DELIMITERS:
            out.write(table_row([columns.text, columns.labels], DELIMITERS[kind]))
        for number, record in enumerate(records, 1):
            if fault := next(filter(None, map(label_fault, record.labels)), None):
                found, wanted = fault
                raise DataError(f"document {number}: found {record.labels!r}, {found}; wanted {wanted}")
            line = _line(record, kind, columns)
            if line is None:
                where = f"document {number}, for {path}"
                raise DataError(f"{where}: found {shown(repr(record))}; wanted what {kind} can hold")
            out.write(line)


def _line(record: Record, kind: str, columns: Columns) -> bytes | None:
    """Format a document as one line; return None if the format cannot represent it."""
    text, labels = record.text, list(record.labels)
    if kind == "jsonl":
        return json.dumps({columns.text: text, columns.labels: labels}, ensure_ascii=False).encode() + b"\n"
    if kind in DELIMITERS:
        separator = columns.separator or SEPARATOR
        field = json.dumps(labels, ensure_ascii=False) if separator == LISTS else separator.join(labels)
        fits = split_field(field, separator) == labels and "\0" not in text
        return table_row([text, field], DELIMITERS[kind]) if fits else None
    if kind == "fasttext":
        line = " ".join([*(f"__label__{label}" for label in labels), text])
        spaced = re.search(r"[ \t\v\f]", "".join(labels))
        fits = not (spaced or re.search(r"[\n\0]", line) or _LABEL_WORD.search(text)) and bool(line.strip())
    else:
        line = f"{text}\t{' '.join(f'<{label}>' for label in labels)}"
        odd = re.search(r"[\t\n\r\0]", text) or any(re.search(r"[\s<>]", label) for label in labels)
        fits = not odd and bool(labels or text.strip())  # not a blank line
    return f"{line}\n".encode() if fits else None


def table_row(fields: list[str], mark: str) -> bytes:
    """Format fields as a line of CSV or TSV, with quotes where needed."""
    out = io.StringIO()
    # Before Python 3.13, the csv module does not quote carriage returns.
    if any("\r" in one for one in fields):
        csv.writer(out, delimiter=mark, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(fields)
    else:
        csv.writer(out, delimiter=mark, lineterminator="\n").writerow(fields)
    return out.getvalue().encode()


def line_writer(kind: str, columns: Iterable[str]) -> tuple[bytes, Callable[[dict[str, Any]], bytes]]:
    """Return the header of JSONL, CSV or TSV output, and a function that formats a row, a dict by column.

    In CSV and TSV, a list is written in JSON's notation, in one field.
    """
    if kind == "jsonl":
        return b"", lambda row: (json.dumps(row, ensure_ascii=False) + "\n").encode()
    mark = DELIMITERS[kind]

    def field(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)

    return table_row(list(columns), mark), lambda row: table_row([*map(field, row.values())], mark)


#: The suffix of plain texts.
TEXT_SUFFIX = ".txt"
#: The suffixes of files with their labels; the first file that exists counts.
LABEL_SUFFIXES = (".tsv", ".key")
#: The first bytes of a Parquet file.
PARQUET_MAGIC = b"PAR1"


def size_of(path: Path) -> int | None:
    """Return about how many bytes `progress` of `iter_records` will count, or None if a file is compressed."""
    paths = text_files(path)
    return None if any(each.suffix == ".gz" for each in paths) else sum(each.stat().st_size for each in paths)


def text_files(path: Path) -> list[Path]:
    """Return the plain texts of a folder and its subfolders, sorted; for a file, the file itself.

    Hidden files and folders, such as `.git`, are left out.
    """
    if not path.is_dir():
        return [path] if path.is_file() else []
    texts = (each for each in path.rglob("*") if each.suffix.lower() == TEXT_SUFFIX and each.is_file())
    return sorted(each for each in texts if not re.search(r"(^|/)\.", each.relative_to(path).as_posix()))


def _iter_texts(path: Path, need_labels: bool, progress: Callable[[int], object] | None) -> Iterator[Record]:
    found = False
    for number, file in enumerate(text_files(path), 1):
        labels = _labels_of(file) if need_labels else ()
        if labels is None:
            continue
        found = True
        content = bytearray()
        with explained(file), open_bytes(file) as stream:
            while block := stream.read(1 << 20):
                content += block
                if len(content) > MAX_LINE:
                    raise bad(file, None, f"more than {MAX_LINE:,} bytes", "the text of one document")
        if b"\0" in content:
            raise bad(file, None, "a zero byte (a binary file?)", "text")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise bad(file, None, f"byte 0x{content[error.start]:02x}", "UTF-8 text") from error
        if progress is not None:
            progress(len(text))
        yield Record(number, text, labels, file.relative_to(path).as_posix() if path.is_dir() else file.name)
    if not found:
        wanted = "its labels beside it: those of a.txt in a.tsv or a.key"
        raise bad(path, None, "plain text without labels", wanted)


def _labels_of(path: Path) -> tuple[str, ...] | None:
    """Return the labels in the file beside a text, or None if there is no such file."""
    file = next((each for ending in LABEL_SUFFIXES if (each := path.with_suffix(ending)).is_file()), None)
    if file is None:
        return None
    labels = []
    for number, line in iter_text(file) if file.stat().st_size else ():
        if not line.isspace():
            label = line.rstrip("\r\n").partition("\t")[0] if file.suffix == ".tsv" else line.strip()
            labels.append(label[1:-1] if label[:1] + label[-1:] == "<>" else label)
            check_label(labels[-1], file, number)
    return tuple(dict.fromkeys(labels))


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
    with open_parquet(path) as file:
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
def open_parquet(path: Path) -> Iterator[Any]:
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
    with more than 65,536 empty lines. Error messages start with `name`.

    `before_waiting` is called when all complete documents that have arrived are read, before waiting for more.
    Where the system cannot tell whether more has arrived (on Windows), it is called before each read.
    """
    columns, lines = columns or Columns(), _lines(stream, name, before_waiting)
    start: list[tuple[int, str]] = []
    for numbered in lines:
        start.append(numbered)
        if numbered[1].strip() or len(start) > 1 << 16:  # holding more empty lines could exhaust the memory
            break
    kind = _kind(start[-1][1], columns) if start and start[-1][1].strip() else None
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
                yield number, decode(name, number, held.removeprefix(BOM if number == 1 else b""))
                number += 1
                held.clear()
    if held:
        yield number, decode(name, number, held.removeprefix(BOM if number == 1 else b""))


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
