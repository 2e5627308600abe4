"""A case is a number: which subject is damaged, and how, follows from it and a seed.

Processes carry cases out, and are replaced when they crash or hang.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.damage import Subject, Trial

from circlet.errors import LONGEST, CircletError
from circlet.provenance import provenance
from circlet.report import Table

#: Cases of a full run.
CASES = 20_000
#: Rows of the table by a word in the names of subjects, the first that is there, and the row of all others.
KINDS = {
    "model": "model folders",
    "run": "interrupted runs",
    "data": "data files",
    "cache": "caches",
    "fit": "rows and labels for `fit`",
}
OTHERS = "rows and options for a tagger"
#: What a case may take.
SECONDS, MEMORY = 2.0, 500 * 10**6
#: Seconds after which a case hangs, if it waits for something, or has had the processor for as long.
PATIENCE = 15.0
#: Outcomes that are no failures: the right answer, the answer of a file that says something else and is valid, or
#: an error that circlet raised on purpose.
GOOD = ("same", "other", "refused")


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    case: int
    subject: str
    mutation: str
    details: str
    #: One of `GOOD`, or a failure: "wrong", "error", "warning", "message", "slow", "large", "crash" or "hang".
    outcome: str
    #: Time of the processor.
    seconds: float = 0.0
    #: Bytes by which the process grew at most.
    memory: int = 0
    #: Of the error, if there was one.
    message: str = ""


def run_case(
    number: int,
    folder: Path,
    tell: Callable[[Outcome], object],
    *,
    seed: int,
    subjects: Sequence[Subject],
    expected: dict[str, Any],
    clock: Callable[[], float] = time.process_time,
) -> Outcome:
    """Carry out a case in this folder; `expected` are the answers of undamaged subjects by their names.

    `tell` is told what the case is before it is carried out, for it may never end. The clock is the processor's,
    since others may keep the machine busy.
    """
    random = Random(f"{seed} {number}")
    subject = random.choices(subjects, [each.weight for each in subjects])[0]
    trial = subject.damaged(folder / "case", random)
    about = Outcome(number, subject.name, trial.mutation, trial.details, "started")
    tell(about)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the most that there was so far
    start, before = clock(), _memory("VmRSS")
    outcome, message = _asked(trial, expected[subject.name])
    seconds, memory = clock() - start, max(0, _memory("VmHWM") - before)
    if outcome in GOOD and memory > MEMORY:
        outcome = "large"
    if outcome in GOOD and seconds > SECONDS:
        outcome = "slow"
    # Without what differs from run to run; and half of a surrogate pair can't be written.
    message = message.replace(f"{folder}/", "").encode(errors="backslashreplace").decode()
    return replace(about, outcome=outcome, seconds=round(seconds, 4), memory=memory, message=message)


def _asked(trial: Trial, expected: Any) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            answer = trial.ask()
    except CircletError as error:
        message = str(error)
        return ("refused" if len(message) <= LONGEST and message.isprintable() else "message"), message[:2000]
    except AssertionError as error:
        return "wrong", str(error)
    except Warning as warning:
        return "warning", _where(warning)
    except Exception as error:
        return "error", _where(error)
    if answer == expected:
        return "same", ""
    return ("wrong", f"{str(answer)[:100]} in place of {str(expected)[:100]}") if trial.exact else ("other", "")


def _where(error: BaseException) -> str:
    """An error and the last lines of ours that it passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "circlet" in frame.filename]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-3:]))
    return f"{type(error).__name__}: {str(error)[:300]} ({places})"


def _memory(name: str) -> int:
    """Bytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


# Processes

#: Carries out the case of a number in a folder, and first tells what the case is.
Run = Callable[[int, Path, Callable[[Outcome], object]], Outcome]


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    #: What is known of its case, when it got it, and how long it had had the processor before.
    at: Outcome = field(init=False)
    since: float = field(init=False)
    before: float = field(init=False)

    def give(self, number: int, now: float) -> None:
        self.at, self.since, self.before = Outcome(number, "?", "?", "", "started"), now, self.state()[1]
        self.pipe.send(number)

    def state(self) -> tuple[str, float]:
        """What the process does, in Linux's letters, and the seconds that it has had the processor."""
        about = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return about[0], (int(about[11]) + int(about[12])) / os.sysconf("SC_CLK_TCK")


def outcomes(
    run: Run, numbers: Iterable[int], folder: Path, jobs: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Outcome]:
    """Carry out cases in forked processes, each with a folder of its own, as they finish.

    A process that ends by itself while it is at a case has crashed, and one that hangs is killed;
    another takes its place.
    """
    left, started = iter(numbers), 0
    context = multiprocessing.get_context("fork")
    workers: list[_Worker] = []
    while True:
        while len(workers) < jobs and (number := next(left, None)) is not None:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(run, folder / f"worker-{started}", theirs), daemon=True)
            process.start()
            theirs.close()
            started += 1
            workers.append(_Worker(process, ours))
            workers[-1].give(number, clock())
        if not workers:
            return
        wait([worker.pipe for worker in workers], timeout=0.5)
        for worker in list(workers):
            outcome = _outcome(worker, clock() - worker.since)
            if outcome is None:
                continue
            yield outcome
            if outcome.outcome in ("crash", "hang") or (number := next(left, None)) is None:
                worker.process.kill()
                worker.process.join()
                worker.pipe.close()
                workers.remove(worker)
            else:
                worker.give(number, clock())


def _work(run: Run, folder: Path, pipe: Connection) -> None:
    import resource  # Windows has none

    # Twice what a case may take, so that most that is too large is measured, and the machine is still safe. An
    # allocation beyond fails at once.
    most = _memory("VmSize") + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    folder.mkdir(parents=True)
    while (number := pipe.recv()) is not None:
        pipe.send(run(number, folder, pipe.send))


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
    state, busy = worker.state()
    # One that others keep from the processor neither sleeps nor computes.
    if busy - worker.before > PATIENCE or (state == "S" and taken > PATIENCE):
        return replace(worker.at, outcome="hang", seconds=taken, message="killed")
    return None


# What became of all cases, as JSON and as a table


def summarized(found: list[Outcome], seed: int, seconds: float) -> dict[str, Any]:
    """What became of all cases, ready for JSON."""
    found = sorted(found, key=lambda outcome: outcome.case)
    slowest, largest = (max(found, key=key) for key in (lambda each: each.seconds, lambda each: each.memory))
    return {
        "benchmark": "fuzz",
        "provenance": {**provenance(), "command": f"python -m tests.fuzz --cases {len(found)} --seed {seed}"},
        "seed": seed,
        "cases": len(found),
        "seconds": round(seconds, 1),
        "limits": {"seconds": SECONDS, "bytes": MEMORY},
        "outcomes": dict(Counter(each.outcome for each in found).most_common()),
        "by_subject": _counted(found, "subject"),
        "by_mutation": _counted(found, "mutation"),
        "slowest": asdict(slowest),
        "largest": asdict(largest),
        "failures": [asdict(each) for each in found if each.outcome not in GOOD],
    }


def _counted(found: list[Outcome], by: str) -> dict[str, dict[str, int]]:
    groups: dict[str, Counter[str]] = {}
    for outcome in found:
        groups.setdefault(getattr(outcome, by), Counter())[outcome.outcome] += 1
    return {name: dict(sorted(groups[name].items())) for name in sorted(groups)}


def table(summary: dict[str, Any]) -> Table:
    """The outcomes by what was damaged."""
    kinds: dict[str, Counter[str]] = {kind: Counter() for kind in (*KINDS.values(), OTHERS)}
    for name, counts in summary["by_subject"].items():
        kinds[next((kind for word, kind in KINDS.items() if word in name), OTHERS)].update(counts)
    body = [
        (kind, cases, *(counts[each] for each in GOOD), cases - sum(counts[each] for each in GOOD))
        for kind, counts in kinds.items()
        if (cases := sum(counts.values()))
    ]
    slowest, largest = summary["slowest"], summary["largest"]
    return Table(
        f"{summary['cases']:,} damaged inputs",
        ("", "cases", "right answer", "another valid input", "refused", "failed"),
        body,
        note=f"The slowest case took {slowest['seconds']:.2f} s, the largest {largest['memory'] / 1e6:.0f} MB. "
        f"Limits: {SECONDS:.0f} s and {MEMORY // 10**6} MB.",
    )
