"""A run of training and what goes on with its model; `tests/cli/test_runs.py` has those in folders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.conftest import L, N
from tests.training.runs import Recorder

from circlet.data.dataset import Split
from circlet.model import Model, add_to_index, fit, fit_further, further_settings
from circlet.settings import NetworkSettings, RunSettings
from circlet.training import TrainingSettings


class TestFitFurther:
    def wider(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """With one more label, which every document with label 0 has."""
        return sp.hstack([Y, Y[:, :1]], format="csr")

    def test_settings_are_gentle_unless_told_otherwise(self, trained):
        model = trained()
        before = TrainingSettings(epochs=30, lr=0.02, schedule="step", patience=2, batch_size=64, optimizer="adam")
        model.training |= vars(before)
        after = further_settings(model)
        assert (after.epochs, after.lr, after.schedule, after.patience) == (5, 0.01, "one-cycle", None)
        assert (after.batch_size, after.optimizer) == (64, "adam")
        assert further_settings(model, epochs=2, lr=0.5) == replace(after, epochs=2, lr=0.5)

    def test_history_goes_on_and_counts_add_up(self, trained, split):
        model = trained()
        history, before = list(model.history), model.label_counts.copy()
        more = split("sparse", 3)
        fit_further(model, more.X, self.wider(more.Y), further_settings(model))
        assert model.history[:3] == history
        assert [record["epoch"] for record in model.history] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert (model.training["documents"], model.training["held_out"], model.documents_seen) == (2 * N, N, 3 * N)
        added = self.wider(more.Y).sum(axis=0).A1
        np.testing.assert_array_equal(model.label_counts, [*(before + added[:L]), added[L]])

    def test_features_and_calibration_stay(self, trained, split, small_run):
        model = trained("texts")
        before = model.calibration, model.n_features, model.rows(["label1 label2 one"]).toarray()
        fit_further(model, ["label1 unheard-of"] * 4, split("texts").Y[:4], further_settings(model))
        assert (model.calibration, model.n_features) == before[:2]
        np.testing.assert_array_equal(model.rows(["label1 label2 one"]).toarray(), before[2])

    def test_every_network_is_trained_further(self, shared, split, tmp_path):
        before, more = shared(members=2), split("sparse", 3)
        before.save(tmp_path)
        model = Model.load(tmp_path)
        model.label_names = [*map(str, range(L)), "new"]
        fit_further(model, more.X, self.wider(more.Y), TrainingSettings(epochs=2, batch_size=16, lr=0.01))
        assert [network.codebook.n_labels for network in model.networks] == [L + 1, L + 1]
        found = [(record["member"], record["epoch"]) for record in model.history[6:]]
        assert found == [(1, 4), (1, 5), (2, 4), (2, 5)]
        for name, tensor in before.ranker.weights().items():
            assert not torch.equal(tensor, model.ranker.weights()[name]), name
        assert model.calibration == before.calibration
        assert model.ranker.calibrations == before.ranker.calibrations


TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 6
LABELS = sp.csr_matrix(np.tile(np.eye(4, 2, dtype=np.float32), (6, 1)))


@pytest.fixture
def model() -> Model:
    settings = RunSettings(NetworkSettings(dim=8, hidden=(8,)), TrainingSettings(epochs=1), validation=0)
    return fit(Split(None, LABELS, TEXTS), settings)


def test_batches_and_ids(model):
    add_to_index(model, [])
    assert model.index is None
    add_to_index(model, TEXTS)
    whole = model.index
    model.index = None

    recorder = Recorder()
    add_to_index(model, TEXTS, list("abcdefghijklmnopqrstuvwx"), reporter=recorder, batch_size=7)
    assert recorder.indexed == [(0, 24), (7, 24), (14, 24), (21, 24)]
    assert model.index.ids[:2] == ["a", "b"]
    np.testing.assert_array_equal(model.index.numbers, whole.numbers)
    # What the runtime predicts.
    (vectors,) = model.as_runtime().vectors(TEXTS)
    np.testing.assert_allclose(whole.numbers * whole.scales[:, None], vectors, atol=0.01)


def test_training_further_adds_documents(model, tmp_path):
    fit_further(model, TEXTS[:3], LABELS[:3], further_settings(model, epochs=1))
    assert model.index is None
    add_to_index(model, TEXTS)
    before = model.index.numbers.copy()
    fit_further(model, TEXTS[:3], LABELS[:3], further_settings(model, epochs=1), ids=["x", "y", "z"])
    assert model.index.ids == [*range(24), "x", "y", "z"]
    np.testing.assert_array_equal(model.index.numbers[:24], before)
    model.save(tmp_path)
    assert Model.load(tmp_path).index.ids == model.index.ids
