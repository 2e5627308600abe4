"""Documents with the labels that a model suggests for them, written to JSONL, CSV, TSV or Parquet.

Each document has its `id`, its `labels`, best first, and their `scores`; and the `uris` of labels that have some.

- `jsonl`: an object per document; labels and scores are lists.
- `csv`, `tsv`: a header and a row per document; labels and scores are lists in JSON's notation, each in one field.
  `circlet.data.records` recognizes such labels, which may have any separator in them.
- `parquet`: a row per document; labels and scores are columns of lists.

JSONL, CSV and TSV are compressed if the file's name ends in `.gz`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from circlet.data.records import DELIMITERS, table_row
from circlet.errors import DataError, ParameterError
from circlet.extras import require
from circlet.files import writing

#: What the name of a file may end in.
ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")
_GROUP = 1 << 18  # labels to hold in memory for one row group of a Parquet file
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Tagged:
    """Labels of one document, best first, and their probabilities; labels without names are ids.

    `uris` are those of the labels, if they have URIs besides their names.
    """

    id: str | int
    labels: Sequence[str | int]
    scores: Sequence[float]
    uris: Sequence[str] | None = None

    def columns(self) -> dict[str, Any]:
        """What is written of it, by name."""
        uris = {} if self.uris is None else {"uris": self.uris}
        return {"id": self.id, "labels": self.labels, **uris, "scores": self.scores}


Write = Callable[[Sequence[Tagged]], object]


def format_of(path: Path) -> str:
    """The format that the name of a file asks for.

    Raises
    ------
    ParameterError
        If the name has none of the `ENDINGS`.
    MissingExtraError
        If it is Parquet, and pyarrow is not installed.
    """
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending not in ENDINGS or (ending == ".parquet" and path.suffix == ".gz"):
        *others, last = ENDINGS
        wanted = f"a name that ends in {', '.join(others)} or {last}"
        raise ParameterError(f"cannot tell the format of {path.name!r}; wanted {wanted}")
    if ending == ".parquet":
        require("pyarrow", extra="parquet", purpose="writing Parquet")
    return ending.removeprefix(".")


@contextmanager
def writing_tagged(path: Path, *, named: bool = True, with_uris: bool = False) -> Iterator[Write]:
    """Open a file for tagged documents, in the format that its name asks for, and yield what writes some of them.

    The file appears when the body ends; if an error ends it, whatever was at `path` stays.

    Parameters
    ----------
    path : Path
    named : bool
        Whether labels are names, not ids; Parquet has to know before it sees one.
    with_uris : bool
        Whether labels have URIs besides.
    """
    kind = format_of(path)
    with writing(path) as out:
        if kind == "parquet":
            with _RowGroups(out, named, with_uris) as groups:
                yield groups.write
            return
        header, lines = lines_of(kind, with_uris=with_uris)
        out.write(header)
        yield lambda documents: out.writelines(lines(documents))


def lines_of(kind: str, *, with_uris: bool) -> tuple[bytes, Callable[[Sequence[Tagged]], Iterator[bytes]]]:
    """How documents are written in a format of lines: what comes first, and what makes lines of some of them."""
    if kind == "jsonl":
        return b"", lambda documents: (json_line(document).encode() for document in documents)
    mark = DELIMITERS[kind]
    header = table_row(list(Tagged("", [], [], [] if with_uris else None).columns()), mark)
    return header, lambda documents: (_table_line(document, mark) for document in documents)


def json_line(document: Tagged) -> str:
    """A document as a line of JSONL."""
    return json.dumps(document.columns(), ensure_ascii=False) + "\n"


def _table_line(document: Tagged, mark: str) -> bytes:
    identifier, *lists = document.columns().values()
    return table_row([str(identifier), *(json.dumps(values, ensure_ascii=False) for values in lists)], mark)


class _RowGroups:
    """A Parquet file, written in groups of rows that are large enough to be read efficiently.

    Ids are integers if those of the first group are, and else strings: a file says so at its start.
    """

    def __init__(self, out: IO[bytes], named: bool, with_uris: bool) -> None:
        self.out, self.named, self.with_uris = out, named, with_uris
        self.held: list[Tagged] = []
        self.size = 0
        self.writer: Any = None

    def __enter__(self) -> _RowGroups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write_group()
        if self.writer is not None:
            self.writer.close()

    def write(self, documents: Sequence[Tagged]) -> None:
        """Add documents; they are written when there are enough of them."""
        self.held += documents
        self.size += sum(1 + len(document.labels) for document in documents)
        if self.size >= _GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow
        import pyarrow.parquet

        ids: list[str | int] = [document.id for document in self.held]
        if self.writer is None:
            kind = pyarrow.int64() if all(map(_is_int64, ids)) else pyarrow.string()
            label = pyarrow.string() if self.named else pyarrow.int64()
            uris = {"uris": pyarrow.list_(pyarrow.string())} if self.with_uris else {}
            columns = {"id": kind, "labels": pyarrow.list_(label), **uris}
            columns["scores"] = pyarrow.list_(pyarrow.float64())
            self.writer = pyarrow.parquet.ParquetWriter(self.out, pyarrow.schema(columns))
        schema = self.writer.schema
        if pyarrow.types.is_string(schema.field("id").type):
            ids = [str(one) for one in ids]
        elif (odd := next((one for one in ids if not _is_int64(one)), None)) is not None:
            wanted = "integers of 64 bits, as in all documents before, or a .jsonl file, which holds any ids"
            raise DataError(f"found the id {odd!r}; wanted {wanted}")
        content = {name: [document.columns()[name] for document in self.held] for name in schema.names}
        content["id"] = ids
        self.writer.write_table(pyarrow.table(content, schema=schema))
        self.held, self.size = [], 0


def _is_int64(value: str | int) -> bool:
    return isinstance(value, int) and value in _INT64
