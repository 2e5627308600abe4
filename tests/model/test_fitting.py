from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit, logit
from torch import nn

from circlet.data.dataset import Split
from circlet.errors import DataError, ParameterError
from circlet.model import Model, fit, fit_further, further_settings
from circlet.network import Ensemble
from circlet.settings import NetworkSettings
from circlet.training import InterruptedRunError, Reporter, StepsTaken, TrainingSettings

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

    def test_settings_are_gentle_unless_told_otherwise(self, trained):
        model = trained()
        before = TrainingSettings(epochs=30, lr=0.02, schedule="step", patience=2, batch_size=64, optimizer="adam")
        model.training |= vars(before)
        after = further_settings(model)
        assert (after.epochs, after.lr, after.schedule, after.patience) == (5, 0.01, "one-cycle", None)
        assert (after.batch_size, after.optimizer) == (64, "adam")
        assert further_settings(model, epochs=2, lr=0.5) == replace(after, epochs=2, lr=0.5)

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
        fit_further(model, split("sparse", 3).X, split("sparse", 3).Y, further_settings(model))
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
        fit_further(model, ["label1 unheard-of"] * 4, split("texts").Y[:4], further_settings(model))
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


class CtrlC(Reporter):
    """Interrupts training in its step number `at`, counted from 1 over all members."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self, taken: StepsTaken) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if name not in ("seconds", "documents_per_second")}
        for record in history
    ]


def assert_same(one: Model, other: Model) -> None:
    """The same to the bit, except for how long it took."""
    assert one.ranker.weights().keys() == other.ranker.weights().keys()
    for name, tensor in one.ranker.weights().items():
        assert torch.equal(tensor, other.ranker.weights()[name]), name
    assert one.calibration == other.calibration
    assert one._members() == other._members()
    assert timeless(one.history) == timeless(other.history)


class TestMembers:
    def test_the_first_is_the_network_of_a_model_of_one(self, shared):
        several, one = shared(members=2), shared()
        for name, tensor in one.network.weights().items():
            assert torch.equal(tensor, several.network.weights()[name]), name
        assert several.ranker.calibrations[0] == one.calibration
        plain = [{name: value for name, value in record.items() if name != "member"} for record in several.history]
        assert timeless(plain[:3]) == timeless(one.history)

    def test_they_differ_in_codes_and_weights(self, shared):
        one, other = shared(members=2).networks
        assert one.codebook.seed != other.codebook.seed
        assert one.codebook.state() == {**other.codebook.state(), "seed": 0}
        assert not any(torch.equal(tensor, other.weights()[name]) for name, tensor in one.weights().items())

    def test_their_records_are_numbered(self, shared):
        found = [(record["member"], record["epoch"]) for record in shared(members=2).history]
        assert found == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]

    def test_their_probabilities_are_averaged_and_calibrated(self, shared, documents):
        model = shared(members=2)
        ones = [
            Model(Ensemble([network]), model.scaling, n_features=F, sparse=True, calibration=curve)
            for network, curve in zip(model.networks, model.ranker.calibrations, strict=True)
        ]
        given = documents("sparse")
        each = [
            one.probabilities(np.concatenate(list(one.score_blocks(given)))).astype(np.float64) for one in ones
        ]
        slope, intercept = model.calibration
        assert model.calibration != (1.0, 0.0)
        expected = expit(slope * logit((each[0] + each[1]) / 2) + intercept)
        found = model.probabilities(np.concatenate(list(model.score_blocks(given))))
        np.testing.assert_allclose(found, expected, rtol=1e-3)

    def test_without_rows_to_calibrate_on(self, split, small_run):
        model = fit(split("sparse"), replace(small_run, members=2, validation=0))
        assert model.calibration == (1.0, 0.0)
        assert model.ranker.calibrations == [(1.0, 0.0), (1.0, 0.0)]

    def test_each_trains_a_copy_of_a_custom_encoder(self, trained):
        encoder = nn.Sequential(nn.Linear(F, 16), nn.Tanh())
        before = encoder[0].weight.detach().clone()
        one, other = trained("dense", encoder=encoder, members=2).networks
        assert one.encoder is encoder
        for network in (one, other):
            assert not torch.equal(network.encoder[0].weight, before)
        assert not torch.equal(one.encoder[0].weight, other.encoder[0].weight)

    # Of 5 steps per epoch and 3 epochs per member: inside the first one, at its end, in the second and at its end.
    @pytest.mark.parametrize("at", [3, 15, 16, 22, 30])
    def test_interrupted_and_resumed(self, at, trained, shared, tmp_path):
        with pytest.raises(InterruptedRunError, match=f"of member {1 if at <= 15 else 2}; .* holds a checkpoint"):
            trained(members=2, folder=tmp_path, reporter=CtrlC(at))
        counter = CtrlC(0)
        model = trained(members=2, folder=tmp_path, resume=True, reporter=counter)
        assert -counter.left == 30 - at  # no step is done twice
        assert_same(model, shared(members=2))
        model.save(tmp_path)
        assert not list(tmp_path.glob("checkpoint*"))

    def test_labels_with_other_names_are_not_resumed(self, trained, tmp_path):
        with pytest.raises(InterruptedRunError):
            trained(folder=tmp_path, reporter=CtrlC(3))
        with pytest.raises(DataError, match="labels with other names"):
            trained(folder=tmp_path, resume=True, names=False)

    @pytest.mark.parametrize("resume", [False, True])
    def test_starting_anew_forgets_all_checkpoints(self, resume, trained, shared, tmp_path):
        with pytest.raises(InterruptedRunError):
            trained(members=2, folder=tmp_path, reporter=CtrlC(22), network=NetworkSettings(dim=8, hidden=(4,)))
        (tmp_path / "checkpoint.safetensors").unlink()  # as after a damage
        assert_same(trained(members=2, folder=tmp_path, resume=resume), shared(members=2))

    @pytest.fixture
    def further(self, split, shared, tmp_path) -> Callable[..., Model]:
        """Train a copy of a model of two networks further, with a label more."""
        shared(members=2).save(tmp_path / "model")
        more = split("sparse", 3)
        wider = sp.hstack([more.Y, more.Y[:, :1]], format="csr")

        def train(**given: Any) -> Model:
            model = Model.load(tmp_path / "model")
            model.label_names = [*NAMES, "new"]
            fit_further(model, more.X, wider, TrainingSettings(epochs=2, batch_size=16, lr=0.01), **given)
            return model

        return train

    def test_trained_further(self, further, shared):
        model, before = further(), shared(members=2)
        assert model.n_labels == L + 1
        assert [network.codebook.n_labels for network in model.networks] == [L + 1, L + 1]
        found = [(record["member"], record["epoch"]) for record in model.history[6:]]
        assert found == [(1, 4), (1, 5), (2, 4), (2, 5)]
        for name, tensor in before.ranker.weights().items():
            assert not torch.equal(tensor, model.ranker.weights()[name]), name
        assert model.calibration == before.calibration
        assert model.ranker.calibrations == before.ranker.calibrations

    @pytest.mark.parametrize("at", [4, 10, 13])
    def test_trained_further_interrupted_and_resumed(self, at, further, tmp_path):
        with pytest.raises(InterruptedRunError):
            further(folder=tmp_path / "run", reporter=CtrlC(at))
        assert_same(further(folder=tmp_path / "run", resume=True), further())


def test_more_labels_than_a_saved_model_may_have(small_run):
    Y = sp.csr_matrix((24, 2**31 - 1), dtype=np.float32)
    with pytest.raises(DataError, match="found 2,147,483,647 labels; wanted at most 100,000,000"):
        fit(Split(np.ones((24, 2), dtype=np.float32), Y), small_run)


@pytest.mark.parametrize("shapes", [((24, 0), (24, 2)), ((24, 3), (24, 0))])
@pytest.mark.parametrize("sparse", [True, False])
def test_no_columns(small_run, shapes, sparse):
    X, Y = (np.ones(shape, dtype=np.float32) for shape in shapes)
    missing = "Y" if X.size else "X"
    with pytest.raises(ParameterError, match=f"found no columns in {missing}; wanted at least one"):
        fit(Split(sp.csr_matrix(X) if sparse else X, sp.csr_matrix(Y)), small_run)
