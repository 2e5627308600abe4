"""One thread computes for all requests, and combines waiting requests with equal options in one call.

A batch takes much less time per document than single documents, and several computing threads only slow each other
down. So requests wait in a queue, and the thread takes those that arrived while it was busy. If the queue is full,
clients must retry later.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

#: Most documents per call; larger calls would make other requests wait.
LARGEST = 128

Compute = Callable[[list[Any]], Sequence[Any]]


class OverloadedError(Exception):
    """The queue has no room for these documents now."""


@dataclass(eq=False, slots=True)
class _Job:
    compute: Compute
    documents: list[Any]
    future: asyncio.Future[Any]


class Batcher:
    """A queue, in which `room` documents may wait, and the thread that works on it.

    A larger request is accepted only if nothing else waits. If the last call had several requests, the thread
    waits `pause` seconds for more: clients that got responses together ask again at about the same time.
    """

    def __init__(self, room: int, pause: float = 0.001) -> None:
        self.room, self.pause = room, pause
        self.waiting = self.calls = self.documents = 0
        # Jobs by key, in the order of arrival of each key's first job.
        self._groups: dict[Hashable, list[_Job]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._crowd = 0  # requests in the last call
        self._thread = threading.Thread(target=self._work, name="circlet-batches", daemon=True)
        self._thread.start()

    def submit(self, key: Hashable, compute: Compute, documents: list[Any]) -> asyncio.Future[Any]:
        """Queue documents; the future gets a list of their results. Raise `OverloadedError` if the queue is full.

        Jobs with equal keys are computed together, in the batcher's thread, by the `compute` of any of them. It
        maps a list of documents to a sequence of as many results.
        """
        future = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._closed or (self.waiting and self.waiting + len(documents) > self.room):
                raise OverloadedError
            self._groups.setdefault(key, []).append(_Job(compute, documents, future))
            self.waiting += len(documents)
            self._changed.notify()
        return future

    def close(self) -> None:
        """Finish the waiting jobs, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._next_jobs():
            self.calls += 1
            self.documents += sum(len(job.documents) for job in jobs)
            _compute(jobs)
            del jobs  # do not keep the documents in memory while waiting

    def _next_jobs(self) -> list[_Job]:
        """Wait for jobs, and return those to compute together, without canceled ones; none to stop."""
        with self._changed:
            while True:
                if not self._groups and not self._closed:
                    self._changed.wait()
                    if self._crowd > 1 and not self._closed:
                        self._changed.wait_for(self._is_crowded, self.pause)
                if not self._groups:
                    return []
                if jobs := self._next_group():
                    self._crowd = len(jobs)
                    return jobs

    def _is_crowded(self) -> bool:
        return self._closed or sum(map(len, self._groups.values())) >= self._crowd

    def _next_group(self) -> list[_Job]:
        key = next(iter(self._groups))
        group, jobs, size = self._groups.pop(key), list[_Job](), 0
        while group and (not jobs or size + len(group[0].documents) <= LARGEST):
            job = group.pop(0)
            self.waiting -= len(job.documents)
            if not job.future.cancelled():
                jobs.append(job)
                size += len(job.documents)
        if group:  # goes to the end of the queue, so that other groups have their turn
            self._groups[key] = group
        return jobs


def _compute(jobs: list[_Job]) -> None:
    """Compute for several requests at once, and give each its part of the result."""
    error: Exception | None = None
    results: Sequence[Any] = ()
    try:
        results = jobs[0].compute([document for job in jobs for document in job.documents])
    except Exception as caught:  # the waiting request gets it
        if len(jobs) > 1:  # only one of them may be at fault
            for job in jobs:
                _compute([job])
            return
        error = caught

    def deliver() -> None:
        start = 0
        for job in jobs:
            end = start + len(job.documents)
            if not job.future.done():
                if error is None:
                    job.future.set_result(results[start:end])
                else:
                    job.future.set_exception(error)
            start = end

    try:  # futures belong to the thread of their event loop
        jobs[0].future.get_loop().call_soon_threadsafe(deliver)
    except RuntimeError:  # the loop is closed, so no request waits anymore
        log.debug("%d requests were answered after the service had stopped", len(jobs))
