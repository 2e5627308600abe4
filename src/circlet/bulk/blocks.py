"""What a worker does: read the documents of a block, tag them, and write their labels under the block's name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

from circlet import files
from circlet.bulk.batches import TagBatches
from circlet.bulk.cutting import Block, File, unchanged
from circlet.bulk.plan import Options, Task
from circlet.data.lines import bad, iter_text
from circlet.data.parquet import iter_parquet
from circlet.data.records import Columns, Record, parse
from circlet.data.tagged import Tagged, writing_tagged
from circlet.errors import CircletError, DataError
from circlet.folder.layout import CONFIG

__all__ = ["Job", "Outcome", "columns_of", "digest_of", "documents", "tag_block"]

#: Most documents, and most characters, that are tagged at a time: memory does not grow with a block.
_DOCUMENTS, _CHARACTERS = 1024, 1 << 23


@dataclass(frozen=True)
class Job:
    """What all blocks of a run have in common.

    Attributes
    ----------
    model, output : str
        Folders; absolute.
    options : Options
    integer_ids : bool
        Whether the ids in Parquet files are integers, and not text.
    memory, threads
        Of `TagBatches`.
    """

    model: str
    output: str
    options: Options
    integer_ids: bool
    memory: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of a block: how many documents were tagged, or else what was wrong with it."""

    task: Task
    documents: int = 0
    seconds: float = 0.0
    error: str | None = None


def columns_of(text_column: str) -> Columns:
    """The columns that are read."""
    return Columns(text=text_column, id=None if text_column == "id" else "id")


def digest_of(model: Path | str) -> str:
    """What tells a model from others: its config.json has the digests of all its other files."""
    path = Path(model) / CONFIG
    files.check_regular(path, "model")
    return files.sha256(path)


def tag_block(job: Job, task: Task) -> Outcome:
    """Tag the documents of a block; the file with their labels appears complete or not at all.

    A fault of the documents or of the disk is part of the outcome, so that other blocks can go on.
    """
    began = time.perf_counter()
    try:
        n = _write(job, task)
    except CircletError as error:
        return Outcome(task, error=str(error))
    return Outcome(task, n, time.perf_counter() - began)


@lru_cache(maxsize=1)
def _tagger(job: Job) -> TagBatches:
    """The model, loaded once by each worker."""
    if digest_of(job.model) != job.options.model:
        raise DataError(f"{job.model}: found another model than when the run began; wanted the same")
    options = job.options
    return TagBatches(
        job.model,
        options.k,
        threshold=options.threshold,
        favor_rare=options.favor_rare,
        memory=job.memory,
        threads=job.threads,
    )


def _write(job: Job, task: Task) -> int:
    tagger, n = _tagger(job), 0
    records = documents(task.file, task.block, columns_of(job.options.text_column))
    with_uris = tagger.uris is not None
    with writing_tagged(Path(job.output) / task.part, named=tagger.named, with_uris=with_uris) as write:
        for batch in _batches(records):
            found = tagger.suggest([record.text for record in batch]).lists()
            ids = [_id(job, task, record) for record in batch]
            scores = [[round(score, 4) for score in each] for each in found["scores"]]  # as `circlet predict` does
            uris = found.get("uris", [None] * len(batch))
            write([Tagged(*each) for each in zip(ids, found["labels"], scores, uris, strict=True)])
            n += len(batch)
        unchanged(task.file)
    return n


def _id(job: Job, task: Task, record: Record) -> str | int:
    found = f"{task.name}:{record.line}" if record.id is None else record.id
    if job.options.format != "parquet":
        return found
    if not job.integer_ids:
        return str(found)  # all parts have the same column, whatever ids they have
    if record.id is None:
        raise bad(task.file.path, record.line, "no id", "an integer, as the column has")
    return found


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.text)
        if len(batch) == _DOCUMENTS or size >= _CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def documents(file: File, block: Block, columns: Columns) -> Iterator[Record]:
    """Read the documents of a block; their lines, or rows of Parquet, have the numbers that they have in the file.

    Raises
    ------
    DataError
        If a document is faulty; the message names file and line.
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
