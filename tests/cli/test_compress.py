from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from circlet.storage.layout import read_config


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
def copied(model, tmp_path, monkeypatch) -> Path:
    """A copy of the model, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.fixture
def kept(circlet, data, small, tmp_path, monkeypatch) -> Path:
    """A model that has kept rows which it was never trained on, in the working folder."""
    monkeypatch.chdir(tmp_path)
    options = [*small, "--epochs", "20", "--no-join", "--validation", "40"]
    assert circlet("train", data, "--model", tmp_path / "model", *options).returncode == 0
    return tmp_path / "model"


def test_a_copy_beside_the_model(circlet, kept):
    finished = circlet("compress", kept)
    assert finished[:2] == (0, "")
    assert "model-small: " in finished.stderr
    assert "nDCG@5" in finished.stderr
    assert read_config(kept.with_name("model-small"))["store"] == "deflated"
    assert circlet("predict", kept.with_name("model-small"), "-", stdin="a fox\n").returncode == 0


def test_what_was_tried(circlet, kept, data):
    by_sample = json.loads(circlet("compress", kept, "--loss", "1", "--json").stdout)
    small = kept.with_name("model-small")
    assert by_sample["bytes"] == size(small) < 0.2 * size(kept)
    assert by_sample["chosen"] in by_sample["tried"]
    assert by_sample["chosen"]["loss"] <= 1
    by_data = json.loads(circlet("compress", kept, "--data", data, "--output", "other", "--json").stdout)
    assert by_data["chosen"]["loss"] <= 0.2


def test_a_size(circlet, refused, kept):
    most = size(kept) // 4
    summary = json.loads(circlet("compress", kept, "--size", f"{most / 1000}KB", "--json").stdout)
    assert summary["bytes"] <= most
    assert "the smallest takes" in refused("compress", kept, "--size", "10", "--output", "other")
    assert not Path("other").exists()


def test_a_model_of_few_documents(circlet, works, copied):
    """It has learned from all of them, and knows what its calibration run lost."""
    assert not (copied / "sample.safetensors").exists()
    finished = works("compress", copied, "--loss", "0.5")
    assert "rounded like this, its calibration run lost " in finished.stderr
    found = json.loads(circlet("compress", copied, "--size", "30KB", "--output", "other", "--json").stdout)
    assert found["bytes"] == size(Path("other")) <= 30_000
    assert found["nDCG@5"] is None
    assert found["chosen"]["loss"] >= 0


def test_without_rows_to_measure_on(circlet, refused, copied, data):
    """The calibration run says nothing about a model that was trained further."""
    assert circlet("train", data, "--model", copied, "--continue", "--epochs", "1").returncode == 0
    assert "found no held-out rows to measure on" in refused("compress", copied)


def test_a_small_model_is_trained_further(circlet, kept, data):
    assert circlet("compress", kept, "--output", "small").returncode == 0
    assert circlet("train", data, "--model", "small", "--continue", "--epochs", "1").returncode == 0
    assert read_config(Path("small"))["store"] == "float32"
    assert not list(Path("small").glob("*.gz"))


def test_a_copy_elsewhere(circlet, copied):
    summary = json.loads(circlet("compress", copied, "--store", "bf16", "--output", "new/small", "--json").stdout)
    assert summary == {
        "model": str(copied),
        "output": str(Path("new/small")),
        "store": "bf16",
        "bytes": size(Path("new/small")),
        "bytes_before": size(copied),
    }
    assert summary["bytes"] < summary["bytes_before"]


def test_from_inside_the_folder(circlet, copied, monkeypatch):
    monkeypatch.chdir(copied)
    assert circlet("compress", ".", "--store", "bf16").returncode == 0
    assert copied.with_name("model-bf16").is_dir()


def test_mistakes(refused, copied, tmp_path):
    assert "`store`: found 'int2'; wanted one of" in refused("compress", copied, "--store", "int2")
    assert "found --loss and --size; wanted one" in refused("compress", copied, "--loss", "1", "--size", "5MB")
    assert "--size: found '5 apples'; wanted a size such as" in refused("compress", copied, "--size", "5 apples")
    assert "--store measures nothing" in refused("compress", copied, "--store", "int8", "--data", "pydocs")
    assert "exists already" in refused("compress", copied, "--output", copied)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
