"""Where files may be cut into blocks: after lines, after the rows of tables, and between Parquet's row groups.

Every block can be read without those before it. Compressed files are one block each, because they can only be read
from their start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import islice
from pathlib import Path

from circlet.data.lines import BOM, MAX_LINE, bad, decode, explained, iter_lines, peek
from circlet.data.load import is_there
from circlet.data.parquet import reading
from circlet.data.plain import LABELS, PLAIN
from circlet.data.recognize import IN_WORDS, is_annif, recognize
from circlet.data.records import DELIMITERS, FORMATS, Columns, header_delimiter, parse
from circlet.errors import DataError
from circlet.files import check_regular

__all__ = ["Block", "File", "cut", "find_files", "format_in", "unchanged"]

_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
_TEXTS = f"texts in Parquet, {', '.join(IN_WORDS[each] for each in FORMATS)}"
_TEXTS_OR_NO_ENGINE = f"{_TEXTS}, or circlet predict without --engine, which also reads plain texts"
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Block:
    """Part of a file: its bytes, or row groups of Parquet, from `start` to `end`.

    Attributes
    ----------
    start, end : int
    first : int
        The number of the first line, or of the first row of Parquet, from 1.
    size : int
        Bytes that are read.
    """

    start: int
    end: int
    first: int
    size: int


@dataclass(frozen=True)
class File:
    """A file with documents, as it was when it was cut.

    Attributes
    ----------
    path : str
        Absolute: workers have folders of their own.
    size, changed : int
        Bytes, and when they were changed, in nanoseconds.
    format : str
        One of `circlet.data.records.FORMATS`, or `parquet`; `empty` if there is nothing in it.
    compressed : bool
        Whether it is gzipped.
    header : int
        Bytes before the first row of a table, the names of its columns among them.
    integer_ids : bool
        Whether every document surely has an integer as its id.
    """

    path: str
    size: int
    changed: int
    format: str = "empty"
    compressed: bool = False
    header: int = 0
    integer_ids: bool = False


def find_files(inputs: Sequence[str]) -> list[Path]:
    """The files that inputs stand for: files, folders with files, and patterns such as `docs/**/*.parquet`.

    Files in folders and of patterns come in the order of their names. Hidden ones are left out, and those that
    start with an underscore: other programs keep notes there. Folders within a folder are not looked into.
    """
    found: list[Path] = []
    for each in inputs:
        path = Path(each)
        if is_there(path):
            paths = sorted(path.iterdir()) if path.is_dir() else None
        elif has_magic(each):
            paths = sorted(map(Path, glob(each, recursive=True)))  # noqa: PTH207 — it may be absolute
        else:
            raise DataError(f"{each}: found no such file or folder; wanted files with texts, or a pattern of them")
        if paths is None:
            found.append(path)
            continue
        files = [one for one in paths if one.is_file() and not one.name.startswith((".", "_"))]
        if not files and path.is_dir() and any(one.is_dir() for one in paths):
            pattern = path / "**" / "*.jsonl"
            raise DataError(
                f"{each}: found only folders, which are not looked into; wanted files with texts, or a pattern "
                f"with ** in quotes, such as '{pattern}'"
            )
        if not files:
            raise DataError(f"{each}: found no files; wanted at least one with texts")
        found += files
    return list(dict.fromkeys(path.absolute() for path in found))


def format_in(path: Path, columns: Columns) -> str:
    """The format of a file by its content, as in `File`."""
    check_regular(path)
    start = peek(path)
    if start.startswith(_PARQUET):
        return "parquet"
    if not start.strip():
        return "empty"
    if _is_beside_text(path, start, columns):
        found = f"the labels of {path.with_suffix(PLAIN).name}, a plain text beside it"
        raise bad(path, None, found, _TEXTS_OR_NO_ENGINE)
    kind = recognize(path, columns)
    if kind not in FORMATS:
        raise bad(path, None, IN_WORDS.get(kind, kind), _TEXTS_OR_NO_ENGINE if kind == "plain" else _TEXTS)
    return kind


def _is_beside_text(path: Path, start: bytes, columns: Columns) -> bool:
    """Whether a file has the labels of a plain text beside it, as far as its name and its first line tell."""
    if path.suffix not in LABELS or not path.with_suffix(PLAIN).is_file():
        return False
    first = start.lstrip().partition(b"\n")[0].decode("utf-8", "replace")
    return not is_annif(first) and header_delimiter(first, columns.text) is None


def unchanged(file: File) -> None:
    """Refuse a file that is not what it was when it was cut."""
    if (now := _stat(Path(file.path))) != (file.size, file.changed):
        what = "size" if now[0] != file.size else "time of change"
        raise DataError(
            f"{file.path}: found another {what} than when its blocks were planned; wanted the file as it was, or "
            "another folder for the output"
        )


def cut(path: Path, columns: Columns, size: int) -> tuple[File, list[Block]]:
    """Cut a file into blocks of about so many bytes; empty files have none.

    A line, a row of a table or a row group of Parquet is never cut, however large it is. CSV and TSV are read
    completely, since a line may end inside of quotes; their faulty rows raise `DataError` here.
    """
    before, kind = _stat(path), format_in(path, columns)
    compressed = _starts_with(path, _GZIP)
    header, integer_ids = 0, False
    if kind == "empty":
        blocks: list[Block] = []
    elif kind == "parquet":
        blocks, integer_ids = _cut_parquet(path, columns, size)
    elif compressed:
        blocks = [Block(0, before[0], 1, before[0])]
    elif kind in DELIMITERS:
        blocks = list(_cut_table(path, kind, columns, size))
        header = blocks[0].start if blocks else 0
    else:
        blocks = list(_cut_lines(path, size))
    file = File(str(path), *before, kind, compressed, header, integer_ids)
    unchanged(file)
    return file, blocks


def _stat(path: Path) -> tuple[int, int]:
    with explained(path):
        found = path.stat()
    return found.st_size, found.st_mtime_ns


def _starts_with(path: Path, magic: bytes) -> bool:
    with explained(path), path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _cut_lines(path: Path, size: int) -> Iterator[Block]:
    start, first = 0, 1
    with explained(path), path.open("rb") as stream:
        while content := stream.read(size):
            if not content.endswith(b"\n"):
                content += stream.readline(MAX_LINE + 1)  # whoever reads the block refuses longer lines
            end = start + len(content)
            if content.strip():
                yield Block(start, end, first, len(content))
            start, first = end, first + content.count(b"\n")


def _cut_table(path: Path, kind: str, columns: Columns, size: int) -> Iterator[Block]:
    mark = len(BOM) if _starts_with(path, BOM) else 0
    end, number = mark, 0  # of the lines that have been read

    def lines() -> Iterator[tuple[int, str]]:
        nonlocal end, number
        for number, line in iter_lines(path):
            end += len(line)
            yield number, decode(path, number, line)

    start = first = rows = 0
    # Rows are taken from the parser that will read them again, so both agree on where they end.
    for record in parse(lines(), path, kind, columns, need_labels=False):
        if not first:
            first = record.line
            start = mark + sum(len(line) for _, line in islice(iter_lines(path), first - 1))
        rows += 1
        if end - start >= size:
            yield Block(start, end, first, end - start)
            start, first, rows = end, number + 1, 0
    if rows:
        yield Block(start, end, first, end - start)


def _cut_parquet(path: Path, columns: Columns, size: int) -> tuple[list[Block], bool]:
    """Blocks, and whether all ids are integers."""
    with reading(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        rows, sizes = [each.num_rows for each in groups], [each.total_byte_size for each in groups]
    if columns.text not in schema.names:
        wanted = f"a column {columns.text!r}, or --text-column with the name of another"
        raise bad(path, None, f"the columns {', '.join(schema.names)}", wanted)
    blocks, start, first = [], 0, 1
    for number, _ in enumerate(groups):
        if (held := sum(sizes[start : number + 1])) >= size or number + 1 == len(groups):
            if n := sum(rows[start : number + 1]):
                blocks.append(Block(start, number + 1, first, held))
            start, first = number + 1, first + n
    integer_ids = columns.id in schema.names and str(schema.field(columns.id).type) in _INTEGERS
    return blocks, integer_ids
