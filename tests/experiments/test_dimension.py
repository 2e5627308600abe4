"""dimension, ablation and features: tables, claims and pictures from made-up numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import ClassVar

import numpy as np
import pytest

from circlet import experiments
from circlet.experiments import ablation, dimension, features
from circlet.experiments.cells import Workplace
from circlet.experiments.training_cells import DEPTHS, Settings, TrainingCell

METRICS = [f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS]


def made_up(study, score: Callable[[TrainingCell, str], float], *, only=None) -> dict:
    """A result in which each cell has the numbers of `score`, a little higher for each seed."""
    settings = Settings()
    stored = [
        {
            "cell": cell.name,
            "about": cell.about(),
            "metrics": {metric: score(cell, metric) + 0.1 * cell.seed for metric in METRICS},
            "parameters": {"encoder": 10**6, "head": 2 * 10**5, "loss": 0, "total": 1_200_000},
            "seconds": 1.0,
            "provenance": {
                "command": "circlet reproduce",
                "versions": {"torch": "2"},
                "machine": {"processor": "one", "threads": 1, "gpu": None},
            },
        }
        for cell in study.cells(settings)
        if only is None or cell.dataset in only
    ]
    return {"experiment": study.__name__.rsplit(".", 1)[1], "settings": asdict(settings), "cells": stored}


def depth(metric: str) -> int:
    return int(metric.partition("@")[2])


def verdicts(study, result) -> dict[str, str]:
    return {claim.text: claim.holds for claim in study.claims(result)}


class TestDimension:
    @staticmethod
    def as_the_paper_says(cell: TrainingCell, metric: str) -> float:
        settings = cell.settings()
        if settings["head"] == "fc":
            return 40.0
        if settings["head"] == "hrr":
            return 20 + 0.01 * settings["dim"]
        return 35 + 0.005 * settings["dim"] + 0.1 * depth(metric)

    def test_claims_hold_where_the_numbers_do(self):
        found = verdicts(dimension, made_up(dimension, self.as_the_paper_says))
        assert list(found.values()) == ["yes"] * 5

    def test_claims_fail_where_the_numbers_do_not_hold(self):
        def other(cell, metric):
            settings = cell.settings()
            if settings["head"] == "fc":
                return 80.0
            return 60.0 if settings["head"] == "hrr" else 20 + 0.01 * settings["dim"] - 0.1 * depth(metric)

        assert list(verdicts(dimension, made_up(dimension, other)).values()) == ["no"] * 5

    def test_a_missing_dataset(self):
        result = made_up(dimension, self.as_the_paper_says, only=("delicious",))
        tables = {table.title: table for table in dimension.tables(result)}
        assert len(tables["Delicious, %"].rows) == 9
        assert not tables["WordNet, %"].rows
        assert "not available" in tables["WordNet, %"].note
        assert len(dimension.claims(result)) == 5


class TestAblation:
    POINTS: ClassVar[dict[str, float]] = {
        "chrr": 50,
        "chrr-half": 49.5,
        "chrr-sin": 45,
        "chrr-tanh": 44,
        "chrr-amplitude": 52,
        "all-labels": 53,
    }

    def score(self, cell: TrainingCell, metric: str) -> float:
        settings = cell.settings()
        return self.POINTS["all-labels" if settings["loss"] == "bce" else settings["head"]]

    def test_claims(self, monkeypatch):
        assert list(verdicts(ablation, made_up(ablation, self.score)).values()) == ["yes"] * 4
        monkeypatch.setattr(self, "POINTS", dict.fromkeys(self.POINTS, 50.0) | {"chrr-half": 40}, raising=False)
        assert list(verdicts(ablation, made_up(ablation, self.score)).values()) == ["no"] * 4

    def test_rows_have_the_parameters(self):
        table = ablation.tables(made_up(ablation, self.score))[0]
        assert table.rows[0][:4] == ("CHRR, d = 800, h = 768", "0.2 M", "1.2 M", "50.1 ± 0.1")


class TestFeatures:
    @staticmethod
    def score(cell: TrainingCell, metric: str) -> float:
        return {"bow": 50.0, "dense": 52.0, "both": 55.0}[cell.features]

    def test_claims(self):
        assert set(verdicts(features, made_up(features, self.score)).values()) == {"yes"}
        worse = made_up(features, lambda cell, metric: 100 - self.score(cell, metric))
        assert set(verdicts(features, worse).values()) == {"no"}

    def test_without_dense_features_it_says_so(self, tmp_path):
        planned = features.cells(Settings())
        (tmp_path / "wordnet").mkdir()
        for cell in planned:
            line = cell.missing(Workplace(tmp_path)) if cell.dataset == "wordnet" else ""
            assert (line is None) == (cell.dataset == "wordnet" and cell.features == "bow")
            if line:
                assert "circlet embed" in line
        bow = made_up(features, self.score)
        bow["cells"] = [cell for cell in bow["cells"] if cell["about"]["features"] == "bow"]
        assert all("no dense features" in table.note for table in features.tables(bow))
        assert features.claims(bow) == []

    def test_published_rows_are_included(self):
        table = features.tables(made_up(features, self.score))[0]
        assert ("CHRR (published)", "XLNet", None, "77.0", None, "50.0", None, "29.8", "37.6") in table.rows

    def test_dense_files_are_trained_on(self, tmp_path):
        import scipy.sparse as sp

        random = np.random.default_rng(0)
        folder, dense = tmp_path / "data" / "wordnet", tmp_path / "dense" / "wordnet"
        folder.mkdir(parents=True)
        dense.mkdir(parents=True)
        for part, n in (("trn", 60), ("tst", 20)):
            sp.save_npz(folder / f"X.{part}.npz", sp.random(n, 9, 0.5, "csr", np.float32, random))
            sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix(np.eye(5, dtype=np.float32)[np.arange(n) % 5]))
            np.save(dense / f"X.{part}.npy", np.eye(5, dtype=np.float32)[np.arange(n) % 5])
        place = Workplace(tmp_path / "data", "cpu", tmp_path / "dense")
        given = {"dim": 16, "hidden": (16,), "dropout": 0.0, "epochs": 25, "batch_size": 8, "lr": 0.02}
        found = {
            kind: TrainingCell("wordnet", "default", given, features=kind).measure(place, None)
            for kind in ("bow", "dense", "both")
        }
        assert [found[kind]["shapes"]["features"] for kind in found] == [9, 5, 14]
        assert found["dense"]["metrics"]["P@1"] > 95 > found["bow"]["metrics"]["P@1"]
        assert found["both"]["metrics"]["P@1"] > found["bow"]["metrics"]["P@1"]
        assert set(found["dense"]["dense_features"]["sha256"]) == {"trn", "tst"}


@pytest.mark.parametrize("study", [dimension, ablation, features])
def test_page_and_picture(study, tmp_path):
    result = made_up(study, lambda cell, metric: 30.0 + depth(metric))
    name = result["experiment"]
    experiments.render(name, result, tmp_path / name)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert "31.1 ± 0.1" in (tmp_path / f"{name}.md").read_text(encoding="utf-8") or name == "dimension"
    empty = {**result, "cells": []}
    experiments.render(name, empty, tmp_path / "empty")
    assert "Nothing has been measured yet" in (tmp_path / "empty.md").read_text(encoding="utf-8")
