"""Labels while a text is typed, and the words that speak for them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.serve.page.conftest import LOOP, MAIL, labels, marks, row, type_text

pytestmark = pytest.mark.slow
SAVED = Path(__file__).parents[2] / "saved"


def test_types_and_sees_what_the_service_suggests(page, ask):
    page.locator("#text").press_sequentially(LOOP)
    page.wait_for_function("count => document.querySelectorAll('.row').length === count", arg=5)
    row(page, "module: asyncio").wait_for()
    page.wait_for_timeout(400)  # for answers that are still on the way
    expected = ask("/suggest", text=LOOP, k=5, threshold=0)["results"][0]["labels"]
    assert labels(page) == [each["label"] for each in expected]
    shown = page.locator(".row .percent").all_inner_texts()
    assert shown == [f"{100 * each['probability']:.1f}\u00a0%" for each in expected]
    shares = page.eval_on_selector_all(".row", "rows => rows.map(row => +row.style.getPropertyValue('--share'))")
    assert shares == [each["probability"] for each in expected]


def test_a_burst_of_keys_is_one_question(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/suggest") else None)
    page.evaluate(
        """text => {
        const area = document.getElementById("text");
        for (let end = 1; end <= text.length; end++) {
            area.value = text.slice(0, end);
            area.dispatchEvent(new Event("input"));
        }
    }""",
        LOOP,
    )
    row(page, "module: asyncio").wait_for()
    assert len(asked) == 1


NEVER_ABORT = "AbortController.prototype.abort = function () {}"


@pytest.mark.parametrize("script", ["", NEVER_ABORT], ids=["aborted", "late"])
def test_stale_answers_never_overwrite_newer_ones(open_page, server, script):
    page = open_page(server.url, prepare=lambda page: page.add_init_script(script))
    held = []

    def hold(route):
        if route.request.post_data_json["text"] == MAIL:
            held.append(route)
        else:
            route.continue_()

    page.route("**/suggest", hold)
    with page.expect_request("**/suggest"):
        page.fill("#text", MAIL)
    type_text(page, LOOP)
    row(page, "module: asyncio").wait_for()
    newest = labels(page)
    stale = {"model": "pydocs", "version": "1", "results": [{"labels": [{"label": "stale", "probability": 1.0}]}]}
    for route in held:
        route.fulfill(json=stale)
    page.wait_for_timeout(300)
    assert len(held) == 1
    assert labels(page) == newest


def test_examples_until_something_is_typed(page):
    example = page.locator("#example-list button").first
    text = example.inner_text()
    example.click()
    page.wait_for_selector(".row")
    assert page.input_value("#text") == text
    assert not page.is_visible("#examples")
    page.click("#clear")
    page.wait_for_selector("#examples:not([hidden])")
    assert labels(page) == []


class TestWords:
    def test_light_up_under_the_pointer(self, page, ask):
        type_text(page, LOOP)
        row(page, "module: asyncio").hover()
        page.wait_for_selector("mark")
        (explained,) = ask("/explain", text=LOOP, labels=["module: asyncio"])["explanations"]
        weakest = max(abs(value) for _, _, value in explained["spans"]) / 10  # weaker ones are not marked
        for side, sign in (("for", 1), ("against", -1)):
            assert marks(page, side) == [
                LOOP[start:end] for start, end, value in explained["spans"] if sign * value >= weakest
            ]
        assert "coroutines" in marks(page, "for")
        assert "Why module: asyncio" in page.inner_text("#why")
        page.hover("h1")
        page.wait_for_selector("mark", state="detached")

    def test_are_asked_for_once(self, page):
        asked = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/explain") else None)
        type_text(page, LOOP)
        for _ in range(3):
            row(page, "module: asyncio").hover()
            page.wait_for_selector("mark")
            page.hover("h1")
            page.wait_for_selector("mark", state="detached")
        assert len(asked) == 1

    def test_after_characters_that_take_two_units(self, page):
        type_text(page, f"😀 𝒳 {LOOP}")
        row(page, "module: asyncio").hover()
        page.wait_for_selector("mark")
        assert "coroutines" in marks(page, "for")
        assert set(marks(page, "for") + marks(page, "against")) <= {"😀", "𝒳", *LOOP.split()}

    def test_lie_where_the_text_is(self, page):
        type_text(page, "\n".join([LOOP] * 12))
        row(page, "module: asyncio").locator(".name").focus()
        page.wait_for_selector("mark")
        page.evaluate("document.getElementById('text').scrollTop = 60")
        page.wait_for_function("() => document.getElementById('backdrop').scrollTop === 60")
        sizes = "id => ['clientWidth', 'scrollHeight'].map(size => document.getElementById(id)[size])"
        assert page.evaluate(sizes, "text") == page.evaluate(sizes, "backdrop")

    def test_stay_for_a_label_that_was_pressed(self, page):
        type_text(page, LOOP)
        row(page, "module: asyncio").locator(".name").click()
        page.hover("h1")
        page.click("#tab-text")
        page.wait_for_selector("mark")
        assert row(page, "module: asyncio").locator(".name").get_attribute("aria-pressed") == "true"


def test_nothing_jumps(page):
    places = (
        "[...document.querySelectorAll('#text, #why, #k, #suggestions, #new-label, #roll-back, #taught-title')]"
    )
    boxes = f"{places}.map(each => Object.values(each.getBoundingClientRect().toJSON()))"
    before = page.evaluate(boxes)
    type_text(page, LOOP)
    assert page.evaluate(boxes) == before
    row(page, "module: asyncio").hover()
    page.wait_for_selector("mark")
    assert page.evaluate(boxes) == before


class TestSliders:
    def move(self, page, slider, value):
        with page.expect_response(lambda response: response.url.endswith("/suggest")) as answered:
            page.fill(f"#{slider}", value)
        page.wait_for_selector("#suggestions-panel[aria-busy=false]")
        return answered.value.request.post_data_json

    def test_how_many(self, page):
        type_text(page, LOOP)
        assert self.move(page, "k", "12")["k"] == 12
        assert len(labels(page)) == 12
        assert page.inner_text("#k-value") == "12"

    def test_threshold(self, page, ask):
        type_text(page, LOOP)
        assert self.move(page, "threshold", "0.9")["threshold"] == 0.9
        assert 0 < len(labels(page)) < 5
        assert labels(page) == [
            each["label"] for each in ask("/suggest", text=LOOP, threshold=0.9)["results"][0]["labels"]
        ]

    def test_threshold_that_nothing_reaches(self, page, ask):
        texts = ["unheard of", "xyzzy", "matrix socket poem", "open a matrix in a thread", "eigenvalue cross"]
        type_text(page, next(text for text in texts if not self.reached(ask, text)))
        self.move(page, "threshold", "0.95")
        assert labels(page) == []
        assert "No label reaches 95.0\u00a0%" in page.inner_text("#suggestions-message")

    @staticmethod
    def reached(ask, text):
        return ask("/suggest", text=text, threshold=0.95)["results"][0]["labels"]

    def test_rare_labels(self, page, ask):
        type_text(page, LOOP)
        assert self.move(page, "rare", "1")["favor_rare"] == 1
        expected = ask("/suggest", text=LOOP, favor_rare=1)["results"][0]["labels"]
        assert labels(page) == [each["label"] for each in expected]


class TestCopying:
    TEXT = "it's an event loop"

    def copied(self, open_page, server, button):
        page = open_page(server.url, permissions=["clipboard-read", "clipboard-write"])
        type_text(page, self.TEXT)
        page.click(button)
        page.wait_for_selector(f"{button}:has-text('Copied')")
        return page.evaluate("navigator.clipboard.readText()")

    def test_json(self, open_page, server, ask):
        assert json.loads(self.copied(open_page, server, "#copy-json")) == ask(
            "/suggest", text=self.TEXT, threshold=0
        )

    def test_curl(self, open_page, server):
        words = shlex.split(self.copied(open_page, server, "#copy-curl"))
        assert words[:2] == ["curl", f"{server.url}v1/models/pydocs/suggest"]
        assert words[2:4] == ["-H", "Content-Type: application/json"]
        assert json.loads(words[5]) == {"text": self.TEXT, "k": 5, "threshold": 0, "favor_rare": 0}


class TestModels:
    @pytest.fixture
    def page(self, open_page, serve, folder):
        return open_page(f"{serve(folder, SAVED / 'text', SAVED / 'matrix').url}?model=text")

    def test_the_address_names_one(self, page):
        assert page.input_value("#model") == "text"
        assert page.text_content("#card-title") == "text"
        type_text(page, LOOP)
        assert not page.is_visible(".verdict")
        assert not page.is_visible("#new-label")
        assert not page.is_visible("#similar-section")

    def test_another_one(self, page):
        type_text(page, LOOP)
        page.select_option("#model", "pydocs")
        page.wait_for_selector("#new-label")
        row(page, "module: asyncio").locator(".verdict.accept").wait_for()
        assert re.search(r"\?model=pydocs", page.url)

    def test_one_for_rows(self, page):
        page.select_option("#model", "matrix")
        page.wait_for_selector("#rows-only")
        assert not page.is_visible("#text")
        assert page.is_disabled("#tab-file")


def test_documents_like_this(page, ask):
    type_text(page, MAIL)
    page.wait_for_selector("#similar li")
    names = page.locator("#similar .part").all_inner_texts()
    assert names == [each["id"] for each in ask("/similar", text=MAIL, k=5)["documents"]]


def test_the_card(open_page, server, ask):
    page, card = open_page(f"{server.url}#model"), ask("")
    page.wait_for_selector(".chart .curve")
    assert f"{100 * card['history'][-1][card['metric']]:.1f}" in page.text_content(".chart .value")
    assert "pydocs" in page.inner_text("#card-facts")
    assert f"{card['bytes'] / 1e6:.1f}\u00a0MB" in page.inner_text("#card-facts")
    assert card["decided"][0]["why"] in page.inner_text("#card-decided")
    found = ask("/labels?query=asyncio")["labels"]
    page.fill("#vocabulary-query", "asyncio")
    page.wait_for_function("n => document.querySelectorAll('#vocabulary-list li').length === n", arg=len(found))
    page.click("#vocabulary-list button >> nth=0")
    page.wait_for_selector("#near li")
    near = ask(f"/near?{urlencode({'label': found[0]['label'], 'k': 7})}")["near"]
    assert page.locator("#near .part").all_inner_texts() == [each["label"] for each in near]
