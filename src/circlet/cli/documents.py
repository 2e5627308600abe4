"""Reads the documents that `circlet predict` tags, in batches, and never waits to fill a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from circlet.cli.console import DocumentBar, say
from circlet.data import load_dataset
from circlet.data.load import UnrecognizedError, find_text_file, path_exists
from circlet.data.records import Columns, Record, iter_records, iter_stream, size_of
from circlet.errors import DataError
from circlet.files import explained

#: Documents of a batch, so that memory does not grow with their number.
BATCH = 1024
#: Takes the ids of a batch, and as many texts or rows.
AnswerBatch = Callable[[Sequence[str | int], Any], object]


class Documents:
    """The documents of a command's inputs: files, folders, pipes or names of datasets; or - for standard input."""

    def __init__(self, inputs: Sequence[str], text_column: str = "text") -> None:
        self.inputs, self.columns = inputs, Columns.unlabeled(text_column)

    def answer_texts(self, answer: AnswerBatch, bar: DocumentBar, done: int = 0) -> None:
        """Give all texts of the inputs to `answer`, a batch at a time.

        Texts from standard input or a pipe are answered before waiting for more. Texts before a faulty line are
        answered before its error is raised. The first `done` documents, a multiple of `BATCH` or all, are skipped.
        """
        batch: list[tuple[str | int, str]] = []

        def answer_batch() -> None:
            if batch:
                ids, texts = zip(*batch, strict=True)
                batch.clear()
                answer(ids, list(texts))

        first, *more = self.inputs
        if more:
            records = _records_of_files(self.inputs, self.columns, bar)
        else:
            records = _stream(first, self.columns, answer_batch) or _records(first, self.columns, bar)
        try:
            for row, record in islice(enumerate(records), done, None):
                batch.append((row if record.id is None else record.id, record.text))
                if len(batch) == BATCH:
                    answer_batch()
        except DataError:
            answer_batch()
            raise
        answer_batch()

    def answer_rows(self, answer: AnswerBatch, bar: DocumentBar, done: int = 0) -> None:
        """Give all feature rows of the input to `answer`, a batch at a time, with their numbers as ids."""
        data, *more = self.inputs
        if more:
            raise DataError("found several inputs; a model that was trained on feature rows wants one at a time")
        if data == "-":
            raise DataError(
                "found -, which reads texts; this model was trained on feature rows, in a file or folder"
            )
        dataset = load_dataset(data)
        rows: Any = (dataset.test or dataset.train).X
        if rows is None:
            raise DataError(
                f"{data}: found {dataset.format}; this model was trained on feature rows and wants rows"
            )
        bar.total = n = rows.shape[0]
        bar.advance(min(done, n))
        for start in range(done, n, BATCH):
            ids = range(start, min(start + BATCH, n))
            bar.advance(len(ids))
            answer(ids, rows[start : start + BATCH])


def _stream(data: str, columns: Columns, before_waiting: Callable[[], object]) -> Iterator[Record] | None:
    """The texts of standard input or of a pipe, such as `<(command)` in a shell; None for other inputs."""
    if data == "-":
        if sys.stdin is None:
            raise DataError("cannot read stdin: it is closed")
        stdin: Any = sys.stdin.buffer
        return iter_stream(stdin, columns, before_waiting=before_waiting)
    path = Path(data)

    def piped() -> Iterator[Record]:
        with explained(path), path.open("rb") as stream:
            yield from iter_stream(stream, columns, str(path), before_waiting)

    return piped() if path_exists(path) and path.is_fifo() else None


def _records_of_files(inputs: Sequence[str], columns: Columns, bar: DocumentBar) -> Iterator[Record]:
    """The texts of several files, one file after the other."""
    files = []
    for data in inputs:  # find all of them before any work
        if (file := find_text_file(data, columns)) is None:
            raise DataError(f"{data}: found no file with texts; wanted only such files, if there are several")
        files.append(file)
    sizes = [size_of(path) for path, _ in files]
    bar.total = None if None in sizes else sum(size or 0 for size in sizes)
    read = partial(iter_records, columns=columns, need_labels=False, progress=bar.advance)

    def plain_texts(path: Path) -> Iterator[Record]:
        for record in read(path, "plain"):  # the path is their id: other inputs may have files of the same name
            yield replace(record, id=(path / str(record.id) if path.is_dir() else path).as_posix())

    return chain.from_iterable(plain_texts(path) if kind == "plain" else read(path, kind) for path, kind in files)


def _records(data: str, columns: Columns, bar: DocumentBar) -> Iterator[Record]:
    """The texts of a file, a folder or a dataset."""
    try:
        if found := find_text_file(data, columns):
            path, kind = found
            if kind == "plain" and path.is_file():
                lines = f"circlet predict MODEL - < {path}"
                say(f"{path}: plain text, read as one document (a document per line: {lines})")
            bar.total = size_of(path)
            return iter_records(path, kind, columns, need_labels=False, progress=bar.advance)
        dataset = load_dataset(data, text_column=columns.text)
    except UnrecognizedError as error:
        file = data if path_exists(Path(data)) else "FILE"
        raise DataError(f"{error} (plain text, a document per line: circlet predict MODEL - < {file})") from error
    texts = (dataset.test or dataset.train).texts
    if texts is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on texts and wants texts")
    bar.total = len(texts)

    def counted() -> Iterator[Record]:
        for line, text in enumerate(texts, 1):
            bar.advance(1)
            yield Record(line, text, ())

    return counted()
