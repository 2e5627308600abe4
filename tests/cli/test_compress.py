"""Smaller copies of a model, and its export: `circlet compress` and `circlet export`."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import onnxruntime
import pytest

from circlet.storage.layout import read_config


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def with_sample(works, data, small, tmp_path_factory) -> Path:
    """A model that has kept rows which it was never trained on."""
    folder = tmp_path_factory.mktemp("models") / "with_sample"
    works("train", data, "--model", folder, *small, "--epochs", "20", "--no-join", "--validation", "40")
    return folder


@pytest.fixture
def kept(with_sample, here) -> Path:
    """A copy of it, in the working folder."""
    return Path(shutil.copytree(with_sample, here / "model"))


def test_a_copy_beside_the_model(works, kept, predict):
    finished = works("compress", kept)
    assert finished.stdout == ""
    assert "model-small: " in finished.stderr
    assert "nDCG@5" in finished.stderr
    assert read_config(kept.with_name("model-small"))["store"] == "deflated"
    assert predict(kept.with_name("model-small"), "a fox\n")


def test_what_was_tried(as_json, kept, data):
    by_sample = as_json("compress", kept, "--loss", "1")
    assert by_sample["bytes"] == size(kept.with_name("model-small")) < 0.2 * size(kept)
    assert by_sample["chosen"] in by_sample["tried"]
    assert by_sample["chosen"]["loss"] <= 1
    assert as_json("compress", kept, "--data", data, "--output", "other")["chosen"]["loss"] <= 0.2


def test_a_size(as_json, refused, kept):
    most = size(kept) // 4
    assert as_json("compress", kept, "--size", f"{most / 1000}KB")["bytes"] <= most
    assert "the smallest takes" in refused("compress", kept, "--size", "10", "--output", "other")
    assert not Path("other").exists()


def test_a_model_of_few_documents(as_json, works, copied):
    """It has learned from all of them, and knows what its calibration run lost."""
    assert not (copied / "sample.safetensors").exists()
    finished = works("compress", copied, "--loss", "0.5")
    assert "rounded like this, its calibration run lost " in finished.stderr
    found = as_json("compress", copied, "--size", "30KB", "--output", "other")
    assert found["bytes"] == size(Path("other")) <= 30_000
    assert found["nDCG@5"] is None
    assert found["chosen"]["loss"] >= 0


def test_without_rows_to_measure_on(works, refused, copied, data):
    """The calibration run says nothing about a model that was trained further."""
    works("train", data, "--model", copied, "--continue", "--epochs", "1")
    assert "found no held-out rows to measure on" in refused("compress", copied)


def test_a_small_model_is_trained_further(works, kept, data):
    works("compress", kept, "--output", "small")
    works("train", data, "--model", "small", "--continue", "--epochs", "1")
    assert read_config(Path("small"))["store"] == "float32"
    assert not list(Path("small").glob("*.gz"))


def test_a_copy_elsewhere(as_json, works, copied, monkeypatch):
    summary = as_json("compress", copied, "--store", "bf16", "--output", "new/small")
    assert summary == {
        "model": str(copied),
        "output": str(Path("new/small")),
        "store": "bf16",
        "bytes": size(Path("new/small")),
        "bytes_before": size(copied),
    }
    assert summary["bytes"] < summary["bytes_before"]
    monkeypatch.chdir(copied)
    works("compress", ".", "--store", "bf16")
    assert copied.with_name("model-bf16").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--store int2", "`store`: found 'int2'; wanted one of"),
        ("--loss 1 --size 5MB", "found --loss and --size; wanted one"),
        ("--size 5apples", "--size: found '5apples'; wanted a size such as"),
        ("--store int8 --data pydocs", "--store measures nothing"),
        ("--output model", "exists already"),
    ],
)
def test_copies_that_are_refused(refused, copied, here, words, message):
    assert message in refused("compress", copied, *words.split())
    assert list(here.iterdir()) == [copied]


class TestExport:
    def test_what_was_written(self, works, model):
        finished = works("export", model, "tagger.onnx", "-k", "3")
        assert finished.stdout == ""
        first, *others = finished.stderr.splitlines()
        assert re.fullmatch(r"tagger\.onnx: 0\.0.* MB, opset 13, inputs columns and values", first)
        assert [line.split(":")[0] for line in others] == ["tagger.labels.txt", "tagger.vocabulary.json"]
        outputs = {each.name: each.shape for each in onnxruntime.InferenceSession("tagger.onnx").get_outputs()}
        assert outputs == {"labels": ["batch", 3], "probabilities": ["batch", 3], "scores": ["batch", 4]}
        assert Path("tagger.labels.txt").read_text() == "animal\nfood\nvehicle\nweather\n"

    def test_json(self, as_json, model):
        assert as_json("export", model, "new/tagger.onnx") == {
            "model": str(model),
            "opset": 13,
            "inputs": ["columns", "values"],
            "outputs": ["labels", "probabilities", "scores"],
            "bytes": {str(path): path.stat().st_size for path in Path("new").iterdir()},
        }

    def test_names_that_are_refused(self, works, refused, model, here):
        assert "wanted a name that ends in .onnx" in refused("export", model, "tagger")
        assert list(here.iterdir()) == []
        works("export", model, "tagger.onnx")
        assert "tagger.onnx exists already" in refused("export", model, "tagger.onnx")
        works("export", model, "tagger.onnx", "--overwrite")

    def test_without_onnx(self, refused, model, monkeypatch):
        for name in ("circlet.export.write", "circlet.export.graph"):  # so that they are imported again
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, "onnx", None)
        line = refused("export", model, "tagger.onnx")
        assert line == (
            "circlet: exporting a model needs onnx, which is not installed: pip install 'circlet[onnx]'"
        )

    def test_a_large_table(self, works, refused, data, small, monkeypatch):
        works("train", data, "--model", "table", "--codebook", "independent", *small, "--epochs", "1")
        monkeypatch.setattr("circlet.export.write.LARGEST_TABLE", 1000)
        assert "--large-table" in refused("export", "table", "tagger.onnx")
        works("export", "table", "tagger.onnx", "--large-table")
