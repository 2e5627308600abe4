"""Share work among processes of this machine, or the workers of a Ray cluster.

An engine calls a function for each item, with a number of workers at a time, and yields the results in any order.
The function may keep things in its process for later items, such as a model. If a worker is killed, another one
gets its item.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from circlet.checks import require
from circlet.errors import CircletError
from circlet.threads import core_count

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Workers may be killed this often in a row before any of them finishes an item.
_ATTEMPTS = 3


class WorkersLostError(CircletError, RuntimeError):
    """Workers were killed several times in a row."""

    def __init__(self) -> None:
        super().__init__(
            f"found workers killed {_ATTEMPTS} times in a row; wanted them to finish: is there enough memory "
            "for so many --workers? (Finished blocks stay: the same command continues with the rest.)"
        )


def processes(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[Result, None, None]:
    """Call `function` for each item, in processes of this machine."""
    left, attempts = dict(enumerate(items)), 0
    while left:
        attempts += 1
        # Fresh processes, since threads of this one may hold locks that a fork would copy.
        pool = ProcessPoolExecutor(
            min(workers, len(left)), multiprocessing.get_context("spawn"), initializer=_die_with_parent
        )
        try:
            given = {pool.submit(function, item): number for number, item in left.items()}
            for future in as_completed(given):
                result = future.result()
                del left[given.pop(future)]
                attempts = 0
                yield result
        except BrokenProcessPool:
            if attempts == _ATTEMPTS:
                raise WorkersLostError from None
        finally:
            pool.shutdown(cancel_futures=True)


def _die_with_parent() -> None:
    """End this process when its parent ends, for whatever reason."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all processes; one of them should speak
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def ray_tasks(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[Result, None, None]:
    """Call `function` for each item in a task of Ray, which takes one core.

    The cluster is the connected one or that of RAY_ADDRESS; otherwise, Ray starts on this machine.
    """
    ray = _ray(workers)
    task = ray.remote(num_cpus=1, max_retries=_ATTEMPTS - 1)(_call)
    shared, waiting = ray.put(function), iter(items)
    running: list[Any] = []
    try:
        while True:
            # At most one per worker, since others may use the cluster.
            running += [task.remote(shared, item) for item in islice(waiting, workers - len(running))]
            if not running:
                return
            done, running = ray.wait(running)
            yield from ray.get(done)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
        raise WorkersLostError from None
    finally:
        for each in running:
            ray.cancel(each, force=True)


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def _ray(workers: int | None = None) -> Any:
    """Connect to a Ray cluster, or start Ray here."""
    require("ray", extra="ray", purpose="--engine ray")
    import ray

    if ray.is_initialized():
        return ray
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Only the names of blocks travel between processes, which needs next to no shared memory.
    ray.init(
        address="local",
        num_cpus=workers,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    return ray


#: The values of `--engine`.
ENGINES: dict[str, Callable[[Callable[[Any], Any], Sequence[Any], int], Generator[Any, None, None]]] = {
    "processes": processes,
    "ray": ray_tasks,
}


def default_workers(engine: str) -> int:
    """Return the number of cores of this machine, or of the cluster."""
    if engine == "ray" and "RAY_ADDRESS" in os.environ:
        return int(_ray().cluster_resources().get("CPU", 1))
    return core_count()
