"""Counts for Prometheus, in its text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from circlet.version import __version__

if TYPE_CHECKING:
    from circlet.serve.api import Service

__all__ = ["CONTENT_TYPE", "Monitor"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Upper ends of the histogram's buckets, seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STATES = ("idle", "learning", "failed")


class Monitor:
    """Counts requests; used by the event loop's thread alone."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        key = (route, method, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        if route not in self._seconds:
            self._seconds[route] = ([0] * (len(BUCKETS) + 1), [0.0])
        counts, total = self._seconds[route]
        counts[bisect_left(BUCKETS, seconds)] += 1
        total[0] += seconds

    def text(self, service: Service) -> str:
        """Everything, as Prometheus reads it."""
        return "\n".join(self._lines(service)) + "\n"

    def _lines(self, service: Service) -> Iterator[str]:
        yield from _metric("circlet_requests_total", "counter", "Requests answered.")
        for (route, method, status), count in sorted(self.requests.items()):
            yield _sample("circlet_requests_total", count, route=route, method=method, status=status)
        yield from _metric("circlet_request_seconds", "histogram", "How long requests took.")
        for route, (counts, total) in sorted(self._seconds.items()):
            below = 0
            for end, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                below += count
                yield _sample("circlet_request_seconds_bucket", below, route=route, le=end)
            yield _sample("circlet_request_seconds_sum", total[0], route=route)
            yield _sample("circlet_request_seconds_count", below, route=route)
        batcher = service.batcher
        yield from _metric("circlet_documents_total", "counter", "Documents that were computed.")
        yield _sample("circlet_documents_total", batcher.documents)
        yield from _metric("circlet_batches_total", "counter", "Calls of the runtime; requests share them.")
        yield _sample("circlet_batches_total", batcher.calls)
        yield from _metric("circlet_queue_documents", "gauge", "Documents that wait.")
        yield _sample("circlet_queue_documents", batcher.waiting)
        yield from _metric("circlet_model_info", "gauge", "The version of each model that is served.")
        for name, model in service.models.items():
            yield _sample("circlet_model_info", 1, model=name, version=model.current.version, circlet=__version__)
        yield from self._learning(service)

    def _learning(self, service: Service) -> Iterator[str]:
        rooms = {name: model.classroom for name, model in service.models.items() if model.classroom is not None}
        states = {name: classroom.state() for name, classroom in rooms.items()}
        yield from _metric("circlet_learning_state", "gauge", "1 for what a model is doing about feedback.")
        for name, state in states.items():
            for each in STATES:
                yield _sample("circlet_learning_state", int(state["state"] == each), model=name, state=each)
        yield from _metric(
            "circlet_feedback_taught", "gauge", "Feedback that the served version has learned from."
        )
        for name, state in states.items():
            yield _sample("circlet_feedback_taught", state["taught"], model=name)
        yield from _metric("circlet_feedback_waiting", "gauge", "Feedback that is not learned yet.")
        for name, state in states.items():
            yield _sample("circlet_feedback_waiting", state["waiting"], model=name)


def _metric(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _sample(name: str, value: float, **labels: Any) -> str:
    pairs = ",".join(f'{key}="{_escaped(str(each))}"' for key, each in labels.items())
    return f"{name}{{{pairs}}} {value!r}" if pairs else f"{name} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
