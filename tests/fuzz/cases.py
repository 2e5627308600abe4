"""A case is a number: which subject is damaged, and how, follows from it and a seed."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.subjects import Subject, Trial

from circlet.errors import LONGEST, CircletError

__all__ = ["GOOD", "MEMORY", "SECONDS", "Outcome", "limit_memory", "run_case"]

#: What a case may take.
SECONDS, MEMORY = 2.0, 500 * 10**6
#: Outcomes that are no failures: the right answer, the answer of a file that says something else and is valid, or
#: an error that circlet raised on purpose.
GOOD = ("same", "other", "refused")


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Parameters
    ----------
    case : int
    subject, mutation, details : str
    outcome : str
        One of `GOOD`, or a failure: "wrong", "error", "warning", "message", "slow", "large", "crash" or "hang".
    seconds : float
        Time of the processor.
    memory : int
        Bytes by which the process grew at most.
    message : str
        Of the error, if there was one.
    """

    case: int
    subject: str
    mutation: str
    details: str
    outcome: str
    seconds: float = 0.0
    memory: int = 0
    message: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Its parts by name."""
        return asdict(self)


def run_case(
    number: int,
    seed: int,
    subjects: Sequence[Subject],
    expected: dict[str, Any],
    folder: Path,
    tell: Callable[[Outcome], object],
    clock: Callable[[], float] = time.process_time,
) -> Outcome:
    """Carry out a case.

    Parameters
    ----------
    number, seed : int
    subjects : sequence of Subject
    expected : dict
        The answers of undamaged subjects by their names.
    folder : Path
        Where to write.
    tell : callable
        Told what the case is before it is carried out, for it may never end.
    clock : callable
        What a case takes is told by this; by default the processor's time, since others may keep the machine busy.
    """
    random = Random(f"{seed} {number}")
    subject = random.choices(subjects, [each.weight for each in subjects])[0]
    trial = subject.damaged(folder / "case", random)
    about = Outcome(number, subject.name, trial.mutation, trial.details, "started")
    tell(about)
    start, before = clock(), _memory_now()
    outcome, message = _asked(trial, expected[subject.name])
    seconds, memory = clock() - start, max(0, _status("VmHWM") - before)
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


# Memory, as Linux counts it


def _memory_now() -> int:
    """Bytes of this process; the most that it has had so far is forgotten."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def limit_memory(more: int) -> None:
    """Let this process map so many bytes more than it has; an allocation beyond fails at once."""
    import resource  # Windows has none

    most = _status("VmSize") + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
