"""The service as a process: it starts, answers, drops slow clients, and stops without cutting anybody off."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import httpx
import pytest

from circlet.errors import ParameterError
from circlet.serve.app import create_app
from circlet.serve.guard import Access, Limits
from circlet.serve.server import _Server, bound, is_loopback, run, url_of


def test_sockets():
    for address in ("127.0.0.1", "0.0.0.0"):
        with bound(address, 0) as listening:
            assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"
            assert is_loopback(listening) == (address == "127.0.0.1")
    with pytest.raises(ParameterError, match="--host: found no address of"):
        bound("no.such.host.invalid", 0)


def test_slow_clients_are_dropped():
    import uvicorn

    server = _Server(uvicorn.Config(lambda: None), 30, lambda: None)
    dropped = []

    class Connection:
        flow, timeout_keep_alive_task = SimpleNamespace(write_paused=False), None

        def __init__(self, cycle):
            self.cycle, self.transport = cycle, SimpleNamespace(abort=lambda: dropped.append(self))

    class Cycle:
        response_complete = False

        def __init__(self, more_body):
            self.more_body = more_body

    slow, busy = Connection(None), Connection(Cycle(False))
    server.server_state.connections = {slow, busy}
    for now in (0, 20, 30):
        server._drop_slow(now)
    assert dropped == []
    server._drop_slow(31)
    assert dropped == [slow]
    slow.cycle = Cycle(True)  # it goes on after all: another request
    server._drop_slow(40)
    assert dropped == [slow]


@pytest.fixture
def running(served, request):
    """Run the service in a thread of this process; gives its address and the application.

    It has patience with slow clients, unless a parameter says how many seconds.
    """
    limits = Limits(patience=getattr(request, "param", 60))
    app = create_app([served], limits, Access(), log_requests=False)
    listening, started = bound("127.0.0.1", 0), threading.Event()
    address = listening.getsockname()
    servers = []

    def announce():
        servers.append(app.guard.connections.__closure__[0].cell_contents)
        started.set()

    thread = threading.Thread(target=run, args=(app, listening, announce))
    thread.start()
    assert started.wait(20)
    yield address, app
    servers[0].should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def test_over_a_socket(running):
    (host, port), app = running
    with httpx.Client(base_url=f"http://{host}:{port}") as client:
        assert client.get("/v1/health").json()["status"] == "ok"
        answer = client.post("/v1/models/colors/suggest", json={"text": "label0"})
        assert answer.status_code == 200
        assert "server" not in answer.headers
        assert app.guard.connections() == 1


@pytest.mark.parametrize("running", [0.3], indirect=True)
def test_slow_clients_over_a_socket(running):
    address, _ = running
    parts = (b"", b"GET /v1/he", b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, 20)) for _ in parts]
        for client, part in zip(clients, parts, strict=True):
            client.sendall(part)
        for client in clients:
            with suppress(ConnectionResetError):
                assert client.recv(1000) == b""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process could handle")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_process_stops_gracefully(folder, number):
    """Requests in flight when it is told to stop are answered, and it exits with 0."""
    started = subprocess.Popen(
        [sys.executable, "-c", HELD, "serve", str(folder), "--port", "0", "--no-learn", "--quiet"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    line = started.stderr.readline()
    assert line.startswith("serving colors on http://127.0.0.1:"), line + started.stderr.read()
    base = line.split()[3]
    port = int(base.rpartition(":")[2])

    async def main():
        async with httpx.AsyncClient(base_url=base, timeout=60) as client:

            def ask():
                return asyncio.create_task(client.post("/v1/models/colors/suggest", json={"text": "a"}))

            tasks = [ask()]
            assert await asyncio.to_thread(started.stderr.readline) == "called\n"
            tasks += [ask() for _ in range(3)]
            while "\ncirclet_queue_documents 3.0\n" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
            started.send_signal(number)
            while accepts(port):
                await asyncio.sleep(0.01)
            started.stdin.close()
            return [(await task).status_code for task in tasks]

    assert asyncio.run(main()) == [200] * 4
    assert started.wait(60) == 0
    rest = started.stderr.read()
    assert rest.endswith("stopped\n")
    assert "Traceback" not in rest
    started.stderr.close()


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


#: Runs `circlet` with a tagger that says when it is called, and waits until its input ends.
HELD = """
import sys
from circlet.runtime import Tagger
answers = Tagger.answers

def held(*arguments, **options):
    print("called", file=sys.stderr, flush=True)
    sys.stdin.read()
    return answers(*arguments, **options)

Tagger.answers = held
from circlet.cli import main
main()
"""


def test_it_starts_without_torch_and_scikit_learn(folder):
    code = (
        "import sys\nfor name in ('torch', 'sklearn'): sys.modules[name] = None\n"
        "from circlet.serve.served import Served\nfrom circlet.serve.server import run\n"
        f"Served.load(__import__('pathlib').Path({str(folder)!r}), 'a').card()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
