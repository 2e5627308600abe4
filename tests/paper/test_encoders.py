"""Tables, claims and the picture from made-up numbers, and cells that train on raw texts."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError
from circlet_paper import encoders
from circlet_paper.cells import Workplace
from circlet_paper.runs import DEPTH, pack_hits
from circlet_paper.training_cells import FIXED, TEXTS, TrainingCell


def measured(made_up, right) -> dict:
    """A result in which as many of 60 documents have a right first label as `right` says."""
    result = made_up(encoders, lambda cell, metric: 50.0)
    for cell in result["cells"]:
        hits = np.zeros((60, DEPTH), dtype=np.bool_)
        hits[: right(cell["about"]["settings"]), :5] = True
        cell["hits"] = pack_hits(hits)
    return result


def codes_win(settings: dict) -> int:
    return {"fc": 20, "chrr": 30}.get(settings["head"], 40 if "encoder" in settings else 10)


class TestClaims:
    def test_where_codes_win(self, made_up, verdicts):
        found = verdicts(encoders, measured(made_up, codes_win))
        assert len(found) == 5
        assert set(found.values()) == {"yes"}

    def test_where_they_lose(self, made_up, verdicts):
        found = verdicts(encoders, measured(made_up, lambda settings: 60 - codes_win(settings)))
        assert set(found.values()) == {"no"}

    def test_equal_is_at_least_as_good_but_not_better(self, made_up, verdicts):
        found = verdicts(encoders, measured(made_up, lambda settings: 30))
        assert sorted(found.values()) == ["no", "yes", "yes", "yes", "yes"]

    def test_without_numbers_there_are_none(self, made_up):
        assert encoders.claims({**measured(made_up, codes_win), "cells": []}) == []


def test_page(made_up, rendered):
    page = rendered(measured(made_up, codes_win))
    for words in ("CNN, FC", "Transformer, circlet", "circlet, words in any order"):
        assert f"| {words} |" in page
    assert "published" not in page


def test_the_largest_dataset_has_one_seed():
    made = encoders.cells(encoders.Settings())
    seeds = {dataset: {cell.seed for cell in made if cell.dataset == dataset} for dataset in encoders.TRAINING}
    assert seeds == {"pydocs": {0, 1, 2}, "wordnet": {0, 1, 2}}
    assert all(cell.features == TEXTS for cell in made)


class TestCells:
    @pytest.fixture
    def place(self, tmp_path) -> Workplace:
        folder = tmp_path / "wordnet"
        folder.mkdir()
        for part, name, n in (("trn", "train", 60), ("tst", "test", 20)):
            Y = np.eye(4, dtype=np.float32)[np.arange(n) % 4]
            sp.save_npz(folder / f"X.{part}.npz", sp.csr_matrix(np.ones((n, 3), dtype=np.float32)))
            sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix(Y))
            words = ["red fox", "fast car", "brown bear", "old lorry"]
            with gzip.open(folder / f"{name}_raw_texts.txt.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{words[row % 4]} {row}\n" for row in range(n))
        return Workplace(tmp_path, "cpu")

    def test_texts_are_read(self, place):
        small = {"hidden": (16,), "dim": 16, "epochs": 8, "batch_size": 8, "lr": 0.01, "dropout": 0.0}
        for given in ({"encoder": "cnn", "embedding": 8, **small}, small):
            cell = TrainingCell("wordnet", FIXED, given, features=TEXTS)
            assert cell.missing(place) is None
            assert cell.measure(place, None)["metrics"]["P@1"] > 95
        assert cell.name == "wordnet/fixed-chrr-amplitude-d16-h16-lr0.01-dropout0.0-texts-seed0"

    def test_missing_texts_are_named(self, place, tmp_path):
        for path in tmp_path.glob("wordnet/*.gz"):
            path.unlink()
        cell = TrainingCell("wordnet", FIXED, {"encoder": "cnn"}, features=TEXTS)
        assert "found no train_raw_texts.txt in" in (cell.missing(place) or "")
        with pytest.raises(DataError, match="wanted raw texts of all documents"):
            cell.load(place)

    @pytest.mark.slow  # it is built from what is installed
    def test_pydocs_is_always_here(self, tmp_path):
        cell = TrainingCell("pydocs", FIXED, {"encoder": "cnn"}, features=TEXTS)
        assert cell.missing(Workplace(tmp_path)) is None
