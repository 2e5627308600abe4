"""Empty, busy, failed, offline; tokens; light, dark and narrow; the keyboard alone; what screen readers get."""

from __future__ import annotations

from typing import Any

import pytest
from tests.serve.page.chromium import AXE
from tests.serve.page.conftest import LOOP, MAIL, answer_first, labels, marks, row, type_text

pytestmark = pytest.mark.slow
VIEWS = ("text", "file", "model")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_a_dead_server_and_its_return(page, server):
    type_text(page, LOOP)
    server.stop()
    page.fill("#text", MAIL)
    page.wait_for_selector(".connection.down")
    page.wait_for_selector("#suggestions-message.error")
    assert "The server does not answer." in page.inner_text("#suggestions-message")
    assert page.input_value("#text") == MAIL
    server.start()
    page.wait_for_selector(".connection.up")
    page.wait_for_selector(".row")
    assert not page.is_visible("#suggestions-message")
    assert "Connected" in page.inner_text("#connection")


def test_a_dead_server_is_noticed_without_typing(open_page, server):
    faster = "setTimeout = (now => (f, ms) => now(f, ms / 10))(setTimeout)"
    page = open_page(server.url, prepare=lambda page: page.add_init_script(faster))
    server.stop()
    page.wait_for_selector(".connection.down")
    server.start()
    page.wait_for_selector(".connection.up")


def test_try_now(page, server):
    server.stop()
    page.fill("#text", LOOP)
    page.wait_for_selector(".connection.down")
    server.start()
    page.click("#retry")
    page.wait_for_selector(".connection.up")


def test_an_error_in_the_services_own_words(page):
    answer_first(page, "/suggest", (422, "found a text of 3 characters; wanted more"))
    type_text(page, "abc")
    assert page.inner_text("#suggestions-message.error") == "found a text of 3 characters; wanted more"
    type_text(page, LOOP)
    page.wait_for_selector(".row")
    assert not page.is_visible("#suggestions-message")


def test_a_busy_service_is_asked_again(page):
    answer_first(page, "/suggest", (503, "Too busy."), (429, "Too busy."))
    page.fill("#text", LOOP)
    page.wait_for_selector("#suggestions-message.warning")
    page.wait_for_selector(".row")


def test_a_service_that_is_busy_at_first(open_page, server):
    page = open_page(
        server.url, prepare=lambda page: answer_first(page, "/v1/models", (503, "Loading the model.")), ready=False
    )
    page.wait_for_selector("#connection.failed:text('Loading the model.')")
    page.wait_for_selector("#example-list button")


def test_typing_before_the_model_is_there(open_page, server):
    held: list[Any] = []

    def hold(route):
        held.append(route)

    page = open_page(server.url, prepare=lambda page: page.route("**/v1/models", hold), ready=False)
    page.fill("#text", LOOP)
    page.wait_for_timeout(300)
    assert not page.is_visible("#suggestions-message")
    held[0].continue_()
    page.wait_for_selector(".row")


def test_a_token(open_page, serve, folder):
    page = open_page(serve(folder, token="sesame").url, ready=False)
    page.fill("#token-dialog[open] #token", "wrong")
    page.press("#token", "Enter")
    page.wait_for_selector("#token-wrong")
    page.press("#token", "Escape")
    page.fill("#token-dialog[open] #token", "sesame")
    page.press("#token", "Enter")
    page.wait_for_selector(".connection.up")
    type_text(page, LOOP)
    page.wait_for_selector(".row")
    assert page.evaluate("Object.values(sessionStorage)") == ["sesame"]
    assert page.evaluate("Object.values(localStorage)") == []
    page.reload()
    page.wait_for_selector(".connection.up")


BACK = "getComputedStyle(document.documentElement).backgroundColor"
LIGHT, DARK = "rgb(246, 247, 248)", "rgb(15, 19, 22)"


def test_dark_as_the_system_says_or_as_chosen(open_page, server):
    page = open_page(server.url, color_scheme="dark")
    assert page.evaluate(BACK) == DARK
    page.click("#theme")
    assert page.evaluate(BACK) == LIGHT
    page.reload()
    assert page.evaluate(BACK) == LIGHT
    assert open_page(server.url, color_scheme="light").evaluate(BACK) == LIGHT


def test_no_scrolling_sideways_on_a_phone(open_page, server):
    page = open_page(server.url, has_touch=True)
    page.set_viewport_size({"width": 360, "height": 740})
    type_text(page, "loremipsumdolorsitamet" * 30 + f" {LOOP}")
    row(page, "module: asyncio").locator(".name").tap()
    page.wait_for_selector("mark")
    for view in VIEWS:
        page.click(f"#tab-{view}")
        assert page.evaluate(SIDEWAYS) <= 0, view
    assert page.locator(".connection").bounding_box()["x"] >= 0


def test_no_motion_if_not_wanted(open_page, server):
    page = open_page(server.url, reduced_motion="reduce")
    type_text(page, LOOP)
    assert page.eval_on_selector(".fill", "fill => getComputedStyle(fill).transitionProperty") in ("none", "all")
    assert page.eval_on_selector(".fill", "fill => getComputedStyle(fill).transitionDuration") == "0s"


def test_with_the_keyboard_alone(page):
    focus = "document.activeElement.id || document.activeElement.className"
    keys = page.keyboard
    for _ in range(20):
        keys.press("Tab")
        if page.evaluate(focus) == "text":
            break
    keys.type(LOOP)
    row(page, "module: asyncio").wait_for()
    page.wait_for_timeout(400)
    keys.press("Control+Enter")
    for _ in range(labels(page).index("module: asyncio")):
        keys.press("ArrowDown")
    page.wait_for_selector("mark")
    assert "coroutines" in marks(page, "for")
    keys.press("Tab")
    keys.press("Enter")
    row(page, "module: asyncio").locator(".accept[aria-pressed=true]").wait_for()
    keys.press("Escape")
    assert page.evaluate(focus) == "text"
    keys.press("Control+Enter")
    for _ in range(40):
        keys.press("Tab")
        if page.evaluate(focus) == "new-label":
            break
    keys.type("smtplib")
    page.wait_for_selector("#label-options [role=option]")
    keys.press("ArrowDown")
    keys.press("Enter")
    page.wait_for_selector("#taught :text('module: smtplib')")
    page.focus("#tab-text")
    keys.press("ArrowRight")
    page.wait_for_selector("#view-file")
    keys.press("ArrowRight")
    page.wait_for_selector("#view-model")


def test_screen_readers_hear_the_labels(page):
    type_text(page, LOOP)
    page.wait_for_function("() => document.getElementById('announcer').textContent.startsWith('5 labels: ')")
    assert "module: asyncio" in page.text_content("#announcer")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make browser-test")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1180, 360])
def test_axe_finds_nothing(open_page, server, scheme, width):
    page = open_page(server.url, color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 820})
    page.evaluate(AXE.read_text(encoding="utf-8"))

    def violations():
        return page.evaluate("""async () => (await axe.run()).violations.flatMap(
            ({ id, nodes }) => nodes.map(node => `${id}: ${node.failureSummary} ${node.html}`))""")

    assert violations() == []
    type_text(page, LOOP)
    row(page, "module: asyncio").locator(".accept").click()
    page.wait_for_selector("mark")
    page.wait_for_selector("#taught li")
    page.locator("#new-label").press_sequentially("asyncio")
    page.wait_for_selector("#label-options [role=option]")
    page.press("#new-label", "ArrowDown")
    assert violations() == []
    page.click("#tab-file")
    page.set_input_files("#file-input", {"name": "a.txt", "mimeType": "text/plain", "buffer": LOOP.encode()})
    page.wait_for_selector("#file-start")
    assert violations() == []
    page.click("#file-start")
    page.wait_for_selector("#file-done")
    assert violations() == []
    page.click("#tab-model")
    assert violations() == []
    server.stop()
    page.click("#tab-text")
    page.fill("#text", MAIL)
    page.wait_for_selector("#suggestions-message.error")
    assert violations() == []
