"""Parquet files with a column of texts and one of lists of labels, read some rows at a time, by pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circlet.data.dataset import label_fault
from circlet.data.lines import bad, shown, writing
from circlet.data.records import Columns, Record
from circlet.errors import DataError
from circlet.extras import require

__all__ = ["MAGIC", "iter_parquet", "reading", "write_parquet"]

#: The first bytes of such a file.
MAGIC = b"PAR1"
_ROWS = 1024  # at a time


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
