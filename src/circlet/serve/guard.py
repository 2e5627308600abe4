"""Access, limits and rates; security headers for browsers; the request log and metrics.

Every request passes through the guard first, before its body is read or its path is routed.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import math
import re
import time
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from circlet.version import __version__

if TYPE_CHECKING:
    from circlet.serve.batching import Batcher
    from circlet.serve.served import Served

log = logging.getLogger("circlet.serve")

#: Headers of all responses. The policy lets browsers load only the page's own files.
HEADERS = [
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
            b"font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Limits:
    """What a service accepts."""

    body: int = 8 << 20  # bytes of a request
    documents: int = 512  # of a request
    characters: int = 500_000  # of a text
    k: int = 100  # labels per document
    queue: int = 2048  # documents that may wait to be tagged; beyond that, clients must retry later
    held: int = 256 << 20  # bytes of all requests in flight
    connections: int = 1000
    rate: float = 1000.0  # requests per second of a client, on average; 0 means no limit
    patience: float = 30.0  # seconds that a client may take to send a request, or to receive the response


@dataclass(frozen=True)
class Access:
    """Who may use the service."""

    token: str | None = None  # that clients must send as `Authorization: Bearer …`
    hosts: Collection[str] | None = None  # valid names of the service, without ports; None accepts any name
    origins: Collection[str] = ()  # other origins whose pages may use the service, like `https://example.org`


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a JSON response, without FastAPI's validation of our own numbers."""
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return Response(encoded, status, headers, media_type="application/json")


class Guard:
    """An ASGI application in front of another one; it may log a line per request, and the texts in it.

    Endpoints find `body` and `trusted` in the state of a request, and put its `texts` there for the log.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        access: Access,
        monitor: Monitor,
        *,
        log_requests: bool = True,
        log_texts: bool = False,
    ) -> None:
        self.app, self.limits, self.access, self.monitor = app, limits, access, monitor
        self.log_requests, self.log_texts = log_requests or log_texts, log_texts
        #: Counts the open connections; the server sets it.
        self.connections: Callable[[], int] = lambda: 0
        self._rates, self._held = Rates(limits.rate), 0
        self._credentials = None if access.token is None else f"Bearer {access.token}".encode()
        self._headers = [*HEADERS]
        if not access.origins:  # pages of other origins could not read anything otherwise
            self._headers.append((b"cross-origin-resource-policy", b"same-origin"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        started, status, size = time.perf_counter(), 499, 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                theirs = list(message.get("headers", []))
                message["headers"] = [*theirs, *self._headers]
                if not any(name == b"cache-control" for name, _ in theirs):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            headers, state = dict(scope["headers"]), scope.setdefault("state", {})
            self._check(scope, headers, started)
            body = await self._body(scope, headers, receive)
            if body is None:
                return  # the client has disconnected
            size, state["body"] = len(body), body
            await self.app(scope, receive, sending)
        except HTTPException as refusal:
            await answer({"detail": refusal.detail}, refusal.status_code, refusal.headers)(scope, receive, sending)
        finally:
            self._held -= size
            self._note(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope, headers: dict[bytes, bytes], now: float) -> None:
        """Raise an `HTTPException` unless the request is allowed."""
        if self.connections() > self.limits.connections:
            raise _later(f"found more than {self.limits.connections:,} connections; wanted fewer: try again later")
        address = scope["client"][0] if scope.get("client") else ""
        if wait := self._rates.wait(address, now):
            raise HTTPException(
                429,
                f"found more than {self.limits.rate:g} requests per second; wanted fewer: try again later",
                {"retry-after": str(math.ceil(wait))},
            )
        host = headers.get(b"host", b"").decode("latin-1")
        if self.access.hosts is not None and name_of(host) not in self.access.hosts:
            raise HTTPException(
                400, f"found the host {host[:80]!r}; wanted one of {', '.join(sorted(self.access.hosts))}"
            )
        if scope["method"] not in SAFE:
            self._check_origin(headers, host)
        given = headers.get(b"authorization", b"")
        trusted = self._credentials is None or hmac.compare_digest(given, self._credentials)
        scope["state"]["trusted"] = trusted
        # The page, which asks for the token, and the health check need none.
        if not trusted and not re.fullmatch(r"/|/page/.*|/v1/health", scope["path"]):
            raise HTTPException(
                401,
                f"found {'another' if given else 'no'} token; wanted the header `Authorization: Bearer TOKEN`",
                {"www-authenticate": "Bearer"},
            )

    def _check_origin(self, headers: dict[bytes, bytes], host: str) -> None:
        """Refuse requests of other sites' pages, which must not cause changes or costs."""
        origin = headers.get(b"origin")
        if origin is None:
            if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
                raise HTTPException(403, "found a request of another site's page; wanted one from here")
            return
        text = origin.decode("latin-1")
        if text not in self.access.origins and text.partition("://")[2] != host:
            raise HTTPException(
                403, f"found the origin {text[:80]!r}; wanted this one, or `--allow-origin` for it"
            )

    async def _body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Read the request's body and count it as held; return None if the client disconnects."""
        length = headers.get(b"content-length", b"")
        if scope["method"] in SAFE and not length and b"transfer-encoding" not in headers:
            return b""
        if length.isdigit() and int(length[:20]) > self.limits.body:
            raise self._too_large(f"{int(length[:20]):,}")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self.limits.body:
                raise self._too_large("more")
            if self._held + size > self.limits.held:
                raise _later("found too many large requests; wanted fewer at a time: try again later")
            parts.append(part)
            if not message.get("more_body", False):
                self._held += size
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self, found: str) -> HTTPException:
        return HTTPException(413, f"found {found} bytes; wanted at most {self.limits.body:,} in a request")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = getattr(scope.get("route"), "path", "none"), scope["method"]
        self.monitor.observe(route, method if method in (*SAFE, "POST", "DELETE") else "other", status, seconds)
        if not self.log_requests:
            return
        client = scope["client"][0] if scope.get("client") else "-"
        # The raw, percent-encoded path, so that no client can inject lines into the log.
        path = scope.get("raw_path", b"").decode("latin-1")[:200]
        line = f"{client} {method} {path} {status} {1000 * seconds:.1f} ms"
        if self.log_texts and (texts := scope.get("state", {}).get("texts")):
            line += " " + json.dumps([text[:200] for text in texts], ensure_ascii=True)
        log.info("%s", line)


def name_of(host: str) -> str:
    """Return the name in a Host header, without the port.

    >>> name_of("LocalHost:8000"), name_of("[::1]:8000"), name_of("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.lower() if host.count(":") > 1 else host.partition(":")[0].lower()


def _later(detail: str) -> HTTPException:
    return HTTPException(503, detail, {"retry-after": "1", "connection": "close"})


class Rates:
    """Limits the request rate of each client by a token bucket, which gains `rate` tokens per second.

    It remembers this many clients, and forgets the one that has been silent longest first.

    >>> rates = Rates(2)
    >>> [rates.wait("a", 0.0) for _ in range(5)]
    [0.0, 0.0, 0.0, 0.0, 0.5]
    >>> rates.wait("b", 0.0), rates.wait("a", 0.5)
    (0.0, 0.0)
    """

    def __init__(self, rate: float, clients: int = 10_000) -> None:
        # A client may save up two seconds' worth of requests.
        self.rate, self.most, self.clients = rate, max(1.0, 2 * rate), clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Take a token, or return the seconds until there is one; `now` is a monotonic time."""
        if not self.rate:
            return 0.0
        client = bucket_of(address)
        tokens, before = self._buckets.pop(client, (self.most, now))
        tokens = min(self.most, tokens + self.rate * (now - before))
        missing = max(0.0, 1 - tokens)
        self._buckets[client] = (tokens if missing else tokens - 1, now)
        if len(self._buckets) > self.clients:
            self._buckets.popitem(last=False)
        return missing / self.rate


def bucket_of(address: str) -> str:
    """Return whose bucket an address uses: for IPv6 the network's, since a host may have 2⁶⁴ addresses."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


#: Upper ends of the histogram's buckets, seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Monitor(Collector):
    """Counts requests, and describes a service to Prometheus; used by the event loop's thread alone.

    Requests are counted in plain dictionaries, because prometheus_client's own counters lock at every step. No
    registry is involved, so applications in one process share nothing.
    """

    def __init__(self, models: Mapping[str, Served], batcher: Batcher) -> None:
        self.models, self.batcher = models, batcher
        #: Numbers of requests by route, method and status; of requests in each bucket, and all seconds, by route.
        self.requests = Counter[tuple[str, str, int]]()
        self._buckets = defaultdict[str, list[int]](lambda: [0] * (len(BUCKETS) + 1))
        self._seconds = defaultdict[str, float](float)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[route, method, status] += 1
        self._buckets[route][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self).decode()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        requests = CounterMetricFamily(
            "circlet_requests_total", "Requests answered.", labels=["route", "method", "status"]
        )
        for (route, method, status), count in sorted(self.requests.items()):
            requests.add_metric([route, method, str(status)], count)
        seconds = HistogramMetricFamily("circlet_request_seconds", "Seconds to the response.", labels=["route"])
        ends = [*map(str, BUCKETS), "+Inf"]
        for route, counts in sorted(self._buckets.items()):
            seconds.add_metric([route], list(zip(ends, accumulate(counts), strict=True)), self._seconds[route])
        yield from (requests, seconds)
        own = self.batcher
        yield CounterMetricFamily("circlet_documents_total", "Documents that were computed.", own.documents)
        yield CounterMetricFamily("circlet_batches_total", "Calls of the runtime; requests share them.", own.calls)
        yield GaugeMetricFamily("circlet_queue_documents", "Documents that wait.", own.waiting)

        def gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(name, about, labels=["model", *labels])

        served = gauge("circlet_model_info", "The version of each model that is served.", "version", "circlet")
        doing = gauge("circlet_learning_state", "1 for the state of learning from feedback.", "state")
        taught = gauge("circlet_feedback_taught", "Feedback that the served version has learned from.")
        waiting = gauge("circlet_feedback_waiting", "Feedback that is not learned yet.")
        for name, model in self.models.items():
            served.add_metric([name, str(model.current.version), __version__], 1)
            if model.learner is not None:
                state = model.learner.state()
                for each in ("idle", "learning", "failed"):
                    doing.add_metric([name, each], int(state["state"] == each))
                taught.add_metric([name], state["taught"])
                waiting.add_metric([name], state["waiting"])
        yield from (served, doing, taught, waiting)
