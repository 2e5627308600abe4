"""A load generator that costs little: requests are made beforehand, and answers are only counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode

import numpy as np

__all__ = ["Load", "form_requests", "load", "suggest_requests"]


@dataclass
class Load:
    """What a number of clients got."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    took: float = 0.0

    def summary(self, documents: int = 1) -> dict[str, Any]:
        """Documents per second, percentiles of what a request took, and statuses; of `documents` per request."""
        p50, p99 = (1000 * float(np.percentile(self.seconds, share)) for share in (50, 99))
        return {
            "documents_per_s": documents * self.statuses[200] / self.took,
            "p50_ms": p50,
            "p99_ms": p99,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


class _Client(asyncio.Protocol):
    def __init__(self, requests: Sequence[bytes], first: int, step: int, until: Any, load: Load) -> None:
        self.requests, self.next, self.step, self.until, self.load = requests, first, step, until, load
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer, self.missing, self.sent = b"", -1, 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        if self.until():
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.transport.write(self.requests[self.next % len(self.requests)])
        self.next += self.step

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if self.missing < 0:
            end = self.answer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.answer[:end].lower()
            start = head.index(b"content-length:") + 15
            self.missing = end + 4 + int(head[start : start + 12].split(b"\r\n")[0])
        if len(self.answer) < self.missing:
            return
        self.load.statuses[int(self.answer[9:12])] += 1
        self.load.seconds.append(time.perf_counter() - self.sent)
        self.answer, self.missing = b"", -1
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.until():
            self.load.statuses[0] += 1  # the server hung up
        if not self.done.done():
            self.done.set_result(None)


def load(
    port: int, requests: Sequence[bytes], clients: int, *, seconds: float | None = None, count: int | None = None
) -> Load:
    """Let clients ask one thing after the other, for some seconds or until there are so many answers."""
    return asyncio.run(_load(port, requests, clients, seconds, count))


def _itself(client: _Client) -> _Client:
    return client


async def _load(
    port: int, requests: Sequence[bytes], clients: int, seconds: float | None, count: int | None
) -> Load:
    found, started = Load(), time.perf_counter()

    def until() -> bool:
        if count is not None:
            return len(found.seconds) >= count
        return time.perf_counter() - started >= (seconds or 0)

    loop, made = asyncio.get_running_loop(), []
    for number in range(clients):
        client = _Client(requests, number, clients, until, found)
        await loop.create_connection(partial(_itself, client), "127.0.0.1", port)
        made.append(client)
    await asyncio.gather(*(client.done for client in made))
    found.took = time.perf_counter() - started
    return found


def suggest_requests(port: int, model: str, batches: Sequence[Sequence[str]], k: int) -> list[bytes]:
    """A request of circlet's own API for each batch of texts."""
    made = []
    for texts in batches:
        body = json.dumps(
            {"text": texts[0], "k": k} if len(texts) == 1 else {"texts": list(texts), "k": k}
        ).encode()
        made.append(_post(port, f"/v1/models/{model}/suggest", "application/json", body))
    return made


def form_requests(port: int, project: str, texts: Sequence[str], k: int) -> list[bytes]:
    """A request of Annif's API for each text."""
    path, kind = f"/v1/projects/{project}/suggest", "application/x-www-form-urlencoded"
    return [_post(port, path, kind, urlencode({"text": text, "limit": k}).encode()) for text in texts]


def _post(port: int, path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
