"""Processes that carry out cases, and are replaced when they crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fuzz.cases import MEMORY, Outcome, limit_memory

#: Seconds after which a case hangs, if it waits for something, or has had the processor for as long.
PATIENCE = 15.0

#: Carries out the case of a number in a folder, and first tells what the case is.
Run = Callable[[int, Path, Callable[[Outcome], object]], Outcome]


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    at: Outcome
    #: When it got its case, and how long it had had the processor before.
    since: float
    before: float


def outcomes(
    run: Run,
    numbers: Iterable[int],
    folder: Path,
    jobs: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Carry out cases in forked processes, each with a folder of its own, as they finish.

    A process that ends by itself while it is at a case has crashed, and one that hangs is killed;
    another takes its place.
    """
    left, started = iter(numbers), 0
    workers: list[_Worker] = []
    while True:
        while len(workers) < jobs and (number := next(left, None)) is not None:
            worker = _started(run, folder / f"worker-{started}", number, clock())
            started += 1
            workers.append(worker)
        if not workers:
            return
        wait([worker.pipe for worker in workers], timeout=0.5)
        for worker in list(workers):
            outcome = _outcome(worker, clock() - worker.since)
            if outcome is None:
                continue
            yield outcome
            if outcome.outcome in ("crash", "hang") or (number := next(left, None)) is None:
                _end(worker)
                workers.remove(worker)
            else:
                _give(worker, number, clock())


def _started(run: Run, folder: Path, number: int, now: float) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(run, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    worker = _Worker(process, ours, _unknown(number), 0.0, 0.0)
    _give(worker, number, now)
    return worker


def _work(run: Run, folder: Path, pipe: Connection) -> None:
    # Twice what a case may take, so that most that is too large is measured, and the machine is still safe.
    limit_memory(2 * MEMORY)
    folder.mkdir(parents=True)
    while (number := pipe.recv()) is not None:
        pipe.send(run(number, folder, pipe.send))


def _give(worker: _Worker, number: int, now: float) -> None:
    worker.at, worker.since, worker.before = _unknown(number), now, _state(worker)[1]
    worker.pipe.send(number)


def _outcome(worker: _Worker, taken: float) -> Outcome | None:
    """What became of the case that a worker has been at for so many seconds; None if it still is."""
    try:
        while worker.pipe.poll():
            worker.at = worker.pipe.recv()
            if worker.at.outcome != "started":
                return worker.at
    except (EOFError, ConnectionResetError):
        worker.process.join()
        code = worker.process.exitcode
        return replace(worker.at, outcome="crash", seconds=taken, message=f"the process ended with status {code}")
    state, busy = _state(worker)
    # One that others keep from the processor neither sleeps nor computes.
    if busy - worker.before > PATIENCE or (state == "S" and taken > PATIENCE):
        return replace(worker.at, outcome="hang", seconds=taken, message="killed")
    return None


def _state(worker: _Worker) -> tuple[str, float]:
    """What a process does, in Linux's letters, and the seconds that it has had the processor."""
    about = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return about[0], (int(about[11]) + int(about[12])) / os.sysconf("SC_CLK_TCK")


def _unknown(number: int) -> Outcome:
    return Outcome(number, "?", "?", "", "started")


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()
