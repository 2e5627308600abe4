from __future__ import annotations

import sys

import pytest

from circlet.cli import demo
from circlet.data import load_dataset


def test_trains_compares_and_suggests(as_json, works, data, monkeypatch):
    """Small data in place of the documentation, and two epochs."""
    small = load_dataset(data)
    monkeypatch.setattr("circlet.data.load_dataset", lambda name: {"pydocs": small}[name])
    monkeypatch.setattr(demo, "SMALLER", {"hidden": (16,), "dim": 32, "epochs": 2})
    finished = works("demo", "--device", "cpu", COLUMNS="120")
    assert "200 docstrings to learn from, 4 labels" in finished.stderr
    heads = ["fc", "hrr", "chrr", "chrr-amplitude"]
    shown = [*(f"{head} " for head in heads), *demo.SENTENCES, "circlet train mine.jsonl --model mine"]
    assert all(each in finished.stdout for each in shown)
    found = as_json("demo", "--device", "cpu")
    models = found["models"]
    assert [each["head"] for each in models] == heads
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
