"""Processes that end at any file operation, or use one folder at once, leave one whole model and nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circlet.cli import app, main
from circlet.errors import CircletError
from circlet.model import Model
from circlet.model.model import write
from circlet.runtime.compression import compress
from circlet.storage.layout import CHECKPOINT, RUN
from circlet.storage.publish import folder_lock, settle

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")


@pytest.fixture
def pair(untrained) -> tuple[Model, Model]:
    """Two models of the same size that differ in everything else."""
    one, two = untrained(texts=True), untrained(texts=True, seed=1)
    two.label_names = [name[::-1] + "!" * (5 - len(name)) for name in one.label_names]
    two.calibration = (2.0, 0.5)
    return one, two


@pytest.fixture
def contents(pair) -> tuple[Any, Any]:
    """What their folders hold, one of them saved by an estimator."""
    one, two = (model.contents() for model in pair)
    state = {"format": 1, "circlet": "", "parameters": {}, "encoder": None, "target": "named", "classes": None}
    return replace(one, estimator={**state, "feature_names": None}), two


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_save(every, contents, crashes, emptied, state, only_the_model, tmp_path):
    folder, (first, second) = tmp_path / "model", contents
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
def test_compress(every, contents, crashes, emptied, state, only_the_model, tmp_path):
    write(tmp_path / "model", contents[0], "float32")
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
            with folder_lock(folder):
                settle(folder)
        assert described(folder) == expected
        assert only_the_model(folder)


# Beside others

ROUNDS = pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.slow)])


@pytest.fixture
def states(pair, state, tmp_path) -> list[tuple[Any, ...]]:
    for number, model in enumerate(pair):
        model.save(tmp_path / f"{number}")
    return [state(tmp_path / f"{number}") for number in (0, 1)]


@pytest.fixture
def replaced(forked, waited, pair, tmp_path) -> Iterator[Path]:
    """A folder in which another process saves one model and the other, again and again."""
    folder, stop = tmp_path / "model", tmp_path / "stop"
    pair[0].save(folder)

    def replace() -> None:
        while not stop.exists():
            for model in pair:
                model.save(folder)

    child = forked(replace)
    yield folder
    stop.touch()
    assert waited(child) == 0


@pytest.mark.parametrize("rounds", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_load_beside_save(rounds, replaced, state, states):
    found = [state(replaced) for _ in range(rounds)]
    assert all(each in states for each in found)
    assert rounds < 1000 or len(set(map(str, found))) == 2


@ROUNDS
def test_compress_beside_save(rounds, replaced, state, states, tmp_path):
    for number in range(len(states)):
        compress(tmp_path / f"{number}", tmp_path / f"copy {number}", "int8")
    copies = [state(tmp_path / f"copy {number}") for number in (0, 1)]
    for number in range(rounds):
        compress(replaced, tmp_path / f"round {number}", "int8")
        assert state(tmp_path / f"round {number}") in copies


@ROUNDS
def test_save_beside_save(rounds, pair, forked, waited, state, states, only_the_model, tmp_path):
    for number in range(rounds):
        folder = tmp_path / f"round {number}"
        children = [forked(lambda model=model, folder=folder: model.save(folder)) for model in pair]
        assert [waited(child) for child in children] == [0, 0]
        assert state(folder) in states
        assert only_the_model(folder)


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_train_beside_train(rounds, forked, waited, only_the_model, texts, tmp_path):
    def run(folder: Path, log: Path) -> None:
        sys.argv = ["circlet", "train", str(texts / "some.jsonl"), "--model", str(folder), *SMALL]
        sys.stderr = sys.stdout = log.open("w", encoding="utf-8")
        try:
            main()
        finally:
            sys.stderr.flush()

    for number in range(rounds):
        folder = tmp_path / f"round {number}"
        logs = [tmp_path / f"{number}.{name}" for name in ("one", "two")]
        children = [forked(lambda log=log, folder=folder: run(folder, log)) for log in logs]
        statuses = [waited(child) for child in children]
        assert sorted(statuses) == [0, 2]
        refused = logs[statuses.index(2)].read_text(encoding="utf-8")
        # The other one is at work or, if this one started late, it has finished.
        assert "is writing into it; wait for it to end" in refused or "holds a finished model" in refused
        assert refused.count("\n") == 1
        assert only_the_model(folder)
        assert Model.load(folder).label_names == ["green", "red"]


@ROUNDS
@pytest.mark.usefixtures("states")
def test_predict_beside_save(rounds, replaced, circlet, tmp_path):
    words = ("-", "-k", "6")
    expected = [circlet("predict", tmp_path / name, *words, stdin="red fox\n").stdout for name in ("0", "1")]
    assert len(set(expected)) == 2
    for _ in range(rounds):
        assert circlet("predict", replaced, *words, stdin="red fox\n").stdout in expected
