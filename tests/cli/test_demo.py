from __future__ import annotations

import json
import sys

import pytest

from circlet.cli import demo
from circlet.data import load_dataset


@pytest.fixture
def _quick(monkeypatch, data):
    """Small data in place of the documentation, and two epochs."""
    small = load_dataset(data)
    monkeypatch.setattr("circlet.data.load_dataset", lambda name: {"pydocs": small}[name])
    monkeypatch.setattr(demo, "SMALLER", {"hidden": (16,), "dim": 32, "epochs": 2})


@pytest.mark.usefixtures("_quick")
def test_trains_compares_and_suggests(works):
    finished = works("demo", "--device", "cpu", COLUMNS="120")
    assert "200 docstrings to learn from, 4 labels" in finished.stderr
    for head in ("fc", "hrr", "chrr", "chrr-amplitude"):
        assert f"{head} " in finished.stdout
    for sentence in demo.SENTENCES:
        assert sentence in finished.stdout
    assert "circlet train mine.jsonl --model mine" in finished.stdout


@pytest.mark.usefixtures("_quick")
def test_numbers_for_machines(circlet):
    found = json.loads(circlet("demo", "--device", "cpu", "--json").stdout)
    models = found["models"]
    assert [each["head"] for each in models] == ["fc", "hrr", "chrr", "chrr-amplitude"]
    # The last layer: 16 × 4 + 4, 16 × 32 + 32, 16 × 64 + 64.
    assert [each["outputs"] for each in models] == [68, 544, 1088, 1088]
    assert {"P@1", "P@5", "PSP@3", "parameters", "bytes", "seconds"} <= set(models[0])
    assert [each["text"] for each in found["suggestions"]] == list(demo.SENTENCES)
    assert all(len(each["labels"]) == len(each["scores"]) == 4 for each in found["suggestions"])


@pytest.mark.slow
def test_on_pythons_documentation(process):
    finished = process(sys.executable, "-m", "circlet", "demo", COLUMNS="120")
    assert finished.returncode == 0, finished.stderr
    rows = {
        line.split()[0]: line.split()[1:] for line in finished.stdout.splitlines() if "/" in line and line.strip()
    }
    for head in demo.HEADS:
        precision = [float(value) for value in rows[head][0].split("/")]
        assert precision[0] > 85
    for module in ("scipy.sparse.linalg", "scipy.integrate", "sklearn.model_selection", "http", "xml.etree"):
        assert f"module: {module} " in finished.stdout
