"""What tests look at on the page."""

from __future__ import annotations

from typing import Any

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
