"""SECURITY.md states the limits that the code has, and the numbers of the committed run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.fuzz.cases import CASES, MEMORY, SECONDS, table

from circlet import errors, files
from circlet.files import MAX_LINE
from circlet.serve.guard import Limits
from circlet.storage import layout

ROOT = Path(__file__).parents[1]
PAGE, RESULT = ROOT / "SECURITY.md", ROOT / "benchmarks" / "results" / "fuzz.json"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not a source checkout")


@pytest.fixture
def page():
    return re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))


def test_limits(page, monkeypatch):
    monkeypatch.delenv(files.VARIABLE, raising=False)
    assert files.most_unpacked(1, free=0) == 100
    for words in (
        f"besides {files.FREE >> 20} MiB ({files.FREE_LINES >> 20} MiB where lines are read)",
        f"`{files.VARIABLE}`",
        f"a line of a data file | {MAX_LINE >> 20} MiB",
        f"{files.DEEPEST} levels, integers of {files.LONGEST} digits",
        f"labels of a model | {layout.MOST_LABELS:,}",
        f"at most {errors.LONGEST} characters",
        f"Files over {layout.LARGE >> 20} MiB are compared at {layout.SPOTS} places",
        f"in {CASES:,} ways",
        f"within {SECONDS:.0f} seconds and {MEMORY // 10**6} MB",
    ):
        assert words in page, words


def test_limits_of_the_service():
    limits = Limits()
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    for words in (
        f"| bytes of a request | {limits.body:,} |",
        f"| documents of a request | {limits.documents:,} |",
        f"| characters of a text | {limits.characters:,} |",
        f"| labels per document (`k`) | {limits.k} |",
        f"| documents in the queue | {limits.queue:,} |",
        f"on average | {limits.rate:,.0f} |",
        f"| open connections | {limits.connections:,} |",
        f"| seconds to send a request or to receive its answer | {limits.patience:.0f} |",
        f"| bytes of all requests at a time | {limits.held:,} |",
    ):
        assert words in page, words


def test_the_committed_run_has_no_failures_and_is_the_page_s():
    summary = json.loads(RESULT.read_text(encoding="utf-8"))
    assert summary["cases"] == CASES
    assert summary["failures"] == []
    assert table(summary).markdown().strip() in PAGE.read_text(encoding="utf-8")
