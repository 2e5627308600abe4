"""Cells that train: their names, the rows they use, and what they measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.data import load_dataset
from circlet.errors import DataError, ParameterError
from circlet.metrics import evaluate, inverse_propensity
from circlet.model import fit
from circlet.network.network import make_codebook
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet_paper import training_cells
from circlet_paper.cells import Workplace
from circlet_paper.training_cells import DEPTHS, FIXED, Recipe, Settings, TrainingCell

SMALL = {"head": "chrr", "dim": 16, "hidden": (8,), "epochs": 3}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Workplace:
    """A dataset named delicious, with two splits, whose row i has the value i + 1 in its first feature."""
    folder = tmp_path_factory.mktemp("data") / "delicious"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, first, n in (("trn", 0, 40), ("tst", 40, 10)):
        X = (random.random((n, 20)) < 0.3) * random.random((n, 20))
        X[:, 0] = np.arange(first, first + n) + 1
        Y = sp.csr_matrix((random.random((n, 6)) < 0.4).astype(np.float32))
        sp.save_npz(folder / f"X.{part}.npz", sp.csr_matrix(X.astype(np.float32)))
        sp.save_npz(folder / f"Y.{part}.npz", Y)
    order = [random.permutation(50) + 1 for _ in range(2)]
    for part, rows in (("tr", slice(0, 40)), ("tst", slice(40, 50))):
        table = np.stack([column[rows] for column in order], axis=1)
        np.savetxt(folder / f"delicious_{part}Split.txt", table, fmt="%d")
    np.save(folder.parent / "order.npy", np.stack(order))
    return Workplace(folder.parent, "cpu")


class TestName:
    def test_contains_what_matters(self):
        assert TrainingCell("eurlex-4k", "paper").name == "eurlex-4k/paper-chrr-d800-h768-seed0"
        fc = TrainingCell("eurlex-4k", "paper", {"head": "fc", "hidden": (1024, 1024)}, seed=2)
        assert fc.name == "eurlex-4k/paper-fc-h1024-seed2"
        other = TrainingCell("wordnet", FIXED, {**SMALL, "codebook": "independent", "lr": 0.5})
        assert other.name == "wordnet/fixed-chrr-d16-h8-independent-lr0.5-seed0"
        assert TrainingCell("wordnet", "default", seed=1).name == "wordnet/default-seed1"
        quick = TrainingCell("delicious", "paper", rows=100, split=3, features="dense")
        assert quick.name == "quick-delicious/paper-chrr-d800-h768-dense-split3-seed0"


class TestAbout:
    def test_a_default_of_the_library_is_recorded(self):
        about = TrainingCell("delicious", FIXED, {"lr": 0.5}, seed=4).about()
        assert about["settings"]["lr"] == 0.5
        assert about["settings"]["epochs"] == TrainingSettings().epochs
        assert about["settings"]["validation"] == 0.05
        assert about["seed"] == 4

    def test_what_the_data_decide_is_open(self):
        settings = TrainingCell("delicious", "accurate", {"dim": 8}).about()["settings"]
        assert (settings["dim"], settings["epochs"], settings["lr"]) == (8, "auto", "auto")

    def test_a_setting_added_later_is_not(self, monkeypatch):
        """A setting that the library adds later, with a default, must not outdate what was measured."""
        monkeypatch.setattr(
            training_cells, "RECORDED", tuple(n for n in training_cells.RECORDED if n != "schedule")
        )
        assert "schedule" not in TrainingCell("delicious", FIXED).about()["settings"]
        assert TrainingCell("delicious", FIXED, {"schedule": "step"}).about()["settings"]["schedule"] == "step"


class TestRows:
    @staticmethod
    def numbers(split) -> list[int]:
        """The rows of the whole dataset that a split has, counted from 1."""
        return split.X[:, 0].toarray().ravel().astype(int).tolist()

    def test_a_split_file_counts_training_rows_and_then_test_rows(self, place):
        order = np.load(Path(place.data) / "order.npy")
        for split in (1, 2):
            dataset = TrainingCell("delicious", "paper", split=split).load(place)
            assert self.numbers(dataset.train) == order[split - 1][:40].tolist()
            assert self.numbers(dataset.test) == order[split - 1][40:].tolist()
        own = TrainingCell("delicious", "paper").load(place)
        assert self.numbers(own.train) == list(range(1, 41))

    def test_fewer_rows_come_from_everywhere(self, place):
        dataset = TrainingCell("delicious", "paper", rows=4).load(place)
        assert self.numbers(dataset.train) == [1, 14, 27, 40]
        assert self.numbers(dataset.test) == [41, 50]
        assert TrainingCell("delicious", "paper", rows=999).load(place).train.n == 40

    def test_mistakes(self, place, tmp_path):
        with pytest.raises(ParameterError, match=r"`mode`: found 'sound'; wanted one of dense"):
            TrainingCell("delicious", "paper", features="sound").load(replace(place, features=tmp_path))
        folder = tmp_path / "delicious"
        folder.mkdir()
        for name in ("X", "Y"):
            sp.save_npz(folder / f"{name}.trn.npz", sp.csr_matrix(np.eye(4, dtype=np.float32)))
        here = Workplace(tmp_path)
        line = TrainingCell("delicious", "paper", split=1).missing(here)
        assert "delicious_trSplit.txt and delicious_tstSplit.txt" in line
        assert str(folder) in line
        assert TrainingCell("delicious", "paper").missing(here) is None
        assert (
            TrainingCell("delicious", "paper", split=1)
            .missing(Workplace(tmp_path / "no"))
            .startswith("delicious:")
        )
        with pytest.raises(DataError, match="found no test rows"):
            TrainingCell("delicious", "paper").load(here)


def test_measures_what_a_direct_computation_gives(place):
    cell = TrainingCell("delicious", FIXED, SMALL, seed=3)
    measured = cell.measure(place, None)
    dataset = load_dataset(place.folder("delicious"))
    train, validation = dataset.validation_split(0.05, seed=3)
    network = NetworkSettings(head="chrr", dim=16, hidden=(8,), seed=3)
    model = fit(train, RunSettings(network, TrainingSettings(epochs=3)), validation=validation)
    ids, _ = model.top_k(dataset.test.X, 20)
    values = evaluate(dataset.test.Y, ids, inverse_propensity(dataset.train.Y), DEPTHS, metrics=("P", "PSP"))
    assert measured["metrics"] == {name: round(100 * value, 3) for name, value in values.items()}
    assert measured["parameters"] == model.network.parameter_counts()
    assert measured["shapes"] == {"features": 20, "labels": 6, "train": 38, "validation": 2, "test": 10}
    assert measured["last_epoch"]["epoch"] == 3
    assert "decided" not in measured


def test_what_was_decided_is_measured_too(place):
    given = {**SMALL, "batch_size": 16, "dropout": 0.0, "first_layer": "sgd"}
    measured = TrainingCell("delicious", "fast", given).measure(place, None)
    assert {each["setting"] for each in measured["decided"]} == {
        "validation", "scaling", "char_ngrams", "min_df", "max_features", "lr"
    }  # fmt: skip
    assert (measured["shapes"]["train"], measured["shapes"]["validation"]) == (40, 0)


def test_the_seed_reaches_the_codebook(place, monkeypatch):
    codes = []

    def record(train, settings, **_):
        codes.append(make_codebook(settings.network, 6).codes(torch.arange(6)))
        return fit(train, settings, **_)

    monkeypatch.setattr("circlet.model.fit", record)
    for seed in (0, 0, 1):
        TrainingCell("delicious", "paper", SMALL, seed).measure(place, None)
    assert torch.equal(codes[0], codes[1])
    assert not torch.isclose(codes[0], codes[2]).all(dim=1).any()


class TestRecipe:
    def test_one_cell_per_seed_and_less_training_for_large_datasets(self):
        recipe = Recipe("CHRR", "paper", {"dim": 400})
        cells = recipe.cells("eurlex-4k", Settings())
        assert [cell.seed for cell in cells] == [0, 1, 2]
        assert cells[0].settings()["epochs"] == 100
        assert cells[0].settings()["dim"] == 400
        assert recipe.cells("wordnet", Settings())[0].settings()["epochs"] == 20
        large = recipe.cells("yso-finna-en", Settings())[0].settings()
        assert (large["epochs"], large["batch_size"]) == (10, 256)

    def test_presets_that_decide_are_the_same_everywhere(self):
        assert Recipe("circlet", "default").cells("wordnet", Settings())[0].given == {}
        (first, _) = Recipe("circlet", "default").cells("wordnet", Settings.quick())
        assert (first.settings()["epochs"], first.settings()["hidden"]) == (2, (256,))

    def test_quick_is_narrow_and_short(self):
        (first, _) = Recipe("FC", "paper", {"head": "fc"}).cells("delicious", Settings.quick())
        assert first.settings()["hidden"] == (512, 512)
        assert first.settings()["epochs"] == 2
        assert first.name.startswith("quick-")
        assert "of no value" in Settings.quick().note
        assert Settings().note == ""
