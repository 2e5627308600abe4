"""Work on many rows, shared among threads: NumPy and SciPy let others run while they compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from circlet.threads import one_blas_thread, worker_count

__all__ = ["in_parallel", "steps"]

Result = TypeVar("Result")


def steps(n: int, size: int) -> Iterator[tuple[int, int]]:
    """The ends of consecutive ranges of `size` that cover `n`."""
    return pairwise([*range(0, n, size), n])


#: Says in a thread that it is one of several.
_shared = threading.local()


def in_parallel(function: Callable[[int, int], Result], n: int, size: int) -> list[Result]:
    """What a function gives for ranges of `size` that cover `n`, by as many threads as there may be.

    If it is called by the function itself, there are as many threads already.
    """
    if 0 < n <= size:
        return [function(0, n)]
    ranges = list(steps(n, size))
    threads = 1 if getattr(_shared, "busy", False) else min(worker_count(), len(ranges))
    if threads <= 1:
        return [function(*each) for each in ranges]

    def work(each: tuple[int, int]) -> Result:
        _shared.busy = True
        return function(*each)

    # The threads live only as long as the call: starting them takes less time than a block, and none is left to
    # get lost when the process forks.
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, ranges))
