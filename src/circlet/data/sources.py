"""Documents with texts, from whatever holds them: lines of a file, a Parquet file, or a folder of plain texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from circlet.data import records
from circlet.data.parquet import iter_parquet
from circlet.data.plain import iter_texts, text_files
from circlet.data.records import Columns, Record

__all__ = ["FORMATS", "iter_documents", "size_of"]

#: The formats that hold texts, by the names that `circlet.data.recognize` has for them.
FORMATS = (*records.FORMATS, "parquet", "plain")


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
