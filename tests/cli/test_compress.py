from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from circlet.folder.config import read_config

pytestmark = pytest.mark.usefixtures("one_thread")


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
def copied(model, tmp_path, monkeypatch) -> Path:
    """A copy of the model, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(model, tmp_path / "model"))


def test_a_copy_beside_the_model(circlet, copied):
    finished = circlet("compress", copied)
    assert finished[:2] == (0, "")
    assert "model-int8: " in finished.stderr
    assert read_config(copied.with_name("model-int8"))["store"] == "int8"


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
    assert "is not a circlet model" in refused("compress", tmp_path)
    assert "`store` must be one of" in refused("compress", copied, "--store", "int4")
    assert "exists already" in refused("compress", copied, "--output", copied)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
