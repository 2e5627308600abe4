"""A browser, the service, and what tests do and look at on its page."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.serve.page.chromium import chromium
from tests.serve.page.service import PYDOCS, Service, train

from circlet.serve.feedback import Learner

#: Sentences that the model knows what to do with.
LOOP = "run coroutines concurrently in an event loop"
MAIL = "open a connection to a mail server and send a message"
Page = Any


def type_text(page: Page, text: str) -> None:
    """Type a text, and wait for its labels."""
    with page.expect_response(lambda response: response.url.endswith("/suggest")):
        page.fill("#text", text)
    page.wait_for_selector("#suggestions-panel[aria-busy=false]")


def labels(page: Page) -> list[str]:
    return [row.get_attribute("data-label") for row in page.query_selector_all("#suggestions .row")]


def marks(page: Page, side: str) -> list[str]:
    return page.eval_on_selector_all(f"mark.{side}", "marks => marks.map(mark => mark.textContent)")


def row(page: Page, label: str) -> Any:
    return page.locator(f'#suggestions .row[data-label="{label}"]')


def answer_first(page: Page, path: str, *answers: tuple[int, str]) -> None:
    """Answer the first requests of a path with these statuses and details; the service answers the others."""
    rest = list(answers)

    def handle(route: Any) -> None:
        if not rest:
            route.continue_()
            return
        status, detail = rest.pop(0)
        route.fulfill(status=status, json={"detail": detail}, headers={"Retry-After": "0.2"})

    page.route(f"**{path}", handle)


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
    folder = tmp_path_factory.mktemp("trained") / PYDOCS
    train(folder)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A model of one's own. Its files are links, since they never change."""
    return shutil.copytree(trained, tmp_path / PYDOCS, copy_function=os.link)


@pytest.fixture
def serve(monkeypatch, train_here):
    """Start services, which learn in this process, where torch is loaded already."""
    monkeypatch.setattr(Learner, "_train", train_here)
    started = []

    def start(*folders, **options):
        started.append(Service(*folders, **options))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def server(serve, folder):
    return serve(folder)


@pytest.fixture
def open_page(browser):
    """Opens pages, and checks at the end that none has complained: no error, nothing that its policy forbids."""
    complaints: list[str] = []
    contexts = []

    def complain(message):
        # Chromium reports each failed request; the tests of failures look at what the page says about them.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def opened(url: str, *, ready: bool = True, prepare=lambda page: None, **options):
        context = browser.new_context(viewport={"width": 1180, "height": 820}, **options)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        prepare(page)
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
def ask(server):
    """The service's own answer about the model, to compare with what the page shows; a body is posted."""

    def asked(path: str, **body):
        content = json.dumps(body).encode() if body else None
        request = Request(f"{server.url}v1/models/pydocs{path}", content, {"Content-Type": "application/json"})
        with urlopen(request) as response:
            return json.load(response)

    return asked
