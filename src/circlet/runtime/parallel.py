"""Work on many rows, shared among threads: NumPy and SciPy let others run while they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from circlet.threads import worker_count

__all__ = ["in_parallel", "steps"]

Result = TypeVar("Result")


def steps(n: int, size: int) -> Iterator[tuple[int, int]]:
    """The ends of consecutive ranges of `size` that cover `n`."""
    return pairwise([*range(0, n, size), n])


def in_parallel(function: Callable[[int, int], Result], n: int, size: int) -> list[Result]:
    """What a function gives for ranges of `size` that cover `n`, by as many threads as there may be."""
    ranges = list(steps(n, size))
    threads = min(worker_count(), len(ranges))
    if threads <= 1:
        return [function(*each) for each in ranges]
    # The threads live only as long as the call: starting them takes less time than a block, and none is left to
    # get lost when the process forks.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda each: function(*each), ranges))
