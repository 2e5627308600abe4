"""A browser, and a server for its page: the fake one, or with CIRCLET_TEST_SERVER=real `circlet serve`."""

from __future__ import annotations

import json
import os
import shutil
from urllib.request import Request, urlopen

import pytest
from tests.serve.page.chromium import chromium
from tests.serve.page.fake_server import FakeServer
from tests.serve.page.real_server import RealServer, train

REAL = os.environ.get("CIRCLET_TEST_SERVER", "fake") == "real"
#: Sentences that both models know what to do with.
LOOP = "run coroutines concurrently in an event loop"
MAIL = "open a connection to a mail server and send a message"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    # For a module only: while it is there, an event loop runs, and other tests want to start their own.
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make browser-test")
    path = chromium()
    if path is None:
        pytest.skip("needs Chromium: make browser-test")
    with playwright.sync_playwright() as started:
        home = {"HOME": str(tmp_path_factory.mktemp("browser"))}  # where it keeps caches and crash reports
        launched = started.chromium.launch(executable_path=path, args=["--no-sandbox"], env={**os.environ, **home})
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    pytest.importorskip("uvicorn", reason="needs circlet serve, which is not installed here")
    folder = tmp_path_factory.mktemp("trained") / "pydocs"
    train(folder)
    return folder


@pytest.fixture
def server(request, tmp_path):
    if REAL:
        copy = tmp_path / "pydocs"
        shutil.copytree(request.getfixturevalue("trained"), copy)
    started = RealServer(copy) if REAL else FakeServer()
    started.start()
    yield started
    started.stop()


@pytest.fixture
def fake():
    """For what only the fake server does on demand: fail, wait, ask for a token."""
    started = FakeServer()
    started.start()
    yield started
    started.stop()


@pytest.fixture
def open_page(browser):
    """Opens pages, and checks at the end that none has complained: no error, nothing that its policy forbids."""
    complaints: list[str] = []
    contexts = []

    def complain(message):
        # Chromium reports each failed request; the tests of failures look at what the page says about them.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def opened(url: str, *, ready: bool = True, script: str | None = None, **options):
        context = browser.new_context(viewport={"width": 1180, "height": 820}, **options)
        contexts.append(context)
        context.set_default_timeout(60_000 if REAL else 15_000)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if script:
            page.add_init_script(script)
        page.goto(url)
        if ready:
            page.wait_for_selector(".connection.up")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(open_page, server):
    return open_page(server.url)


@pytest.fixture
def post(server):
    """The service's own answer to a request, to compare with what the page shows."""

    def posted(path: str, **body):
        request = Request(f"{server.url}v1/models/pydocs/{path}", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request) as response:
            return json.load(response)

    return posted
