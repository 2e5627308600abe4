"""Plan a run: cut its files into blocks, and store these with the options that decide what is written.

Files are cut after lines, after the rows of tables, and between Parquet's row groups. Every block can be read
without those before it. A compressed file is one block, because it can only be read from its start.

The plan is written once to `_plan.json` in the output folder, before any block is tagged. A block is done if the
file with its labels exists, under a name that only this block has. So a run that was killed continues with the
blocks whose files are missing. Programs that read a folder of Parquet files skip names with an underscore.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from glob import glob, has_magic
from itertools import chain, islice
from pathlib import Path
from typing import Any

from circlet import files
from circlet.data.load import FORMAT_NAMES, path_exists, recognize
from circlet.data.records import (
    DELIMITERS,
    LABEL_SUFFIXES,
    LINE_FORMATS,
    TEXT_SUFFIX,
    Columns,
    Record,
    header_delimiter,
    is_annif,
    iter_parquet,
    open_parquet,
    parse,
)
from circlet.errors import DataError, OutputError, bad
from circlet.files import BOM, MAX_LINE, check_regular, decode, explained, iter_lines, iter_text, peek
from circlet.identity import Identity
from circlet.version import __version__

PLAN = "_plan.json"
_FORMAT = "circlet plan 1"


@dataclass(frozen=True)
class Block:
    """Part of a file: its bytes, or row groups of Parquet, from `start` to `end`."""

    start: int
    end: int
    first: int  # number of the first line, or of the first row of Parquet, from 1
    size: int  # bytes to read


@dataclass(frozen=True)
class File:
    """A file with documents, as it was when it was cut."""

    path: str  # absolute, since workers have other current folders
    size: int
    changed: int  # time in nanoseconds
    format: str = "empty"  # or "parquet", or one of `circlet.data.records.LINE_FORMATS`
    compressed: bool = False
    header: int = 0  # bytes before the first row of a table, including the names of its columns
    integer_ids: bool = False  # whether every document surely has an integer as its id


def find_files(inputs: Sequence[str]) -> list[Path]:
    """Return the files of inputs: files, folders with files, and patterns such as `docs/**/*.parquet`.

    Files of folders and patterns are sorted by name. Those whose name starts with a dot or an underscore are left
    out, since other programs keep notes there. Folders within a folder are not searched.
    """
    found: list[Path] = []
    for each in inputs:
        path = Path(each)
        if path_exists(path):
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
                f"{each}: found only folders, which are not searched; wanted files with texts, or a pattern "
                f"with ** in quotes, such as '{pattern}'"
            )
        if not files:
            raise DataError(f"{each}: found no files; wanted at least one with texts")
        found += files
    return list(dict.fromkeys(path.absolute() for path in found))


def format_in(path: Path, columns: Columns) -> str:
    """Recognize the format of a file, as in `File`, by its content."""
    texts = f"texts in Parquet, {', '.join(FORMAT_NAMES[each] for each in LINE_FORMATS)}"
    or_no_engine = f"{texts}, or circlet predict without --engine, which also reads plain texts"
    check_regular(path)
    start = peek(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    if not start.strip():
        return "empty"
    if path.suffix in LABEL_SUFFIXES and path.with_suffix(TEXT_SUFFIX).is_file():
        first = start.lstrip().partition(b"\n")[0].decode("utf-8", "replace")
        if not is_annif(first) and header_delimiter(first, columns.text) is None:  # as far as one line tells
            found = f"the labels of {path.with_suffix(TEXT_SUFFIX).name}, a plain text beside it"
            raise bad(path, None, found, or_no_engine)
    kind = recognize(path, columns)
    if kind not in LINE_FORMATS:
        raise bad(path, None, FORMAT_NAMES.get(kind, kind), or_no_engine if kind == "plain" else texts)
    return kind


def unchanged(file: File) -> None:
    """Raise `DataError` if a file has changed since it was cut."""
    if (now := _stat(Path(file.path))) != (file.size, file.changed):
        what = "size" if now[0] != file.size else "time of change"
        raise DataError(
            f"{file.path}: found another {what} than when its blocks were planned; wanted the file as it was, or "
            "another folder for the output"
        )


def cut(path: Path, columns: Columns, size: int) -> tuple[File, list[Block]]:
    """Cut a file into blocks of about `size` bytes; empty files have none.

    A line, a row of a table or a row group of Parquet is never cut, however large it is. CSV and TSV are read
    completely, since a line may end inside of quotes; their faulty rows raise `DataError` here.
    """
    before, kind = _stat(path), format_in(path, columns)
    compressed = _starts_with(path, b"\x1f\x8b")
    blocks: list[Block] = []
    header, integer_ids = 0, False
    if kind == "parquet":
        blocks, integer_ids = _cut_parquet(path, columns, size)
    elif compressed and kind != "empty":
        blocks = [Block(0, before[0], 1, before[0])]
    elif kind in DELIMITERS:
        blocks = list(_cut_table(path, kind, columns, size))
        header = blocks[0].start if blocks else 0
    elif kind != "empty":
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
    """Return the blocks of a file, and whether all ids are integers."""
    with open_parquet(path) as file:
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
    integers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
    return blocks, columns.id in schema.names and str(schema.field(columns.id).type) in integers


@dataclass(frozen=True)
class Options:
    """The options that decide which labels are written, and where, by the names of the command's options."""

    model: str  # the digest of the model, since its folder may be moved
    k: int
    threshold: float | None
    favor_rare: float
    text_column: str
    format: str
    block_size: int

    @property
    def identity(self) -> Identity:
        """Return what distinguishes this run from others."""
        values = {"-k" if name == "k" else f"--{name}": value for name, value in asdict(self).items()}
        return Identity(values, words={"--model": "another model"})


@dataclass(frozen=True)
class Task:
    """A block to tag."""

    file: File
    block: Block
    name: str  # with its line, the id of a document without an id
    part: str  # the name of the file to write


@dataclass(frozen=True)
class Plan:
    """The options of a run, and its files with their blocks, in the order of the input."""

    options: Options
    files: Sequence[tuple[File, Sequence[Block]]]

    @property
    def integer_ids(self) -> bool:
        """Whether all documents have integers as ids, so that all Parquet files can have a column of integers."""
        return all(file.integer_ids or not blocks for file, blocks in self.files)

    def tasks(self) -> Iterator[Task]:
        """Yield all blocks; the names of their parts sort in the order of the input."""
        paths = [file.path for file, _ in self.files]
        try:  # short names that are all different: the paths below the folder that all files are in
            top = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""  # noqa: PTH120
            names = [Path(path).relative_to(top).as_posix() for path in paths]
        except ValueError:  # on several drives of Windows
            names = [Path(path).as_posix() for path in paths]
        for number, ((file, blocks), name) in enumerate(zip(self.files, names, strict=True)):
            identity = f"{name}\n{file.size}\n{file.changed}"
            digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
            for position, block in enumerate(blocks):
                part = f"part-{number:05d}-{digest}-{position:05d}.{self.options.format}"
                yield Task(file, block, name, part)

    def save(self, folder: Path) -> None:
        """Write the plan into the output folder."""
        content = {
            "format": _FORMAT,
            "circlet": __version__,
            "options": asdict(self.options),
            "files": [{**asdict(file), "blocks": [*map(astuple, blocks)]} for file, blocks in self.files],
        }
        files.write_json(folder / PLAN, content)

    @classmethod
    def load(cls, folder: Path) -> Plan | None:
        """Read the plan in an output folder; return None if there is none."""
        path = folder / PLAN
        if not path.exists():
            return None
        content: Any = files.read_json(path)
        try:
            if content["format"] != _FORMAT:
                raise ValueError(f"the format {content['format']!r}")
            options = Options(**content["options"])
            planned = []
            for about in content["files"]:
                blocks = [Block(*map(int, block)) for block in about.pop("blocks")]
                planned.append((File(**about), blocks))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}: found no plan of this version ({error!r}); wanted another output folder"
            ) from error
        return cls(options, planned)

    def check(self, folder: Path, options: Options, paths: Sequence[Path]) -> None:
        """Raise a `DataError` that names the first difference from the plan's options and files."""
        wanted = "wanted the same, to continue that run, or another folder for the output"
        if other := options.identity.differences(self.options.identity.values):
            raise DataError(f"{folder}: found a run with {other[0]}; {wanted}")
        then, now = [file.path for file, _ in self.files], [str(path) for path in paths]
        if gone := next((path for path in then if path not in set(now)), None):
            raise DataError(f"{folder}: found a run with {gone}, which is not in the input now; {wanted}")
        if new := next((path for path in now if path not in set(then)), None):
            raise DataError(f"{folder}: found a run without {new}, which is in the input now; {wanted}")
        if then != now:
            raise DataError(f"{folder}: found a run with the same files in another order; {wanted}")
        for file, _ in self.files:
            unchanged(file)


def documents(file: File, block: Block, columns: Columns) -> Iterator[Record]:
    """Read the documents of a block, with their line or row numbers in the file.

    A faulty document raises a `DataError` that names file and line.
    """
    path = Path(file.path)
    if file.format == "parquet":
        groups = range(block.start, block.end)
        yield from iter_parquet(path, columns, need_labels=False, groups=groups, first=block.first)
        return
    if file.compressed:
        lines = iter_text(path)
    else:
        header = list(iter_text(path, end=file.header)) if file.header else []
        # As if the header stood right before the block, so that lines are counted as in the file.
        moved = ((block.first - len(header) + at, line) for at, (_, line) in enumerate(header))
        lines = chain(moved, iter_text(path, start=block.start, end=block.end, first=block.first))
    yield from parse(lines, path, file.format, columns, need_labels=False)


def check_folder(folder: Path) -> None:
    """Raise `OutputError` for an output folder that contains anything but a run."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(
            f"cannot write {folder}: found a file; wanted a folder, which gets a file for each block"
        )
    if folder.is_dir() and not (folder / PLAN).exists():
        others = (path.name for path in folder.iterdir() if not path.name.startswith("."))
        if other := next(others, None):
            raise OutputError(
                f"cannot write {folder}: found {other!r} and no {PLAN}; wanted an empty folder, or that of an "
                "earlier run"
            )
