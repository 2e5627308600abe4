"""A forest measured as a cell."""

from __future__ import annotations

import pytest
import scipy.sparse as sp

from circlet.data import Dataset
from circlet.errors import DataError
from circlet.training import Reporter
from circlet_paper.baselines.tree_cells import MODELS, TreeCell
from circlet_paper.baselines.trees import TreeSettings
from circlet_paper.cells import Workplace, read, run_cells
from circlet_paper.paired import unpack_hits

FEW = TreeSettings(trees=2)


class Trees(Reporter):
    def __init__(self) -> None:
        self.planned: list[int] = []
        self.grown: list[int] = []

    def plan(self, epochs: int, members: int) -> None:
        self.planned.append(epochs * members)

    def record(self, record) -> None:
        self.grown.append(record["epoch"])


@pytest.fixture
def place(synthetic, tmp_path) -> Workplace:
    (tmp_path / "small").mkdir()
    for end, part in (("trn", synthetic.train), ("tst", synthetic.test)):
        sp.save_npz(tmp_path / "small" / f"X.{end}.npz", part.X)
        sp.save_npz(tmp_path / "small" / f"Y.{end}.npz", part.Y)
    return Workplace(tmp_path)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", MODELS)
def test_measures_a_forest(place, tmp_path, model):
    cell, reporter = TreeCell("small", model, FEW, rows=200), Trees()
    measured = cell.measure(place, reporter)
    assert reporter.planned == [2]
    assert reporter.grown == [1, 2]
    assert measured["shapes"] == {"features": 800, "labels": 60, "train": 200, "test": 100}
    assert set(measured["metrics"]) == {f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5, 10, 20)}
    hits = unpack_hits(measured["hits"])[:100]
    assert 100 * hits[:, 0].mean() == pytest.approx(measured["metrics"]["P@1"], abs=1e-3)
    assert measured["bytes"] > 1000
    assert measured["nodes"] > 2

    assert run_cells([cell], tmp_path / "out", place) == []
    stored = read(cell, tmp_path / "out")
    assert stored is not None
    assert stored["metrics"] == measured["metrics"]


def test_names_and_settings():
    assert TreeCell("a", "fastxml").name == "a/fastxml-trees50-seed0"
    other = TreeCell("a", "pfastrexml", TreeSettings(scaling="none"), seed=2, split=1)
    assert other.name == "a/pfastrexml-trees50-scaling-none-split1-seed2"
    assert other.about()["settings"]["scaling"] == "none"
    assert TreeCell("a", "fastxml", FEW, rows=50).name.startswith("quick-a/fastxml-trees2-")


def test_a_missing_dataset(tmp_path):
    line = TreeCell("nowhere", "fastxml").missing(Workplace(tmp_path))
    assert line is not None
    assert "nowhere: found no folder" in line


def test_dense_rows_are_refused(split, tmp_path, monkeypatch):
    dense = Dataset("dense", split("dense"), split("dense", 1))
    monkeypatch.setattr(Workplace, "load", lambda *_: dense)
    with pytest.raises(DataError, match="trees want sparse feature rows"):
        TreeCell("dense", "fastxml", FEW).measure(Workplace(tmp_path), None)
