"""A tagger's answers: labels with scores, and their output as JSONL, CSV, TSV or Parquet.

Each document has an `id`, its `labels`, best first, and their `scores`; and `uris`, if labels have URIs.

- `jsonl`: an object per document; labels and scores are lists.
- `csv`, `tsv`: a header and a row per document; labels and scores are lists in JSON's notation, each in one field.
  `circlet.data.records` reads such lists back, whatever separators the labels contain.
- `parquet`: a row per document; labels and scores are columns of lists.

JSONL, CSV and TSV are compressed if the file's name ends in `.gz`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from circlet.checks import require
from circlet.errors import DataError, ParameterError
from circlet.files import writing

#: The supported suffixes.
ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")


def rounded(score: float) -> float:
    """Round a score for programs (JSON, Parquet, HTTP) to six significant digits.

    Single precision has seven, but the last one may depend on the other documents of a batch.
    """
    return float(f"{score:.6g}")


def rounded_rows(scores: npt.NDArray[np.float32]) -> list[list[float]]:
    """Round a matrix of scores between 0 and 1 as `rounded` does, much faster."""
    exact = scores.astype(np.float64)
    # Below the least, powers of ten are not exact, so the quotient might not be the number nearest to six digits.
    small = (exact < 1e-16) & (exact > 0)
    factors = 10.0 ** (5 - np.floor(np.log10(np.where(small | (exact == 0), 1, exact))))
    found: list[list[float]] = (np.rint(exact * factors) / factors).tolist()
    for row, column in np.argwhere(small).tolist():
        found[row][column] = rounded(exact[row, column])
    return found


def shown(score: float, sign: str = "") -> str:
    """Format a score for tables, with four decimals; a `sign` of "+" also shows plus signs."""
    return f"{score:{sign}.4f}"


class Suggestion(NamedTuple):
    """A suggested label, its probability, and its URI if labels have URIs."""

    label: str | int
    score: float
    uri: str | None = None


@dataclass(frozen=True)
class Answer:
    """The id of a document and its suggested labels, best first."""

    id: str | int
    labels: Sequence[Suggestion]

    def columns(self, *, with_uris: bool) -> dict[str, Any]:
        """Return the output columns, by name."""
        uris = {"uris": [uri for _, _, uri in self.labels]} if with_uris else {}
        scores = [score for _, score, _ in self.labels]
        return {"id": self.id, "labels": [label for label, _, _ in self.labels], **uris, "scores": scores}


Write = Callable[[Sequence[Answer]], object]


def format_of(path: Path) -> str:
    """Return the format for a file name; raise an error if it has no known suffix, or if Parquet needs pyarrow."""
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending not in ENDINGS or (ending == ".parquet" and path.suffix == ".gz"):
        *others, last = ENDINGS
        wanted = f"a name that ends in {', '.join(others)} or {last}"
        raise ParameterError(f"found {path.name!r}, a name of no known format; wanted {wanted}")
    if ending == ".parquet":
        require("pyarrow", extra="parquet", purpose="writing Parquet")
    return ending.removeprefix(".")


@contextmanager
def writing_answers(
    path: Path, *, named: bool = True, with_uris: bool = False, group: int = 1 << 18
) -> Iterator[Write]:
    """Open a file for answers, in the format of its suffix, and yield a function that writes a list of them.

    The file appears when the body ends; after an error, an existing file stays unchanged. A Parquet file needs to
    know before the first label whether labels are names, and has `group` labels in each row group.
    """
    kind = format_of(path)
    with writing(path) as out:
        if kind == "parquet":
            with _row_groups(out, named, with_uris, group) as write:
                yield write
            return
        header, lines = lines_of(kind, with_uris=with_uris)
        out.write(header)
        yield lambda answers: out.writelines(lines(answers))


def lines_of(kind: str, *, with_uris: bool) -> tuple[bytes, Callable[[Sequence[Answer]], Iterator[bytes]]]:
    """Return the header of a format of lines, and a function that formats answers as lines."""
    if kind == "jsonl":

        def json_line(answer: Answer) -> bytes:
            return (json.dumps(answer.columns(with_uris=with_uris), ensure_ascii=False) + "\n").encode()

        return b"", lambda answers: map(json_line, answers)
    from circlet.data.records import line_writer

    header, line = line_writer(kind, Answer("", ()).columns(with_uris=with_uris))
    return header, lambda answers: (line(answer.columns(with_uris=with_uris)) for answer in answers)


@contextmanager
def _row_groups(out: IO[bytes], named: bool, with_uris: bool, group: int) -> Iterator[Write]:
    """Yield a function that writes answers to a Parquet file, in row groups large enough to be read efficiently.

    Ids are integers if those of the first group are, and otherwise strings: the file's schema comes first.
    """
    import pyarrow
    import pyarrow.parquet

    held: list[Answer] = []
    writer: Any = None

    def write_group() -> None:
        nonlocal writer
        ids: list[str | int] = [answer.id for answer in held]
        if writer is None:
            kind = pyarrow.int64() if all(map(_is_int64, ids)) else pyarrow.string()
            label = pyarrow.string() if named else pyarrow.int64()
            uris = {"uris": pyarrow.list_(pyarrow.string())} if with_uris else {}
            columns = {"id": kind, "labels": pyarrow.list_(label), **uris}
            columns["scores"] = pyarrow.list_(pyarrow.float64())
            writer = pyarrow.parquet.ParquetWriter(out, pyarrow.schema(columns))
        if pyarrow.types.is_string(writer.schema.field("id").type):
            ids = [str(one) for one in ids]
        elif (odd := next((one for one in ids if not _is_int64(one)), None)) is not None:
            wanted = "integers of 64 bits, as in all documents before, or a .jsonl file, which holds any ids"
            raise DataError(f"found the id {odd!r}; wanted {wanted}")
        rows = [answer.columns(with_uris=with_uris) for answer in held]
        content = {name: [row[name] for row in rows] for name in writer.schema.names}
        writer.write_table(pyarrow.table({**content, "id": ids}, schema=writer.schema))
        held.clear()

    def write(answers: Sequence[Answer]) -> None:
        held.extend(answers)
        if sum(1 + len(answer.labels) for answer in held) >= group:
            write_group()

    try:
        yield write
        write_group()
    finally:
        if writer is not None:
            writer.close()


def _is_int64(value: str | int) -> bool:
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63
