from __future__ import annotations

import threading

import pytest

from circlet.runtime.parallel import in_parallel, steps


@pytest.mark.parametrize(
    ("n", "size", "expected"), [(0, 3, []), (3, 3, [(0, 3)]), (7, 3, [(0, 3), (3, 6), (6, 7)])]
)
def test_steps(n, size, expected):
    assert list(steps(n, size)) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_order(threads, monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", threads)
    assert in_parallel(lambda start, end: (start, end), 8, 3) == [(0, 3), (3, 6), (6, 8)]
    assert in_parallel(lambda start, end: (start, end), 0, 3) == []


def test_several_threads_work(monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", 2)
    barrier = threading.Barrier(2, timeout=10)  # one thread alone would wait for ever
    assert len(in_parallel(lambda start, end: barrier.wait(), 2, 1)) == 2
    assert not any("ThreadPool" in each.name for each in threading.enumerate())


def test_errors_are_raised(monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", 2)

    def fail(start, end):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_parallel(fail, 4, 1)


def test_threads_do_not_multiply(monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", 2)

    def names(start, end):
        return set(in_parallel(lambda start, end: threading.current_thread().name, 3, 1))

    assert [len(each) for each in in_parallel(names, 2, 1)] == [1, 1]
