"""The documents that `circlet predict` tags, in batches that never wait to be filled."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from circlet.cli.console import DocumentBar, err
from circlet.data import load_dataset
from circlet.data.load import UnrecognizedError, find_text_file, path_exists
from circlet.data.records import Columns, Record, iter_documents, iter_stream, size_of
from circlet.errors import DataError
from circlet.files import explained

#: Most documents of a batch, so that memory does not grow with their number.
BATCH = 1024
#: What is done with a batch: ids, and as many texts or rows.
Answer = Callable[[Sequence[str | int], Any], object]


def answer_texts(
    data: str | Sequence[str], text_column: str, answer: Answer, bar: DocumentBar, done: int = 0
) -> None:
    """Give all texts of INPUT to `answer`, a batch at a time.

    Texts from standard input or a pipe are given as soon as no other text is there yet. Texts before a faulty line
    are given before its error is raised. The first `done` documents are left out; it is a multiple of `BATCH`, or
    all of them.
    """
    batch: list[tuple[str | int, str]] = []

    def answer_batch() -> None:
        if batch:
            ids, texts = zip(*batch, strict=True)
            batch.clear()
            answer(ids, list(texts))

    columns = Columns(text=text_column, id=None if text_column == "id" else "id")
    first, *more = [data] if isinstance(data, str) else data
    if more:
        records = _of_several([first, *more], columns, bar)
    else:
        records = _stream(first, columns, answer_batch) or _records(first, columns, bar)
    try:
        for row, record in islice(enumerate(records), done, None):
            batch.append((row if record.id is None else record.id, record.text))
            if len(batch) == BATCH:
                answer_batch()
    except DataError:
        answer_batch()
        raise
    answer_batch()


def answer_rows(inputs: str | Sequence[str], answer: Answer, bar: DocumentBar, done: int = 0) -> None:
    """Give all feature rows of INPUT to `answer`, a batch at a time, with their numbers as ids."""
    data, *more = [inputs] if isinstance(inputs, str) else inputs
    if more:
        raise DataError("found several inputs; a model that was trained on feature rows wants one at a time")
    if data == "-":
        raise DataError(
            "this model was trained on feature rows, and - reads texts: name a file or folder with such rows"
        )
    dataset = load_dataset(data)
    rows: Any = (dataset.test or dataset.train).X
    if rows is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on feature rows and wants rows")
    bar.total = n = rows.shape[0]
    bar.advance(min(done, n))
    for start in range(done, n, BATCH):
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
    return _piped(path, columns, before_waiting) if path_exists(path) and path.is_fifo() else None


def _piped(path: Path, columns: Columns, before_waiting: Callable[[], object]) -> Iterator[Record]:
    with explained(path), path.open("rb") as stream:
        yield from iter_stream(stream, columns, str(path), before_waiting)


def _of_several(inputs: Sequence[str], columns: Columns, bar: DocumentBar) -> Iterator[Record]:
    """The texts of several files, one file after the other."""
    found = [(data, find_text_file(data, columns)) for data in inputs]  # all of them, before any work is done
    for data, file in found:
        if file is None:
            raise DataError(f"{data}: found no file with texts; wanted only such files, if there are several")
    files = [file for _, file in found if file is not None]
    sizes = [size_of(path) for path, _ in files]
    bar.total = None if None in sizes else sum(size or 0 for size in sizes)
    read = partial(iter_documents, columns=columns, need_labels=False, progress=bar.advance)
    return chain.from_iterable(
        _told_apart(path, read(path, kind)) if kind == "plain" else read(path, kind) for path, kind in files
    )


def _told_apart(path: Path, texts: Iterator[Record]) -> Iterator[Record]:
    """Plain texts of one of several inputs, where files of the same name may be in others, too."""
    for record in texts:
        place = path / str(record.id) if path.is_dir() else path
        yield replace(record, id=place.as_posix())


def _records(data: str, columns: Columns, bar: DocumentBar) -> Iterator[Record]:
    try:
        if found := find_text_file(data, columns):
            path, kind = found
            if kind == "plain" and path.is_file():
                err.print(
                    f"{path}: plain text, taken as one document (a document per line: circlet predict MODEL - < "
                    f"{path})",
                    highlight=False,
                    soft_wrap=True,
                )
            bar.total = size_of(path)
            return iter_documents(path, kind, columns, need_labels=False, progress=bar.advance)
        dataset = load_dataset(data, text_column=columns.text)
    except UnrecognizedError as error:
        file = data if path_exists(Path(data)) else "FILE"
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
