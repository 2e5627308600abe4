"""Run the application with uvicorn: its socket, signals, and limits for slow clients."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import uvicorn

from circlet.compat import waits_for_client
from circlet.errors import OutputError, ParameterError
from circlet.serve.app import App
from circlet.threads import one_blas_thread


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket that no other program has; raise `OutputError` if that is impossible."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ParameterError(f"--host: found no address of {host!r} ({error.strerror})") from None
    found = socket.socket(family, kind, number)
    try:
        if sys.platform != "win32":  # on Windows, it would let two programs share a port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1)  # some systems report only now that the port is in use
    except OSError as error:
        found.close()
        raise OutputError(
            f"cannot listen on {host} port {port}: {error.strerror}; wanted a free one (--port 0 finds one)"
        ) from None
    return found


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def url_of(listening: socket.socket) -> str:
    """Return the URL of a socket for a browser."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = "127.0.0.1" if listening.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: App, listening: socket.socket, started: Callable[[], Any], proxies: list[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in flight are answered first.

    `started` is called when clients can connect. `proxies` are addresses whose `X-Forwarded-For` names the client.
    """
    config = uvicorn.Config(
        app,
        http="httptools" if find_spec("httptools") else "h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or [],
        timeout_keep_alive=60,  # seconds that a connection may be idle between two requests
        timeout_graceful_shutdown=30,  # seconds that running requests have to finish
    )
    server = _Server(config, app.guard.limits.patience, started)
    app.guard.connections = lambda: len(server.server_state.connections)
    before = sys.getswitchinterval()
    # Threads switch after 0.5 ms. With the default of 5 ms, the event loop would wait that long each time.
    sys.setswitchinterval(0.0005)
    try:
        # Several threads do not speed up small products; they spin while waiting and slow down everything else.
        # Large batches are split among threads as a whole.
        with one_blas_thread():
            server.run(sockets=[listening])
    finally:
        sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, patience: float, started: Callable[[], Any]) -> None:
        super().__init__(config)
        self._patience, self._on_start = patience, started
        #: When each connection, with its request, began to wait for its client.
        self._since: dict[tuple[Any, Any], float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._drop_slow(time.monotonic())
        return await super().on_tick(counter)

    def _drop_slow(self, now: float) -> None:
        """Drop the connections of clients that neither send nor receive anything in time."""
        connections: set[Any] = {*self.server_state.connections}
        waiting = [(each, each.cycle) for each in connections if waits_for_client(each)]
        self._since = {each: self._since.get(each, now) for each in waiting}
        for (connection, _), since in self._since.items():
            if now - since > self._patience:
                connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and let the program end as usual; uvicorn would raise the signal again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = [name for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self.handle_exit) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)
