from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime
import pytest


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_was_written(circlet, model, here):
    finished = circlet("export", model, "tagger.onnx", "-k", "3")
    assert finished[:2] == (0, "")
    lines = finished.stderr.splitlines()
    assert lines[0].startswith("tagger.onnx: 0.0")
    assert lines[0].endswith(" MB, opset 13, inputs columns and values")
    assert [line.split(":")[0] for line in lines[1:]] == ["tagger.labels.txt", "tagger.vocabulary.json"]
    outputs = {each.name: each.shape for each in onnxruntime.InferenceSession("tagger.onnx").get_outputs()}
    assert outputs == {"labels": ["batch", 3], "probabilities": ["batch", 3], "scores": ["batch", 4]}
    assert Path("tagger.labels.txt").read_text() == "animal\nfood\nvehicle\nweather\n"


def test_json(circlet, model):
    summary = json.loads(circlet("export", model, "new/tagger.onnx", "--json").stdout)
    assert summary == {
        "model": str(model),
        "opset": 13,
        "inputs": ["columns", "values"],
        "outputs": ["labels", "probabilities", "scores"],
        "bytes": {str(path): path.stat().st_size for path in Path("new").iterdir()},
    }


def test_mistakes(circlet, refused, model, here):
    assert "wanted a name that ends in .onnx" in refused("export", model, "tagger")
    assert list(here.iterdir()) == []
    assert circlet("export", model, "tagger.onnx").returncode == 0
    assert "tagger.onnx exists already" in refused("export", model, "tagger.onnx")
    assert circlet("export", model, "tagger.onnx", "--overwrite").returncode == 0


def test_without_onnx(refused, model, monkeypatch):
    for name in ("circlet.export.write", "circlet.export.graph"):  # so that they are imported again
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    line = refused("export", model, "tagger.onnx")
    assert line == "circlet: exporting a model needs onnx, which is not installed: pip install 'circlet[onnx]'"


def test_a_large_table(circlet, refused, data, small, monkeypatch):
    words = ["--codebook", "independent", *small, "--epochs", "1"]
    assert circlet("train", data, "--model", "table", *words).returncode == 0
    monkeypatch.setattr("circlet.export.write.LARGEST_TABLE", 1000)
    assert "--large-table" in refused("export", "table", "tagger.onnx")
    assert circlet("export", "table", "tagger.onnx", "--large-table").returncode == 0
