from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Split
from circlet.model import Model, add_to_index, fit, fit_further, further_settings, indexing
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 6
LABELS = sp.csr_matrix(np.tile(np.eye(4, 2, dtype=np.float32), (6, 1)))


@pytest.fixture
def model() -> Model:
    settings = RunSettings(NetworkSettings(dim=8, hidden=(8,)), TrainingSettings(epochs=1), validation=0)
    return fit(Split(None, LABELS, TEXTS), settings)


def test_batches_and_ids(model, monkeypatch):
    assert model.index is None
    add_to_index(model, TEXTS)
    whole = model.index
    steps: list[int] = []
    model.index = None
    monkeypatch.setattr(indexing, "BATCH", 7)
    add_to_index(
        model, TEXTS, list("abcdefghijklmnopqrstuvwx"), track=lambda starts: steps.extend(starts) or starts
    )
    assert steps == [0, 7, 14, 21]
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


def test_no_documents(model):
    add_to_index(model, [])
    assert model.index is None
