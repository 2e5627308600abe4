"""The documents that `circlet predict` tags, in batches that never wait to be filled."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from circlet.cli.document_bar import DocumentBar
from circlet.data import load_dataset
from circlet.data.lines import explained
from circlet.data.load import find_text_file, is_there
from circlet.data.recognize import UnrecognizedError
from circlet.data.records import Columns, Record, iter_records
from circlet.data.stream import iter_stream
from circlet.errors import DataError

#: Most documents of a batch, so that memory does not grow with their number.
BATCH = 1024
#: What is done with a batch: ids, and as many texts or rows.
Answer = Callable[[Sequence[str | int], Any], object]


def answer_texts(data: str, text_column: str, answer: Answer, bar: DocumentBar) -> None:
    """Give all texts of INPUT to `answer`, a batch at a time.

    Texts from standard input or a pipe are given as soon as no other text is there yet. Texts before a faulty line
    are given before its error is raised.
    """
    batch: list[tuple[str | int, str]] = []

    def answer_batch() -> None:
        if batch:
            ids, texts = zip(*batch, strict=True)
            batch.clear()
            answer(ids, list(texts))

    columns = Columns(text=text_column, id=None if text_column == "id" else "id")
    records = _stream(data, columns, answer_batch) or _records(data, columns, bar)
    try:
        for row, record in enumerate(records):
            batch.append((row if record.id is None else record.id, record.text))
            if len(batch) == BATCH:
                answer_batch()
    except DataError:
        answer_batch()
        raise
    answer_batch()


def answer_rows(data: str, answer: Answer, bar: DocumentBar) -> None:
    """Give all feature rows of INPUT to `answer`, a batch at a time, with their numbers as ids."""
    if data == "-":
        raise DataError(
            "this model was trained on feature rows, and - reads texts: name a file or folder with such rows"
        )
    dataset = load_dataset(data)
    rows: Any = (dataset.test or dataset.train).X
    if rows is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on feature rows and wants rows")
    bar.total = n = rows.shape[0]
    for start in range(0, n, BATCH):
        ids = range(start, min(start + BATCH, n))
        bar.advance(len(ids))
        answer(ids, rows[start : start + BATCH])


def _stream(data: str, columns: Columns, before_waiting: Callable[[], object]) -> Iterator[Record] | None:
    """The texts of standard input or of a pipe, such as `<(command)` in a shell; None if INPUT is neither."""
    if data == "-":
        if sys.stdin is None:
            raise DataError("cannot read stdin: it is closed")
        return iter_stream(cast(io.BufferedReader, sys.stdin.buffer), columns, before_waiting=before_waiting)
    path = Path(data)
    return _piped(path, columns, before_waiting) if is_there(path) and path.is_fifo() else None


def _piped(path: Path, columns: Columns, before_waiting: Callable[[], object]) -> Iterator[Record]:
    with explained(path), path.open("rb") as stream:
        yield from iter_stream(stream, columns, str(path), before_waiting)


def _records(data: str, columns: Columns, bar: DocumentBar) -> Iterator[Record]:
    try:
        if found := find_text_file(data, columns):
            path, kind = found
            # The size of what a compressed file holds is not known.
            bar.total = None if path.suffix == ".gz" else path.stat().st_size
            return iter_records(path, kind, columns, need_labels=False, progress=bar.advance)
        dataset = load_dataset(data, text_column=columns.text)
    except UnrecognizedError as error:
        file = data if is_there(Path(data)) else "FILE"
        raise DataError(f"{error} (plain text, a document per line: circlet predict MODEL - < {file})") from error
    texts = (dataset.test or dataset.train).texts
    if texts is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on texts and wants texts")
    bar.total = len(texts)
    return _with_progress(texts, bar)


def _with_progress(texts: Sequence[str], bar: DocumentBar) -> Iterator[Record]:
    """Texts that stand beside matrices, a line each."""
    for line, text in enumerate(texts, 1):
        bar.advance(1)
        yield Record(line, text, ())
