"""docs/annif.md: its table is the committed run's, its links lead somewhere, its parameters exist."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from circlet.annif.parameters import DEFAULTS
from circlet.settings import RunSettings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/annif.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not a source checkout")


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("annif_backends", ROOT / "benchmarks/annif_backends.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text():
    return PAGE.read_text(encoding="utf-8")


def test_tables_are_those_of_the_committed_run(benchmark, text):
    result = json.loads((ROOT / "benchmarks/results/annif.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in result["projects"]] == list(benchmark.PROJECTS)
    assert benchmark.table(result) in text
    assert benchmark.filled(text, result) == text
    assert (ROOT / "benchmarks/results/annif.md").read_text(encoding="utf-8") == benchmark.page(result)


def test_links_lead_somewhere(text):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("http") or (PAGE.parent / target).exists(), target


def test_parameters_of_the_page_exist(text):
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    named = {name: default.strip("` ") for names, default in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert set(DEFAULTS) <= set(named)
    assert set(named) <= {*DEFAULTS, *RunSettings.names()}
    for name, default in named.items():
        found = DEFAULTS.get(name, "auto")
        assert default == (f"{found:g}" if isinstance(found, float) else str(found)), name
