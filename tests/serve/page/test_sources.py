"""The page's files: a strict policy can hold, and nothing comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from circlet.serve import app

PAGE = Path(app.__file__).with_name("page")

FILES = sorted(PAGE.iterdir())
HTML = (PAGE / "index.html").read_text(encoding="utf-8")


def test_every_file_is_used_and_every_used_file_is_there():
    used = {"index.html", *re.findall(r'(?:src|href)="page/([^"]+)"', HTML)}
    for path in FILES:
        if path.suffix == ".js":
            used |= set(re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")))
    assert used == {path.name for path in FILES}


def test_nothing_inline():
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", HTML)
    assert all('src="' in tag for tag in re.findall(r"<script[^>]*>", HTML))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_from_elsewhere(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|\burl\(|\beval\(|innerHTML|insertAdjacentHTML", text)


def test_ids_are_there_once_and_all_that_scripts_look_for():
    ids = re.findall(r'\sid="([^"]+)"', HTML)
    assert len(ids) == len(set(ids))
    wanted = {
        name
        for path in FILES
        if path.suffix == ".js"
        for name in re.findall(r'(?:byId|getElementById)\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert wanted <= set(ids)
    pointed_at = re.findall(r'\s(?:for|aria-controls|aria-labelledby|aria-describedby|list)="([^"]+)"', HTML)
    assert set(pointed_at) <= set(ids)


def test_small():
    assert sum(path.stat().st_size for path in FILES) < 150_000
