from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError, ParameterError
from circlet.model import fit, fit_further, further_settings
from circlet.settings import NetworkSettings
from circlet.training import Reporter, TrainingSettings

N, F, L = 80, 14, 6  # of every model in conftest.py
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]


KINDS = ["sparse", "dense", "texts"]

pytestmark = pytest.mark.usefixtures("one_thread")


class TestFit:
    def test_learns(self, split, trained):
        model = trained(training=TrainingSettings(epochs=20, batch_size=16, lr=0.02))
        given = split("sparse", 2)
        ids, _ = model.top_k(given.X, 1)
        labeled = np.diff(given.Y.indptr) > 0
        right = np.asarray(given.Y[np.arange(N), ids[:, 0]]).ravel()
        assert right[labeled].mean() > 0.9

    def test_says_how_it_was_made(self, shared):
        model = shared("sparse")
        assert model.training["documents"] == N
        assert model.training["epochs"] == len(model.history) == 3
        assert model.training["lr"] == 0.02

    def test_texts_come_scaled_out_of_their_vectorizer(self, shared):
        assert shared("texts").scaling.kind == "none"

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_documents(self, kind, split, small_run):
        given = split(kind).take([])
        with pytest.raises(ParameterError, match="there are no documents to train on"):
            fit(given, small_run)

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (NAMES[1:], "found 5 label names; wanted one for each of 6"),
            ([*NAMES[1:], "two\nlines"], "line end"),
            ([*NAMES[1:], NAMES[1]], "twice"),
        ],
    )
    def test_names_that_could_not_be_saved(self, names, message, split, small_run):
        with pytest.raises(DataError, match=message):
            fit(split("sparse"), small_run, label_names=names)

    def test_without_validation_rows(self, split, small_run):
        nothing = split("sparse").take([])
        model = fit(split("sparse"), small_run, validation=nothing)
        assert model.calibration == (1.0, 0.0)
        assert not any("@" in name for record in model.history for name in record)

    def test_the_reporter_is_told(self, trained):
        seen = []

        class Watch(Reporter):
            def record(self, record: dict[str, Any]) -> None:
                seen.append(record)

        model = trained(reporter=Watch())
        assert seen == model.history


class TestFitFurther:
    def wider(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """With one more label, which every document with label 0 has."""
        return sp.hstack([Y, Y[:, :1]], format="csr")

    def test_settings_are_gentle_unless_told_otherwise(self):
        before = TrainingSettings(epochs=30, lr=0.02, schedule="step", patience=2, batch_size=64, optimizer="adam")
        after = further_settings(before)
        assert (after.epochs, after.lr, after.schedule, after.patience) == (5, 0.01, "one-cycle", None)
        assert (after.batch_size, after.optimizer) == (64, "adam")
        assert further_settings(before, epochs=2, lr=0.5) == replace(after, epochs=2, lr=0.5)

    def test_the_old_labels_stay_and_a_new_one_is_learned(self, trained, split):
        model = trained(training=TrainingSettings(epochs=15, batch_size=16, lr=0.02))
        more = split("sparse", 3)
        settings = TrainingSettings(epochs=15, batch_size=16, lr=0.02)
        fit_further(model, more.X, self.wider(more.Y), settings)
        assert model.n_labels == L + 1
        given = split("sparse", 2)
        has = given.Y[:, 0].toarray().ravel() > 0
        ids, _ = model.top_k(given.X[has], L + 1)
        place = np.argmax(ids == L, axis=1)
        assert place.mean() < 3  # of 0 to 6
        ids, _ = model.top_k(given.X, 1)
        right = np.asarray(self.wider(given.Y)[np.arange(N), ids[:, 0]]).ravel()
        assert right[np.diff(given.Y.indptr) > 0].mean() > 0.9

    def test_history_goes_on(self, trained, split, small_run):
        model = trained()
        before = list(model.history)
        fit_further(model, split("sparse", 3).X, split("sparse", 3).Y, further_settings(small_run.training))
        assert model.history[:3] == before
        assert [record["epoch"] for record in model.history] == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_counts_add_up(self, trained, split, small_run):
        model = trained()
        before = model.label_counts.copy()
        more = split("sparse", 3)
        fit_further(model, more.X, self.wider(more.Y), replace(small_run.training, epochs=1))
        assert (model.training["documents"], model.training["held_out"], model.documents_seen) == (2 * N, N, 3 * N)
        added = self.wider(more.Y).sum(axis=0).A1
        np.testing.assert_array_equal(model.label_counts, [*(before + added[:L]), added[L]])

    def test_a_model_that_does_not_know_its_counts_learns_none(self, trained, split, small_run):
        model = trained()
        model.label_counts = None
        fit_further(model, split("sparse", 3).X, split("sparse", 3).Y, replace(small_run.training, epochs=1))
        assert model.label_counts is None

    def test_features_and_calibration_stay(self, trained, split, small_run):
        model = trained("texts")
        before = model.calibration, model.n_features, model.rows(["label1 label2 one"]).toarray()
        fit_further(model, ["label1 unheard-of"] * 4, split("texts").Y[:4], further_settings(small_run.training))
        assert (model.calibration, model.n_features) == before[:2]
        np.testing.assert_array_equal(model.rows(["label1 label2 one"]).toarray(), before[2])

    def test_documents_of_another_kind(self, trained, split, small_run):
        with pytest.raises(DataError, match="was trained on feature rows; wanted rows, got texts"):
            fit_further(trained(), split("texts").texts, split("texts").Y, small_run.training)

    def test_head_fc_takes_no_new_labels(self, trained, split, small_run):
        model = trained(
            network=NetworkSettings(head="fc", hidden=(16,)), training=replace(small_run.training, epochs=1)
        )
        more = split("sparse", 3)
        with pytest.raises(ParameterError, match="head fc has one output per label"):
            fit_further(model, more.X, self.wider(more.Y), small_run.training)
        assert model.n_labels == L
        assert len(model.history) == 1
