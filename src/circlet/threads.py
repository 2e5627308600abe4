"""How many threads a process uses, how they wait for each other, and work that they share.

torch's threads meet at the end of every parallel loop, and by default OpenMP lets them spin while they wait.
Beside one other busy process, a thread that has lost its core then keeps all others spinning. Threads that spin
only briefly before they sleep are nearly as fast on an idle machine and much faster on a busy one, as
benchmarks/threads.py measures.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

#: If the user has set any of these, OpenMP's own, GNU's or LLVM's, it decides how threads wait.
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
#: Turns that a thread spins before it sleeps. GNU's OpenMP, which torch has on Linux, reads it.
SPINS = 1000


def spin_briefly() -> None:
    """Let waiting threads spin only briefly, unless the user has chosen or torch has been imported already."""
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOICES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


_chosen: int | None = None


def use_threads(threads: int) -> None:
    """Let NumPy's products and SciPy's transforms use this many threads."""
    global _chosen  # noqa: PLW0603 — as BLAS has it, which is also one number for a process
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    _chosen = threads


#: How many are inside `one_blas_thread` now, and what the first of them changed.
_inside: int = 0
_limit: Any = None
_counting = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let a product of matrices use one thread only, because threads of our own use the other cores.

    BLAS has one number of threads for the whole process: it is restored once nobody is inside anymore.
    """
    global _inside, _limit  # noqa: PLW0603 — as above
    with _counting:
        if not _inside:
            _limit = _libraries().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if not _inside:
                _limit.restore_original_limits()


@cache
def _libraries() -> Any:
    # Finding the libraries takes a millisecond, changing their number of threads some microseconds.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def worker_count() -> int:
    """How many threads a call may use: as many as chosen, or as OpenMP has, or one per core.

    In a thread of `in_parallel` it is one, because the others use the other cores.
    """
    return 1 if getattr(_shared, "busy", False) else _chosen or _default_count()


@cache
def _default_count() -> int:
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    return core_count()


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Result = TypeVar("Result")


def steps(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Return start and end of consecutive ranges of `size` that cover `n`."""
    return pairwise([*range(0, n, size), n])


#: Marks a thread as one of several.
_shared = threading.local()


def in_parallel(
    function: Callable[[int, int], Result], n: int, size: int, most: int | None = None
) -> list[Result]:
    """What a function gives for ranges of `size` that cover `n`, by `most` threads or as many as there may be.

    If it is called by the function itself, there are as many threads already.
    """
    if 0 < n <= size:
        return [function(0, n)]
    ranges = list(steps(n, size))
    threads = 1 if getattr(_shared, "busy", False) else min(most or worker_count(), len(ranges))
    if threads <= 1:
        return [function(*each) for each in ranges]

    from concurrent.futures import ThreadPoolExecutor  # which not every command needs

    def work(each: tuple[int, int]) -> Result:
        _shared.busy = True
        return function(*each)

    # The threads live only as long as the call: starting them takes less time than a block, and none is left to
    # get lost when the process forks.
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, ranges))
