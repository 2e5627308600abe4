from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit, logit
from tests.conftest import NAMES, F, N
from tests.training.runs import CtrlC, Recorder, assert_same, timeless
from torch import nn

from circlet.data.dataset import Split
from circlet.errors import DataError, ParameterError
from circlet.model import Model, fit
from circlet.model.calibration import calibrate
from circlet.model.plan import as_if_new, share_weights
from circlet.network import Ensemble, Network
from circlet.settings import EFFORTS, NetworkSettings, RunSettings
from circlet.storage.contents import metrics_of
from circlet.training import (
    CALIBRATION,
    InterruptedRunError,
    TrainingSettings,
    train,
)
from circlet_paper.synthetic import make_multilabel


class TestFit:
    def test_says_how_it_was_made(self, trained, split):
        recorder = Recorder()
        model = trained(reporter=recorder)
        assert model.training["documents"] == N
        assert model.training["epochs"] == len(model.history) == 3
        assert model.training["lr"] == 0.02
        assert recorder.records == model.history
        assert model.documents_seen == 2 * N  # those of validation too
        np.testing.assert_array_equal(
            model.label_counts, (split("sparse").Y + split("sparse", 1).Y).sum(axis=0).A1
        )

    def test_no_documents(self, split, small_run):
        with pytest.raises(ParameterError, match="there are no documents to train on"):
            fit(split("sparse").take([]), small_run)

    def test_names_that_could_not_be_saved(self, split, small_run):
        with pytest.raises(DataError, match="found 5 label names; wanted one for each of 6"):
            fit(split("sparse"), small_run, label_names=NAMES[1:])
        with pytest.raises(DataError, match="line end"):
            fit(split("sparse"), small_run, label_names=[*NAMES[1:], "two\nlines"])

    def test_without_validation_rows(self, split, small_run):
        nothing = split("sparse").take([])
        model = fit(split("sparse"), replace(small_run, members=2), validation=nothing)
        assert model.calibration == (1.0, 0.0)
        assert model.ranker.calibrations == [(1.0, 0.0), (1.0, 0.0)]
        assert not any("@" in name for record in model.history for name in record)


class TestMembers:
    def test_the_first_is_the_network_of_a_model_of_one(self, shared):
        several, one = shared(members=2), shared()
        for name, tensor in one.network.weights().items():
            assert torch.equal(tensor, several.network.weights()[name]), name
        assert several.ranker.calibrations[0] == one.calibration
        plain = [{name: value for name, value in record.items() if name != "member"} for record in several.history]
        assert timeless(plain[:3]) == timeless(one.history)
        found = [(record["member"], record["epoch"]) for record in several.history]
        assert found == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
        assert several.ranker.parameter_counts()["total"] == 2 * one.ranker.parameter_counts()["total"]

    def test_they_differ_in_codes_and_weights(self, shared):
        one, other = shared(members=2).networks
        assert one.codebook.seed != other.codebook.seed
        assert one.codebook.state() == {**other.codebook.state(), "seed": 0}
        assert not any(torch.equal(tensor, other.weights()[name]) for name, tensor in one.weights().items())

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

    def test_each_trains_a_copy_of_a_custom_encoder(self, trained):
        encoder = nn.Sequential(nn.Linear(F, 16), nn.Tanh())
        before = encoder[0].weight.detach().clone()
        one, other = trained("dense", encoder=encoder, members=2).networks
        assert one.encoder is encoder
        for network in (one, other):
            assert not torch.equal(network.encoder[0].weight, before)
        assert not torch.equal(one.encoder[0].weight, other.encoder[0].weight)

    def test_labels_with_other_names_are_not_resumed(self, trained, tmp_path):
        with pytest.raises(InterruptedRunError):
            trained(folder=tmp_path, reporter=CtrlC(3))
        with pytest.raises(DataError, match="found a checkpoint of another run: labels with other names"):
            trained(folder=tmp_path, resume=True, names=False)

    @pytest.mark.parametrize("resume", [False, True])
    def test_starting_anew_forgets_all_checkpoints(self, resume, trained, shared, tmp_path):
        with pytest.raises(InterruptedRunError):
            trained(members=2, folder=tmp_path, reporter=CtrlC(22), network=NetworkSettings(dim=8, hidden=(4,)))
        (tmp_path / "checkpoint.safetensors").unlink()  # as after a damage
        assert_same(trained(members=2, folder=tmp_path, resume=resume), shared(members=2))


def test_more_labels_than_a_saved_model_may_have(small_run):
    Y = sp.csr_matrix((24, 2**31 - 1), dtype=np.float32)
    with pytest.raises(DataError, match="found 2,147,483,647 labels; wanted at most 100,000,000"):
        fit(Split(np.ones((24, 2), dtype=np.float32), Y), small_run)


@pytest.mark.parametrize("shapes", [((24, 0), (24, 2)), ((24, 3), (24, 0))])
def test_no_columns(small_run, shapes):
    X, Y = (sp.csr_matrix(np.ones(shape, dtype=np.float32)) for shape in shapes)
    with pytest.raises(ParameterError, match=f"found no columns in {'Y' if X.nnz else 'X'}; wanted at least one"):
        fit(Split(X, Y), small_run)


ROWS = 200
TOPICS = make_multilabel(ROWS, 60, 12, seed=0, labels_per_row=2, words_per_row=12).train

#: The features 0, 2 and 5 are in the same rows, and so are 1 and 4; 6 is in none.
SHARED = sp.csr_matrix(
    np.array([[1, 0, 2, 3, 0, 2, 0], [0, 1, 0, 1, 1, 0, 0], [2, 0, 4, 0, 0, 4, 0]], dtype=np.float32)
)


def small_network() -> Network:
    return Network(NetworkSettings(dim=8, hidden=(5,)), 7, 4, sparse=True)


def first(of: Network) -> torch.Tensor:
    weight: torch.Tensor = of.state_dict()["encoder.hidden.0.weight"]
    return weight.clone()


def test_shared_weights_by_hand():
    made = small_network()
    before = first(made)
    share_weights(made, SHARED)
    after = first(made)
    torch.testing.assert_close(after[0], (before[0] + 2 * before[2] + 2 * before[5]) / 5)
    assert torch.equal(after[0], after[2])
    assert torch.equal(after[0], after[5])
    torch.testing.assert_close(after[1], (before[1] + before[4]) / 2)
    assert torch.equal(after[1], after[4])
    assert torch.equal(after[[3, 6]], before[[3, 6]])
    # So nothing changes for these rows.
    dense = torch.from_numpy(SHARED.toarray())
    torch.testing.assert_close(dense @ after, dense @ before)


def test_nothing_to_share():
    zeros = SHARED.copy()
    zeros.data[zeros.indices == 3] = 0  # a zero that is stored is no feature
    for rows, kept in ((SHARED.toarray(), slice(7)), (sp.identity(7, np.float32, "csr"), slice(7)), (zeros, 3)):
        made = small_network()
        before = first(made)
        share_weights(made, rows)
        assert torch.equal(first(made)[kept], before[kept])
    made = Network(made.settings, 7, 4, sparse=True, encoder=nn.Linear(7, 5))  # a custom encoder is left alone
    before = made.state_dict()["encoder.weight"].clone()
    share_weights(made, SHARED)
    assert torch.equal(made.state_dict()["encoder.weight"], before)


QUICK = {"hidden": (16,), "dim": 24, "epochs": 3, "batch_size": 32, "lr": 0.02}


def run(seed: int = 0, **changes: Any) -> RunSettings:
    return RunSettings.from_preset("default", {**QUICK, **changes}, seed=seed)


@cache
def fitted(members: int = 1) -> Model:
    return fit(TOPICS, run(members=members))


@cache
def steps_of_epochs() -> list[int]:
    """The number of steps of each epoch of `fitted()`, the last of which has the rows that join."""
    recorder = Recorder()
    fit(TOPICS, run(), reporter=recorder)
    sizes = [n_steps for _, n_steps, _ in recorder.epochs]
    assert sizes[0] == sizes[1] == sizes[2] > sizes[3]
    return sizes


class TestCalibrationRun:
    """Of few documents, a model is trained without the held-out ones first, only to calibrate the other."""

    def test_the_model_is_that_of_all_rows(self):
        model, alone = fit(TOPICS, run()), fit(TOPICS, run(validation=0))
        for name, tensor in model.ranker.weights().items():
            assert torch.equal(tensor, alone.ranker.weights()[name]), name
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)

    def test_the_calibration_is_that_of_a_network_without_the_rows_held_out(self):
        model, given = fit(TOPICS, run()), run()
        held_out = given.with_values({"validation": 60}).held_out(ROWS)
        learned = np.delete(np.arange(ROWS), held_out)
        rows = model.scaling.transform(TOPICS.X)
        network = Network(model.network.settings, rows.shape[1], model.n_labels, sparse=True)
        decided = {name: model.training[name] for name in TrainingSettings().__dict__}
        train(network, rows[learned], TOPICS.Y[learned], TrainingSettings(**decided))
        curve = calibrate(Ensemble([network]), as_if_new(rows, held_out), TOPICS.Y[held_out])
        assert curve == model.calibration == tuple(model.history[-1][CALIBRATION])
        assert list(metrics_of(model.history[-1])) == ["nDCG@5"]

    @pytest.mark.parametrize("members", [1, 2])
    @pytest.mark.parametrize("share", [0.1, 0.45, 0.55])
    def test_interrupted_and_resumed(self, members, share, tmp_path):
        counter = CtrlC()
        whole = fit(TOPICS, run(members=members), reporter=counter)
        at = round(share * counter.steps)
        with pytest.raises(InterruptedRunError):
            fit(TOPICS, run(members=members), folder=tmp_path, reporter=CtrlC(at))
        again = CtrlC()
        assert_same(fit(TOPICS, run(members=members), folder=tmp_path, resume=True, reporter=again), whole)
        assert again.steps == counter.steps - at  # no step is done twice

    def test_who_has_none(self):
        most = EFFORTS["default"].calibration_run
        assert run().has_calibration_run(most)
        assert not run().has_calibration_run(most + 1)
        assert not RunSettings.from_preset("fast", QUICK).has_calibration_run(100)
        assert not run(join=False).has_calibration_run(100)


@pytest.fixture
def join(monkeypatch) -> None:
    """So few documents would have a calibration run."""
    monkeypatch.setitem(EFFORTS, "default", replace(EFFORTS["default"], calibration_run=0))


@pytest.mark.usefixtures("join")
class TestFinalEpoch:
    def test_a_model_has_learned_from_every_row_and_is_calibrated_as_its_history_says(self):
        model = fitted()
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)
        assert model.documents_seen == ROWS
        np.testing.assert_array_equal(model.label_counts, np.asarray(TOPICS.Y.sum(axis=0)).ravel())
        assert model.calibration != (1.0, 0.0)
        assert [record.get(CALIBRATION) for record in model.history] == [None, None, list(model.calibration)]
        assert [bool(metrics_of(record)) for record in model.history] == [True, True, True]

    def test_each_of_several_networks_has_its_own_calibration(self):
        model = fitted(2)
        assert model.calibration == (1.0, 0.0)
        one, other = model.ranker.calibrations
        assert one == fitted().calibration
        assert other not in (one, (1.0, 0.0))
        kept = [
            (each["member"], each["epoch"], each[CALIBRATION]) for each in model.history if CALIBRATION in each
        ]
        assert kept == [(1, 3, list(one)), (2, 3, list(other))]
        assert model.documents_seen == model.training["documents"] == ROWS

    @pytest.mark.parametrize(
        ("changes", "joins"),
        [({}, True), ({"patience": 2}, False), ({"join": False}, False), ({"epochs": 1}, True)],
        ids=str,
    )
    def test_who_joins(self, changes, joins):
        settings = run(**changes)
        assert settings.has_final_epoch == joins
        model = fit(TOPICS, settings)
        assert (model.training["held_out"] == 0) == joins
        assert model.documents_seen == ROWS
        assert any(CALIBRATION in record for record in model.history) == joins
        assert model.calibration != (1.0, 0.0)

    @pytest.mark.parametrize(
        ("learned", "validation"), [(150, TOPICS.take(np.arange(150, ROWS))), (19, None)], ids=["given", "too few"]
    )
    def test_given_validation_rows_do_not_join_and_few_have_none(self, learned, validation):
        model = fit(TOPICS.take(np.arange(learned)), run(), validation=validation)
        held_out = 0 if validation is None else 50
        assert (model.training["documents"], model.training["held_out"]) == (learned, held_out)
        assert not any(CALIBRATION in record for record in model.history)
        assert any(metrics_of(record) for record in model.history) == (validation is not None)

    # Of the steps of each network: the first one, those at the boundary and after it, and the last one.
    @pytest.mark.parametrize("at", ["first", "boundary", "after", "last"])
    @pytest.mark.parametrize(("members", "member"), [(1, 0), (2, 0), (2, 1)])
    def test_interrupted_and_resumed(self, members, member, at, tmp_path):
        sizes = steps_of_epochs()
        place = {"first": 1, "boundary": sum(sizes[:3]), "after": sum(sizes[:3]) + 1, "last": sum(sizes)}[at]
        with pytest.raises(InterruptedRunError):
            fit(TOPICS, run(members=members), folder=tmp_path, reporter=CtrlC(member * sum(sizes) + place))
        counter = CtrlC()
        model = fit(TOPICS, run(members=members), folder=tmp_path, resume=True, reporter=counter)
        assert_same(model, fitted(members))
        assert counter.steps == (members - member) * sum(sizes) - place

    @pytest.mark.parametrize("kind", ["dense", "texts"])
    def test_other_kinds_of_documents(self, kind):
        texts = [" ".join(f"word{word}" for word in row.indices) for row in TOPICS.X]
        split = Split(None, TOPICS.Y, texts) if kind == "texts" else Split(TOPICS.X.toarray(), TOPICS.Y)
        model = fit(split, run())
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)
        assert model.calibration != (1.0, 0.0)
