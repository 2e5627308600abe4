"""Small texts about four topics, and a model of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WORDS = {
    "animal": "fox wolf bear deer hare lynx otter badger",
    "vehicle": "car truck tram bicycle lorry van scooter train",
    "food": "bread cheese apple soup rice pasta salad lentils",
    "weather": "rain snow wind storm fog hail sunshine thunder",
}
SIZES = "--dim 64 --hidden 32 --dropout 0.2 --epochs 25 --batch-size 16 --first-layer same --lr 0.01 --device cpu"
URI = "http://example.org/"


def _topics(n: int) -> list[dict[str, Any]]:
    topics = sorted(WORDS)
    made = []
    for i in range(n):
        chosen = sorted({topics[i % 4], topics[(i // 4) % 4]})
        words = [WORDS[topic].split()[(i + j) % 8] for topic in chosen for j in range(3)]
        made.append({"text": f"the {' and the '.join(words)}", "labels": chosen})
    return made


@pytest.fixture(scope="session")
def as_json(works) -> Callable[..., Any]:
    """Run a command that must succeed, and give what it prints with --json."""
    return lambda *words, **given: json.loads(works(*words, "--json", **given).stdout)


@pytest.fixture(scope="session")
def predict(works) -> Callable[..., list[dict[str, Any]]]:
    """Give a model's answers to lines of standard input."""

    def run(model: Path, lines: str, *options: object) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in works("predict", model, "-", *options, stdin=lines).stdout.splitlines()
        ]

    return run


@pytest.fixture(scope="session")
def topics() -> Callable[[int], list[dict[str, Any]]]:
    """Make texts about one or two topics, with each word of a topic in turn."""
    return _topics


@pytest.fixture(scope="session")
def small() -> list[str]:
    """Options for a network that is trained in a moment."""
    return SIZES.split()


@pytest.fixture(scope="session")
def write_jsonl() -> Callable[[Path, list[dict[str, Any]]], Path]:
    def write(path: Path, rows: list[dict[str, Any]]) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def data(tmp_path_factory, write_jsonl) -> Path:
    """200 documents to learn from and 40 to test on."""
    folder, made = tmp_path_factory.mktemp("data"), _topics(240)
    write_jsonl(folder / "train.jsonl", made[:200])
    write_jsonl(folder / "test.jsonl", made[200:])
    return folder


@pytest.fixture(scope="session")
def model(works, data, small, tmp_path_factory) -> Path:
    """A model of these topics; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("models") / "topics"
    finished = works("train", data, "--model", folder, *small)
    assert "epoch  25/25" in finished.stderr
    return folder


@pytest.fixture
def copied(model, tmp_path) -> Path:
    """A copy of the model, for a test that changes it."""
    return Path(shutil.copytree(model, tmp_path / "model"))


@pytest.fixture(scope="session")
def of_uris(write_jsonl, tmp_path_factory) -> tuple[Path, Path]:
    """Texts whose labels are URIs, and a vocabulary with names for all of them but weather."""
    folder = tmp_path_factory.mktemp("uris")
    lines = (f"<{URI}{label}>\tthe {label}\n" for label in ("animal", "food", "vehicle"))
    (folder / "names.tsv").write_text("".join(lines), encoding="utf-8")
    rows = [{**row, "labels": [URI + label for label in row["labels"]]} for row in _topics(80)]
    return write_jsonl(folder / "train.jsonl", rows), folder / "names.tsv"


@pytest.fixture(scope="session")
def uneven(model, tmp_path_factory) -> Path:
    """The same model, as if one of its labels had been rare in 200 documents: weather."""
    from circlet.model import Model

    folder, changed = tmp_path_factory.mktemp("models") / "uneven", Model.load(model)
    assert changed.label_names == ["animal", "food", "vehicle", "weather"]
    assert changed.documents_seen == 200
    changed.label_counts = np.array([150, 150, 150, 1])
    changed.save(folder)
    return folder
