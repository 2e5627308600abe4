"""Tag all documents of many files, in blocks for many workers; a run that was killed can continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from circlet import files
from circlet.bulk import plan
from circlet.bulk.batches import load_tagger
from circlet.bulk.engines import ENGINES, default_workers
from circlet.bulk.plan import Options, Task, unchanged
from circlet.checks import is_integer, require
from circlet.data.records import Columns, Record
from circlet.errors import CircletError, DataError, ParameterError, bad
from circlet.runtime import Tagger
from circlet.runtime.answers import Answer, writing_answers
from circlet.storage.layout import CONFIG
from circlet.storage.publish import folder_lock
from circlet.threads import use_threads

#: Bytes of a block: a worker is busy with it for seconds, and a killed worker loses little.
BLOCK_SIZE = 16 << 20
#: The output formats.
FORMATS = ("parquet", "jsonl", "csv", "tsv")


@dataclass(frozen=True)
class Totals:
    """The result of a run.

    Attributes
    ----------
    documents : int
        Number of documents tagged.
    blocks : int
        Number of blocks tagged.
    blocks_before : int
        Number of blocks that an earlier run had tagged.
    seconds : float
        Time from the first block to the last.
    workers : int
        Number of workers.
    """

    documents: int
    blocks: int
    blocks_before: int
    seconds: float
    workers: int


def tag_files(
    model: Path | str,
    inputs: Sequence[str],
    output: Path | str,
    *,
    engine: str = "processes",
    workers: int | None = None,
    k: int = 5,
    threshold: float | None = None,
    favor_rare: float = 0.0,
    text_column: str = "text",
    format: str | None = None,  # noqa: A002 — as the option is called
    block_size: int = BLOCK_SIZE,
    memory: int | None = None,
    threads: int = 1,
    planned: Callable[[int], object] = lambda size: None,
    progress: Callable[[int, int], object] = lambda size, documents: None,
) -> Totals:
    """Tag the documents of files, and write a file of labels for each block of them.

    Called again with the same arguments after it was killed, it tags the missing blocks. The engine, the number of
    workers, their memory and their threads may then be different.

    Parameters
    ----------
    model : Path or str
        The folder of a model of texts.
    inputs : sequence of str
        Files with texts, folders with such files, or patterns such as `docs/*.parquet`.
    output : Path or str
        A new or empty folder, or that of an earlier run.
    engine : {"processes", "ray"}
        Workers are processes on this machine, or tasks of a Ray cluster.
    workers : int, optional
        Number of workers; by default the number of cores.
    k : int
        Labels per document, at most.
    threshold : float, optional
        Leave out labels that are less probable.
    favor_rare : float
        Rank rare labels higher; see `Tagger.suggest`.
    text_column : str
        The column or key with the texts.
    format : {"parquet", "jsonl", "csv", "tsv"}, optional
        Output format; by default the format of the first file, or JSONL.
    block_size : int
        Approximate bytes of a block; a line, a row group or a compressed file may be larger.
    memory : int, optional
        Bytes that scores may take at a time in each worker.
    threads : int
        Threads of each worker.
    planned : callable
        Gets the number of bytes to read.
    progress : callable
        Gets the bytes and documents of each finished block.

    Raises
    ------
    DataError
        If documents are faulty, once all other blocks are done (or ten are faulty); if files, options or the model
        are not those of the run in `output`.
    """
    if engine not in ENGINES:
        raise ParameterError(f"`engine`: found {engine!r}; wanted one of {', '.join(ENGINES)}")
    if not is_integer(block_size, 1):
        raise ParameterError(f"`block_size`: found {block_size!r}; wanted an integer >= 1")
    if engine == "ray":
        require("ray", extra="ray", purpose="--engine ray")
    folder, paths, columns = Path(output).absolute(), plan.find_files(inputs), Columns.unlabeled(text_column)
    plan.check_folder(folder)
    if format is None:  # that of the first file that has any documents
        kinds = (plan.format_in(path, columns) for path in paths)
        first = next((kind for kind in kinds if kind != "empty"), "jsonl")
        format = first if first in FORMATS else "jsonl"  # noqa: A001 — as the option is called
    if format not in FORMATS:
        raise ParameterError(f"`format`: found {format!r}; wanted one of {', '.join(FORMATS)}")
    if format == "parquet":
        require("pyarrow", extra="parquet", purpose="writing Parquet")
    options = Options(digest_of(model), k, threshold, favor_rare, text_column, format, block_size)
    count = default_workers(engine) if workers is None else workers
    with folder_lock(folder):
        made = plan.Plan.load(folder)
        if made is None:
            # Threads, because it is mostly waiting for disks or the network.
            with ThreadPoolExecutor(8) as pool:
                cuts = pool.map(partial(plan.cut, columns=columns, size=block_size), paths)
                made = plan.Plan(options, list(cuts))
            made.save(folder)
        else:
            made.check(folder, options, paths)
        job = Job(str(Path(model).absolute()), str(folder), options, made.integer_ids, memory, threads)
        tasks = list(made.tasks())
        left = [task for task in tasks if not (folder / task.part).exists()]
        planned(sum(task.block.size for task in left))
        began = time.perf_counter()
        documents = _tag(job, left, engine, count, progress)
        seconds = time.perf_counter() - began
        files.remove_leftovers(folder)  # of workers that were killed
    return Totals(documents, len(left), len(tasks) - len(left), seconds, count)


def _tag(
    job: Job, tasks: Sequence[Task], engine: str, workers: int, progress: Callable[[int, int], object]
) -> int:
    """Tag blocks, and return the number of their documents; faulty ones raise `DataError` in the end."""
    documents, faults = 0, list[Outcome]()
    with closing(ENGINES[engine](partial(tag_block, job), tasks, workers)) as outcomes:
        for outcome in outcomes:
            documents += outcome.documents
            if outcome.error is not None:
                faults.append(outcome)
            progress(outcome.task.block.size, outcome.documents)
            if len(faults) == 10:  # the others probably have the same fault
                break
    if faults:
        first = min(faults, key=lambda outcome: outcome.task.part)
        others = f" (and {len(faults) - 1} other blocks of {len(tasks)} have faults)" if len(faults) > 1 else ""
        raise DataError(f"{first.error}{others}")
    return documents


@dataclass(frozen=True)
class Job:
    """The same for all blocks of a run."""

    model: str  # an absolute path, as `output`
    output: str
    options: Options
    integer_ids: bool  # whether the ids in Parquet files are integers, not text
    memory: int | None = None  # bytes that scores may take at a time in each worker
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """The result of a block: the number of documents tagged, or an error."""

    task: Task
    documents: int = 0
    error: str | None = None


def digest_of(model: Path | str) -> str:
    """Return a digest that identifies a model: its `config.json` has the digests of all other files."""
    path = Path(model) / CONFIG
    files.check_regular(path, "model")
    return files.sha256(path)


def tag_block(job: Job, task: Task) -> Outcome:
    """Tag the documents of a block, and write the file with their labels atomically.

    A fault of the documents or of the disk is part of the outcome, so that other blocks can continue.
    """
    try:
        tagger, options, n = _tagger(job), job.options, 0
        records = plan.documents(task.file, task.block, Columns.unlabeled(options.text_column))
        with_uris = tagger.uris_ is not None
        with writing_answers(Path(job.output) / task.part, named=tagger.named, with_uris=with_uris) as write:
            for batch in batches(records):
                answers = tagger.answers(
                    [record.text for record in batch],
                    options.k,
                    threshold=options.threshold,
                    favor_rare=options.favor_rare,
                    memory=job.memory,
                )
                write([Answer(_id(job, task, record), each) for record, each in zip(batch, answers, strict=True)])
                n += len(batch)
            unchanged(task.file)
    except CircletError as error:
        return Outcome(task, error=str(error))
    return Outcome(task, n)


@lru_cache(maxsize=1)
def _tagger(job: Job) -> Tagger:
    """Load the model, once in each worker."""
    if digest_of(job.model) != job.options.model:
        raise DataError(f"{job.model}: found another model than when the run began; wanted the same")
    use_threads(job.threads)
    return load_tagger(job.model)


def _id(job: Job, task: Task, record: Record) -> str | int:
    found = f"{task.name}:{record.line}" if record.id is None else record.id
    if job.options.format != "parquet":
        return found
    if not job.integer_ids:
        return str(found)  # all parts have the same column, whatever ids they have
    if record.id is None:
        raise bad(task.file.path, record.line, "no id", "an integer, as the column has")
    return found


def batches(records: Iterator[Record], documents: int = 1024, characters: int = 1 << 23) -> Iterator[list[Record]]:
    """Yield at most so many documents or characters at a time, so that memory does not grow with a block."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.text)
        if len(batch) == documents or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
