"""Processes that use one folder at the same time never see, copy or leave a mixture of two models."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from circlet.cli import main
from circlet.folder.compress import compress
from circlet.model import Model

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there"),
]
ROUNDS = pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.slow)])


@pytest.fixture
def pair(untrained) -> tuple[Model, Model]:
    """Two models of the same size that differ in everything else."""
    one, two = untrained(texts=True), untrained(texts=True, seed=1)
    two.label_names = [name[::-1] + "!" * (5 - len(name)) for name in one.label_names]
    two.calibration = (2.0, 0.5)
    return one, two


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


def quietly(errors: Path, run: Callable[[], Any]) -> Callable[[], Any]:
    def quiet() -> None:
        sys.stderr = sys.stdout = errors.open("w", encoding="utf-8")
        try:
            run()
        finally:
            sys.stderr.flush()

    return quiet


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_train_beside_train(rounds, forked, waited, only_the_model, tmp_path, monkeypatch):
    rows = [{"text": f"{name} {i}", "labels": [name]} for i in range(10) for name in ("red", "green")]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--dim", "8", "--hidden", "8", "--epochs", "2", "--device", "cpu", "--first-layer", "same"]
    for number in range(rounds):
        folder = tmp_path / f"round {number}"
        monkeypatch.setattr(sys, "argv", ["circlet", "train", str(data), "--model", str(folder), *options])
        logs = [tmp_path / f"{number}.{name}" for name in ("one", "two")]
        statuses = [waited(child) for child in [forked(quietly(log, main)) for log in logs]]
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
