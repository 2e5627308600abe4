from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from circlet import threads
from circlet.threads import CHOICES, in_parallel, one_blas_thread, spin_briefly, steps, use_threads, worker_count

ASK = "import os, circlet; print(os.environ.get('GOMP_SPINCOUNT')); import sys; assert 'torch' not in sys.modules"


@pytest.fixture
def nothing_chosen(monkeypatch):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch")


@pytest.mark.usefixtures("nothing_chosen")
def test_threads_spin_briefly_unless_told_otherwise_or_too_late(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "set, to be restored")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", object())
        spin_briefly()
        assert not any(name in os.environ for name in CHOICES)
    spin_briefly()
    assert os.environ.pop("GOMP_SPINCOUNT") == "1000"
    for name in CHOICES:
        with monkeypatch.context() as patch:
            patch.setenv(name, "7")
            spin_briefly()
            assert {choice: os.environ[choice] for choice in CHOICES if choice in os.environ} == {name: "7"}


def test_importing_circlet_is_early_enough():
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1000\n"


class TestHowMany:
    @pytest.fixture(autouse=True)
    def _nothing_set(self, monkeypatch):
        monkeypatch.setattr(threads, "_chosen", None)
        threads._default_count.cache_clear()
        with threadpool_limits():  # restores the libraries' own afterwards
            yield
        threads._default_count.cache_clear()

    def test_as_many_as_openmp_has_or_one_per_core(self, monkeypatch):
        for value, expected in (("3", 3), ("5,2", 5)):
            monkeypatch.setenv("OMP_NUM_THREADS", value)
            threads._default_count.cache_clear()
            assert worker_count() == expected
        for value in ("", "0", "many", None):
            monkeypatch.setenv("OMP_NUM_THREADS", str(value))
            if value is None:
                monkeypatch.delenv("OMP_NUM_THREADS")
            threads._default_count.cache_clear()
            assert 1 <= worker_count() <= os.cpu_count()

    def test_as_many_as_chosen(self):
        use_threads(1)
        assert worker_count() == 1
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}


def test_one_blas_thread_until_nobody_needs_it_anymore():
    def blas() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2):
        with one_blas_thread():
            assert blas() == {1}
            with one_blas_thread():
                assert blas() == {1}
            assert blas() == {1}
        assert blas() == {2}


def test_steps():
    assert list(steps(0, 3)) == []
    assert list(steps(3, 3)) == [(0, 3)]
    assert list(steps(7, 3)) == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_order(threads, monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", threads)
    assert in_parallel(lambda start, end: (start, end), 8, 3) == [(0, 3), (3, 6), (6, 8)]
    assert in_parallel(lambda start, end: (start, end), 0, 3) == []


def test_several_threads_work_and_do_not_multiply(monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", 2)
    barrier = threading.Barrier(2, timeout=10)  # one thread alone would wait for ever
    assert len(in_parallel(lambda start, end: barrier.wait(), 2, 1)) == 2

    def fail(start, end):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_parallel(fail, 4, 1)
    assert not any("ThreadPool" in each.name for each in threading.enumerate())

    def names(start, end):
        return set(in_parallel(lambda start, end: threading.current_thread().name, 3, 1))

    assert [len(each) for each in in_parallel(names, 2, 1)] == [1, 1]
