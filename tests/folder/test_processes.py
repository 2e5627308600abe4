"""A process that ends at any file operation leaves the former model or the new one, and nothing for good."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circlet.cli import app
from circlet.errors import CircletError
from circlet.folder.compress import compress
from circlet.folder.layout import CHECKPOINT, RUN
from circlet.folder.lock import writing
from circlet.folder.publish import settle
from circlet.model import Model
from circlet.model.model import write

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there"),
]


@pytest.fixture
def pair(untrained) -> tuple[Any, Any]:
    """What the folders of two models of texts hold, one of them saved by an estimator."""
    one, two = untrained(texts=True), untrained(texts=True, seed=1)
    two.label_names = [f"{name} too" for name in two.label_names]
    two.calibration = (2.0, 0.5)
    state = {"format": 1, "circlet": "", "parameters": {}, "encoder": None, "target": "named", "classes": None}
    return replace(one.contents(), estimator={**state, "feature_names": None}), two.contents()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_save(every, pair, crashes, emptied, state, only_the_model, tmp_path):
    folder, (first, second) = tmp_path / "model", pair
    for content, name in ((first, "first"), (second, "second")):
        write(tmp_path / name, content, "float32")
    before, after = (state(tmp_path / name) for name in ("first", "second"))

    def prepare() -> None:
        emptied(folder)
        write(folder, first, "float32")

    found = []
    for _ in crashes(folder, prepare, lambda: write(folder, second, "float32"), every):
        found.append(state(folder))
        assert found[-1] in (before, after)
        write(folder, second, "float32")
        assert state(folder) == after
        assert only_the_model(folder)
    assert [each == after for each in found] == sorted(each == after for each in found)
    assert len(set(map(str, found))) == 2


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_compress(every, pair, crashes, emptied, state, only_the_model, tmp_path):
    write(tmp_path / "model", pair[0], "float32")
    compress(tmp_path / "model", tmp_path / "whole", "int8")
    before, after, copy = state(tmp_path / "model"), state(tmp_path / "whole"), tmp_path / "copies" / "copy"

    def again() -> None:
        compress(tmp_path / "model", copy, "int8")

    for _ in crashes(copy.parent, lambda: emptied(copy.parent), again, every):
        assert state(tmp_path / "model") == before
        if not copy.exists():
            again()
        assert state(copy) == after
        assert only_the_model(copy)
        assert list(copy.parent.iterdir()) == [copy]


TEXTS = [{"text": f"{name} {i % 5}", "labels": [name]} for i in range(12) for name in ("red", "green")]
MORE = [*TEXTS, *({"text": f"blue {i}", "labels": ["blue"]} for i in range(4))]
SMALL = [
    *("--dim", "8", "--hidden", "8", "--epochs", "2", "--batch-size", "8", "--first-layer", "same"),
    *("--device", "cpu", "--lr", "0.01"),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name, rows in (("some", TEXTS), ("more", MORE)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def train(*words: object) -> None:
    sys.stderr = sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 — the process ends soon
    app(["train", *map(str, words)], standalone_mode=False)


def described(folder: Path) -> tuple[Any, ...]:
    model = Model.load(folder)
    weights = {name: tensor.tolist() for name, tensor in model.ranker.weights().items()}
    return weights, model.label_names, model.training, [record["loss"] for record in model.history]


@pytest.mark.parametrize("every", [pytest.param(29, id="some"), pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("further", [False, True], ids=["new", "continued"])
def test_train(every, further, crashes, emptied, forked, waited, only_the_model, texts, tmp_path):
    folder, whole = tmp_path / "model", tmp_path / "whole"
    options = ["--continue", "--epochs", "1", "--device", "cpu"] if further else SMALL
    data = texts / ("more" if further else "some")
    start = [data.with_suffix(".jsonl"), *options, "--model"]

    def prepare(place: Path = folder) -> None:
        emptied(folder)
        if further:
            assert waited(forked(lambda: train(texts / "some.jsonl", *SMALL, "--model", place))) == 0

    prepare(whole)
    assert waited(forked(lambda: train(*start, whole))) == 0
    expected, kept = described(whole), None
    if further:
        prepare()
        kept = described(folder)
    for _ in crashes(folder, prepare, lambda: train(*start, folder), every):
        try:
            found = described(folder)
        except CircletError:
            found = None
        assert found in (kept, expected)
        if (folder / RUN).exists():
            assert waited(forked(lambda: train(data.with_suffix(".jsonl"), "--model", folder, "--resume"))) == 0
        elif found == kept:
            assert not (folder / CHECKPOINT).exists()
            assert waited(forked(lambda: train(*start, folder))) == 0
        else:  # it was done, and whoever trains next starts like this
            with writing(folder):
                settle(folder)
        assert described(folder) == expected
        assert only_the_model(folder)
