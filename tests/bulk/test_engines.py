from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from circlet.bulk.engines import ENGINES, WorkersLostError, default_workers, processes
from circlet.errors import MissingExtraError


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def die_once(folder: Path, number: int) -> int:
    """Kill the process that does this, the first time that it is asked for this number."""
    if number % 5 == 3 and not (folder / str(number)).exists():
        (folder / str(number)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os._exit(1)


def fail(number: int) -> int:
    raise ZeroDivisionError


def test_processes():
    found = list(processes(double, range(20), 2))
    assert sorted(number for number, _ in found) == list(range(0, 40, 2))
    workers = Counter(process for _, process in found)
    assert 1 <= len(workers) <= 2
    assert 1 <= default_workers("processes") <= os.cpu_count()
    assert os.getpid() not in workers
    assert list(processes(double, [], 2)) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_items_of_killed_workers_are_done_by_others(tmp_path):
    assert sorted(processes(partial(die_once, tmp_path), range(10), 2)) == list(range(10))


def test_workers_that_always_die_and_mistakes_in_code():
    with pytest.raises(WorkersLostError, match=r"killed 3 times in a row.*the same command continues"):
        list(processes(die, [1], 1))
    with pytest.raises(ZeroDivisionError):
        list(processes(fail, [1], 1))


def test_ray_without_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'circlet\[ray\]'"):
        next(ENGINES["ray"](double, [1], 1))
