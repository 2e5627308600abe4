"""✓, ✗ and labels that are missing: what the page sends, shows and takes back."""

from __future__ import annotations

import pytest
from tests.serve.page.conftest import LOOP, labels, row, type_text

from circlet.errors import OutputError
from circlet.serve.feedback import Learner

pytestmark = pytest.mark.slow
LEARNED = "#learning.done"
NEW = "team: concurrency"


@pytest.fixture
def page(page):
    """With a text and its labels."""
    type_text(page, LOOP)
    return page


@pytest.fixture
def entries(ask):
    return lambda: ask("/feedback?limit=20")["entries"]


def press(page, label, verdict):
    row(page, label).locator(f".verdict.{verdict}").click()
    row(page, label).locator(f".verdict.{verdict}[aria-pressed=true]").wait_for()


@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_a_verdict(page, entries, verdict):
    press(page, "module: asyncio", verdict)
    (entry,) = entries()
    assert entry["text"] == LOOP
    assert entry[verdict] == ["module: asyncio"]
    assert not entry["undone"]
    assert "module: asyncio" in page.inner_text("#taught")
    page.wait_for_selector(LEARNED)
    assert "after 1 lesson" in page.inner_text("#learning")


def test_belongs_to_its_text(page):
    press(page, "package: python", "accept")
    type_text(page, f"{LOOP} again")
    assert row(page, "package: python").locator("[aria-pressed=true]").count() == 0
    type_text(page, LOOP)
    row(page, "package: python").locator(".accept[aria-pressed=true]").wait_for()


def test_pressed_again_is_undone(page, entries):
    press(page, "module: asyncio", "accept")
    row(page, "module: asyncio").locator(".verdict.accept").click()
    row(page, "module: asyncio").locator(".verdict.accept[aria-pressed=false]").wait_for()
    page.wait_for_selector("#taught-empty")
    assert [entry["undone"] for entry in entries()] in ([True], [])


def test_two_quick_presses_are_one_and_its_undo(page, entries):
    press = row(page, "module: asyncio").locator(".verdict.accept")
    press.evaluate("button => { button.click(); button.click(); }")
    page.wait_for_function("() => document.getElementById('announcer').textContent === 'Undone: module: asyncio.'")
    assert [entry for entry in entries() if not entry["undone"]] == []


def test_the_other_one_replaces_it(page, entries):
    press(page, "module: asyncio", "accept")
    press(page, "module: asyncio", "reject")
    assert [entry["reject"] for entry in entries() if not entry["undone"]] == [["module: asyncio"]]


def test_a_new_label_is_learned_and_suggested_for_another_text(page):
    assert NEW not in labels(page)
    vocabulary = page.inner_text("#vocabulary")
    page.fill("#new-label", NEW)
    page.wait_for_selector("#label-options :text('new label')")
    page.press("#new-label", "Enter")
    page.wait_for_selector("#learning.busy")
    page.wait_for_selector(LEARNED)
    row(page, NEW).wait_for()
    row(page, NEW).locator(".accept[aria-pressed=true]").wait_for()
    page.wait_for_function(
        "before => document.getElementById('vocabulary').textContent !== before", arg=vocabulary
    )
    type_text(page, "coroutines in an event loop")
    row(page, NEW).wait_for()


def test_undo_in_the_list(page):
    page.fill("#new-label", NEW)
    page.click("#add-label")
    page.wait_for_selector(LEARNED)
    row(page, NEW).wait_for()
    page.click("#taught button")
    row(page, NEW).wait_for(state="detached")
    page.wait_for_selector("#taught-empty")
    page.wait_for_selector(f"{LEARNED}:has-text('as it was trained')")


def test_roll_back(page):
    assert page.is_disabled("#roll-back")
    page.fill("#new-label", NEW)
    page.press("#new-label", "Enter")
    row(page, NEW).wait_for()
    page.click("#roll-back:enabled")
    row(page, NEW).wait_for(state="detached")
    page.wait_for_selector("#learning.idle:has-text('as it was trained')")
    assert page.is_disabled("#roll-back")


def test_completes_labels_of_the_vocabulary(page, entries):
    page.locator("#new-label").press_sequentially("asyncio")
    page.wait_for_selector("#label-options [role=option]")
    assert page.get_attribute("#new-label", "aria-expanded") == "true"
    page.press("#new-label", "ArrowDown")
    active = page.get_attribute("#new-label", "aria-activedescendant")
    chosen = page.get_attribute(f"#{active}", "data-label")
    assert chosen == "module: asyncio"
    page.press("#new-label", "Enter")
    page.wait_for_selector("#taught li")
    assert entries()[0]["accept"] == [chosen]
    assert page.input_value("#new-label") == ""
    assert not page.is_visible("#label-options")


def test_completion_can_be_closed_and_clicked(page):
    page.locator("#new-label").press_sequentially("asyncio")
    page.wait_for_selector("#label-options [role=option]")
    page.press("#new-label", "Escape")
    assert not page.is_visible("#label-options")
    page.fill("#new-label", "smtp")
    page.click("#label-options [role=option] >> nth=0")
    page.wait_for_selector("#taught :text('module: smtplib')")


def test_a_label_is_text_whatever_it_looks_like(page):
    odd = '<img src=x onerror=alert(1)> & "quotes"'
    page.fill("#new-label", odd)
    page.press("#new-label", "Enter")
    page.wait_for_selector("#taught li")
    assert odd in page.inner_text("#taught")
    page.wait_for_selector(LEARNED)
    page.wait_for_function(
        "odd => [...document.querySelectorAll('.name')].some(b => b.textContent === odd)", arg=odd
    )
    assert page.locator("img[src=x]").count() == 0


def test_the_focus_stays_when_the_labels_change(page):
    row(page, "module: asyncio").locator(".verdict.accept").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(LEARNED)
    page.wait_for_selector("#suggestions-panel[aria-busy=false]")
    assert page.evaluate("document.activeElement.ariaLabel") == "Right: module: asyncio"


def test_says_why_learning_failed(page, monkeypatch):
    def fail(*_):
        raise OutputError("found no torch; pip install 'circlet[train]'")

    monkeypatch.setattr(Learner, "_train", fail)
    row(page, "module: asyncio").locator(".verdict.accept").click()
    page.wait_for_selector("#learning.failed")
    assert "found no torch" in page.inner_text("#learning")
