"""Pictures of the page for the docs: light, dark, on a phone, and of the model's card.

`python -m tests.serve.page.screenshots --url http://127.0.0.1:8000/` takes them of a running `circlet serve`.
Without `--url`, it trains a model and serves it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.serve.page.chromium import chromium
from tests.serve.page.service import PYDOCS, Service, train

ROOT = Path(__file__).parents[3]
TEXT = (
    "Run coroutines concurrently in an event loop: open a connection to the server, "
    "and send a message when the loop stops."
)
#: Of each picture: width, height, colors, view.
PICTURES = {
    "light": (1180, 850, "light", "text"),
    "dark": (1180, 850, "dark", "text"),
    "phone": (360, 780, "light", "text"),
    "model": (1180, 850, "light", "model"),
}


def accept(page: Any, row: str) -> None:
    """Accept a label, and wait until the model has learned it."""
    button = page.locator(f"{row} >> .verdict.accept[aria-pressed=false]")
    if button.count():
        button.click()
        page.wait_for_selector("#learning.done", timeout=120_000)


def take(browser: Any, url: str, text: str, label: str, out: Path, learn: bool) -> None:
    for name, (width, height, scheme, view) in PICTURES.items():
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            device_scale_factor=1.5 if view == "text" else 1.25,
        )
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector(".connection.up")
        page.fill("#text", text)
        page.wait_for_selector(".row")
        row = f'.row[data-label="{label}"]'
        if not page.locator(row).count():
            row = ".row >> nth=0"
        if learn:
            accept(page, row)
        page.locator(f"{row} >> .name").click()  # stays lit, wherever the pointer goes
        page.wait_for_selector("mark")
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(300)
        if view == "model":
            page.click("#tab-model")
            page.locator("#vocabulary-list button").nth(7).click()
            page.wait_for_selector("#near li")
            page.evaluate("document.activeElement.blur()")
        page.screenshot(path=out / f"serve-{name}.png", full_page=view == "model")
        context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running `circlet serve`")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--label", default="module: asyncio", help="whose words light up, if it is suggested")
    parser.add_argument("--accept", action="store_true", help="accept that label too, so that the model learns it")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images")
    chosen = parser.parse_args()
    path = chromium()
    if path is None:
        print("found no Chromium; install it, or set CIRCLET_CHROMIUM to its path")
        return 1
    from playwright.sync_api import sync_playwright

    chosen.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        if not chosen.url:
            train(Path(home) / PYDOCS)
            service = Service(Path(home) / PYDOCS)
            service.start()
            stack.callback(service.stop)
            chosen.url, chosen.accept = service.url, True
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], env={**os.environ, "HOME": home}
        )
        take(browser, chosen.url, chosen.text, chosen.label, chosen.out, chosen.accept)
        browser.close()
    for picture in sorted(chosen.out.glob("serve-*.png")):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
