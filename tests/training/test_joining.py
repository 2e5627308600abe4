from __future__ import annotations

import signal
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.data.dataset import Split
from circlet.data.synthetic import make_multilabel
from circlet.errors import DataError
from circlet.folder.history import metrics_of
from circlet.model import Model, fit
from circlet.model.calibration import as_if_new, calibrate
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.settings import EFFORTS, RunSettings
from circlet.training import (
    CALIBRATION,
    InterruptedRunError,
    Joining,
    Reporter,
    StepsTaken,
    TrainingSettings,
    loop,
    steps,
    train,
)
from circlet.training.batches import Batches
from circlet.training.optimizers import set_rate

pytestmark = pytest.mark.usefixtures("one_thread")

N, F, L = 60, 15, 10
HELD_OUT = np.array([0, 3, 7, 8, 20, 21, 22, 40, 41, 55, 58, 59])
EPOCHS = 3
#: Of an epoch without the rows that are held out, and of the last one, which has them and as many others.
FEW_STEPS, LAST_STEPS = 3, 2
STEPS = EPOCHS * FEW_STEPS + LAST_STEPS


def data() -> tuple[sp.csr_matrix, sp.csr_matrix]:
    numbers = np.random.default_rng(0)
    X = sp.csr_matrix(numbers.random((N, F), dtype=np.float32) * (numbers.random((N, F)) < 0.4))
    Y = sp.csr_matrix((numbers.random((N, L)) < 0.2).astype(np.float32))
    return X, Y


X, Y = data()
VALIDATION = X[HELD_OUT], Y[HELD_OUT]


def make(**changes) -> Network:
    settings = {"dim": 16, "hidden": (12,), "dropout": 0.4, **changes}
    return Network(NetworkSettings(**settings), F, L, sparse=True)


def settings(**changes) -> TrainingSettings:
    chosen = {"epochs": EPOCHS, "batch_size": 16, "lr": 0.02, "input_dropout": 0.2, "metric": "P@1", "join": True}
    return TrainingSettings(**{**chosen, **changes})


def joined(network: Network, *, chosen: TrainingSettings | None = None, **options: Any) -> list[dict[str, Any]]:
    """Train with rows that are calibrated on and then join."""
    joining = Joining(HELD_OUT, lambda: {CALIBRATION: list(calibrate(Ensemble([network]), *VALIDATION))})
    options = {"joining": joining, "validation": VALIDATION, **options}
    return train(network, X, Y, chosen or settings(), **options)


def assert_same_weights(one: Network, other: Network) -> None:
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if name not in ("seconds", "documents_per_second")}
        for record in history
    ]


#: Every step of a run, of which most are for the slow tests.
TELLING = (1, EPOCHS * FEW_STEPS, EPOCHS * FEW_STEPS + 1, STEPS)
EVERY_STEP = [pytest.param(at, marks=[] if at in TELLING else pytest.mark.slow) for at in range(1, STEPS + 1)]


class CtrlC(Reporter):
    """Interrupts a run in its step number `at`, counted from 1; never if that is -1."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    def step(self, taken: StepsTaken) -> None:
        self.steps += 1
        if self.steps == self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[Network, list[dict[str, Any]]]:
    whole = make()
    return whole, joined(whole)


class TestOrder:
    @given(
        n=st.integers(2, 60),
        epochs=st.integers(1, 12),
        size=st.integers(1, 70),
        seed=st.integers(0, 2**32),
        data=st.data(),
    )
    def test_held_out_rows_are_in_no_epoch_but_the_last_one(self, n, epochs, size, seed, data):
        held_out = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))), dtype=np.int64)
        others = np.setdiff1d(np.arange(n), held_out)
        rows, labels = sp.identity(n, np.float32, format="csr"), sp.csr_matrix(np.ones((n, 2), np.float32))
        batches = Batches(rows, labels, settings(epochs=epochs, batch_size=size), seed, held_out)
        for epoch in range(epochs + 1):
            order = batches.order(epoch)
            assert batches.rows(epoch) == len(order)
            assert batches.steps(epoch) == -(-len(order) // size)
            if epoch < epochs:
                np.testing.assert_array_equal(np.sort(order), others)
        assert len(set(order.tolist())) == len(order) == len(held_out) + min(len(held_out), len(others))
        assert set(held_out.tolist()) <= set(order.tolist())

    def test_batches_have_the_rows_of_the_order(self):
        dense = np.arange(N, dtype=np.float32)[:, None]
        batches = Batches(dense, Y, settings(input_dropout=0.0), 0, HELD_OUT)
        for epoch in range(EPOCHS + 1):
            found = [batch.numpy().ravel() for batch, _ in batches.epoch(epoch, 0)]
            assert len(found) == batches.steps(epoch) == (FEW_STEPS if epoch < EPOCHS else LAST_STEPS)
            np.testing.assert_array_equal(np.concatenate(found), batches.order(epoch))

    def test_without_rows_to_join_all_are_in_every_epoch(self):
        batches = Batches(X, Y, settings(), 0)
        for epoch in range(EPOCHS):
            np.testing.assert_array_equal(np.sort(batches.order(epoch)), np.arange(N))


class TestHistory:
    def test_it_has_the_epochs_before_joining(self, uninterrupted):
        history = uninterrupted[1]
        assert [record["epoch"] for record in history] == [1, 2, 3]
        assert [list(metrics_of(record)) for record in history] == [["P@1"]] * 3

    @pytest.mark.parametrize("epochs", [1, 2, 5])
    def test_it_is_calibrated_once_just_before_they_join(self, epochs):
        seen, trained = [], []

        class Watch(Reporter):
            def epoch(self, number: int, n_steps: int, done: int) -> None:
                trained.append((number, n_steps))

        def calibration() -> dict[str, Any]:
            seen.append(list(trained))
            return {CALIBRATION: [2.5, -0.5]}

        joining = Joining(HELD_OUT, calibration)
        history = joined(make(), chosen=settings(epochs=epochs), joining=joining, reporter=Watch())
        assert trained == [*((epoch, FEW_STEPS) for epoch in range(epochs)), (epochs, LAST_STEPS)]
        assert seen == [trained[:epochs]]
        assert [record.get(CALIBRATION) for record in history] == [*[None] * (epochs - 1), [2.5, -0.5]]

    def test_the_reporter_is_told_of_it(self):
        seen = []

        class Watch(Reporter):
            def record(self, record: dict[str, Any]) -> None:
                seen.append(dict(record))

        assert joined(make(), reporter=Watch()) == seen

    def test_they_join_at_a_low_rate(self, monkeypatch):
        rates = [settings().joining_rate(step, LAST_STEPS) / settings().lr for step in range(LAST_STEPS)]
        assert rates == pytest.approx([0.1, 0.05])
        taken = []

        def spy(optimizer: Any, rate: float) -> None:
            taken.append(rate / settings().lr)
            set_rate(optimizer, rate)

        monkeypatch.setattr(steps, "set_rate", spy)
        joined(make())
        assert taken[-LAST_STEPS:] == pytest.approx(rates)


class TestWeights:
    def test_those_of_the_last_epoch_are_kept_even_if_another_was_better(self, monkeypatch):
        script = iter([0.9, 0.2, 0.1])
        monkeypatch.setattr(loop, "evaluate", lambda *_, **__: {"P@1": next(script)})
        network, kept, calibrated = make(), [], []

        def weights() -> dict[str, torch.Tensor]:
            return {name: tensor.clone() for name, tensor in network.weights().items()}

        class Watch(Reporter):
            def record(self, record: dict[str, Any]) -> None:
                kept.append(weights())

        def calibration() -> dict[str, Any]:
            calibrated.append(weights())
            return {}

        joined(network, joining=Joining(HELD_OUT, calibration), reporter=Watch())
        for name, tensor in network.weights().items():
            assert torch.equal(calibrated[0][name], kept[2][name]), name
            torch.testing.assert_close(tensor, kept[2][name], atol=0.02, rtol=0.1)  # not those of the first epoch
        assert not all(torch.equal(network.weights()[name], tensor) for name, tensor in kept[2].items())

    def test_held_out_rows_count_only_after_joining(self):
        """Without them, other features of theirs change nothing but the last epoch."""
        other = X.tolil()
        other[HELD_OUT] = 1.0
        seen: dict[str, list[float]] = {}
        ends = []
        for name, rows in (("one", X), ("other", other.tocsr())):
            joining = Joining(HELD_OUT, dict)
            network = make()
            history = train(network, rows, Y, settings(), validation=VALIDATION, joining=joining)
            seen[name] = [record["loss"] for record in history]
            ends.append(network)
        assert seen["one"] == seen["other"]
        assert not torch.equal(ends[0].head.output.weight, ends[1].head.output.weight)


class TestInterruption:
    # Every step: those before the boundary, the one at it (FEW_STEPS * EPOCHS) and those after it.
    @pytest.mark.parametrize("at", EVERY_STEP)
    def test_a_run_interrupted_in_any_step_ends_like_one_that_was_not(self, at, uninterrupted, tmp_path):
        whole, history = uninterrupted
        with pytest.raises(InterruptedRunError):
            joined(make(), folder=tmp_path, reporter=CtrlC(at))
        resumed, counter = make(), CtrlC(-1)
        again = joined(resumed, folder=tmp_path, resume=True, reporter=counter)
        assert_same_weights(resumed, whole)
        assert timeless(again) == timeless(history)
        assert counter.steps == STEPS - at  # no step is done twice

    def test_interrupted_again_and_again(self, uninterrupted, tmp_path):
        whole, history = uninterrupted
        for _ in range(STEPS - 1):
            with pytest.raises(InterruptedRunError):
                joined(make(), folder=tmp_path, resume=True, reporter=CtrlC(1))
        resumed = make()
        assert timeless(joined(resumed, folder=tmp_path, resume=True)) == timeless(history)
        assert_same_weights(resumed, whole)

    @pytest.mark.parametrize("at", [EPOCHS * FEW_STEPS, STEPS])
    @pytest.mark.parametrize(
        "changes",
        [
            {"first_layer": "sgd"},
            {"optimizer": "sgd"},
            {"optimizer": "adadelta", "schedule": "constant"},
            {"weight_decay": 0.01, "schedule": "step"},
        ],
        ids=str,
    )
    def test_other_settings(self, at, changes, tmp_path):
        whole, resumed, chosen = make(), make(), settings(**changes)
        history = joined(whole, chosen=chosen)
        with pytest.raises(InterruptedRunError):
            joined(make(), chosen=chosen, folder=tmp_path, reporter=CtrlC(at))
        again = joined(resumed, chosen=chosen, folder=tmp_path, resume=True)
        assert_same_weights(resumed, whole)
        assert timeless(again) == timeless(history)

    @pytest.mark.parametrize("at", [2, EPOCHS * FEW_STEPS, STEPS])
    def test_calibrated_once_in_both_parts_together(self, at, tmp_path):
        calls = []

        def calibration() -> dict[str, Any]:
            calls.append(at)
            return {CALIBRATION: [2.0, 1.0]}

        joining = Joining(HELD_OUT, calibration)
        with pytest.raises(InterruptedRunError):
            joined(make(), joining=joining, folder=tmp_path, reporter=CtrlC(at))
        history = joined(make(), joining=joining, folder=tmp_path, resume=True)
        assert calls == [at]
        assert history[EPOCHS - 1][CALIBRATION] == [2.0, 1.0]

    @pytest.mark.parametrize("at", [2, STEPS])
    def test_of_other_rows_to_join(self, at, tmp_path):
        with pytest.raises(InterruptedRunError):
            joined(make(), folder=tmp_path, reporter=CtrlC(at))
        for joining in (None, Joining(np.arange(len(HELD_OUT)), dict)):
            with pytest.raises(DataError, match="found a checkpoint of another run"):
                joined(make(), joining=joining, folder=tmp_path, resume=True)


ROWS = 200
MADE = make_multilabel(ROWS, 60, 12, seed=0, labels_per_row=2, words_per_row=12).train
SMALL = {"hidden": (16,), "dim": 24, "epochs": 3, "batch_size": 32, "lr": 0.02}


def run(seed: int = 0, **changes: Any) -> RunSettings:
    return RunSettings.from_preset("default", {**SMALL, **changes}, seed=seed)


@cache
def fitted(members: int = 1) -> Model:
    return fit(MADE, run(members=members))


@cache
def steps_of_epochs() -> list[int]:
    """The number of steps of each epoch of `fitted()`, the last of which has the rows that join."""
    sizes = []

    class Watch(Reporter):
        def epoch(self, number: int, n_steps: int, done: int) -> None:
            sizes.append(n_steps)

    fit(MADE, run(), reporter=Watch())
    assert sizes[0] == sizes[1] == sizes[2] > sizes[3]
    return sizes


def assert_same(one: Model, other: Model) -> None:
    """The same to the bit, except for how long it took."""
    for name, tensor in one.ranker.weights().items():
        assert torch.equal(tensor, other.ranker.weights()[name]), name
    assert one.calibration == other.calibration
    if len(one.networks) > 1:
        assert one.ranker.calibrations == other.ranker.calibrations
    assert timeless(one.history) == timeless(other.history)


class TestRehearsal:
    """Of few documents, a model is trained without the held-out ones first, only to calibrate the other."""

    def test_the_model_is_that_of_all_rows(self):
        model, alone = fit(MADE, run()), fit(MADE, run(validation=0))
        for name, tensor in model.ranker.weights().items():
            assert torch.equal(tensor, alone.ranker.weights()[name]), name
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)

    def test_the_calibration_is_that_of_a_network_without_the_rows_held_out(self):
        model, given = fit(MADE, run()), run()
        held_out = given.with_values({"validation": 60}).held_out(ROWS)
        learned = np.delete(np.arange(ROWS), held_out)
        rows = model.scaling.transform(MADE.X)
        network = Network(model.network.settings, rows.shape[1], model.n_labels, sparse=True)
        decided = {name: model.training[name] for name in TrainingSettings().__dict__}
        train(network, rows[learned], MADE.Y[learned], TrainingSettings(**decided))
        curve = calibrate(Ensemble([network]), as_if_new(rows, held_out), MADE.Y[held_out])
        assert curve == model.calibration == tuple(model.history[-1][CALIBRATION])
        assert list(metrics_of(model.history[-1])) == ["nDCG@5"]

    @pytest.mark.parametrize("members", [1, 2])
    @pytest.mark.parametrize("share", [0.1, 0.45, 0.5, 0.55, 0.9])
    def test_interrupted_and_resumed(self, members, share, tmp_path):
        whole, counter = fit(MADE, run(members=members)), CtrlC(-1)
        fit(MADE, run(members=members), reporter=counter)
        at = round(share * counter.steps)
        with pytest.raises(InterruptedRunError):
            fit(MADE, run(members=members), folder=tmp_path, reporter=CtrlC(at))
        again = CtrlC(-1)
        assert_same(fit(MADE, run(members=members), folder=tmp_path, resume=True, reporter=again), whole)
        assert again.steps == counter.steps - at  # no step is done twice

    def test_what_is_not_rehearsed(self):
        most = EFFORTS["default"].rehearsed
        assert run().has_calibration_run(most)
        assert not run().has_calibration_run(most + 1)
        assert not RunSettings.from_preset("fast", SMALL).has_calibration_run(100)
        assert not run(join=False).has_calibration_run(100)


@pytest.fixture
def join(monkeypatch) -> None:
    """So few documents would be rehearsed."""
    monkeypatch.setitem(EFFORTS, "default", replace(EFFORTS["default"], rehearsed=0))


@pytest.mark.usefixtures("join")
class TestFit:
    def test_a_model_has_learned_from_every_row(self):
        model = fitted()
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)
        assert model.documents_seen == ROWS
        np.testing.assert_array_equal(model.label_counts, np.asarray(MADE.Y.sum(axis=0)).ravel())

    def test_it_is_calibrated_as_its_history_says(self):
        model = fitted()
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

    @pytest.mark.parametrize("members", [1, 2])
    def test_a_saved_model_has_the_same_calibration(self, members, tmp_path):
        model = fitted(members)
        model.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.calibration == model.calibration
        if members > 1:
            assert loaded.ranker.calibrations == model.ranker.calibrations
        assert loaded.history == model.history

    @pytest.mark.parametrize(
        ("changes", "joins"),
        [
            ({}, True),
            ({"patience": 2}, False),
            ({"join": False}, False),
            ({"epochs": 1}, True),
        ],
        ids=str,
    )
    def test_who_joins(self, changes, joins):
        settings = run(**changes)
        assert settings.joins == joins
        model = fit(MADE, settings)
        assert (model.training["held_out"] == 0) == joins
        assert model.documents_seen == ROWS
        assert any(CALIBRATION in record for record in model.history) == joins
        assert model.calibration != (1.0, 0.0)

    def test_given_validation_rows_do_not_join(self):
        learned, validation = MADE.take(np.arange(150)), MADE.take(np.arange(150, ROWS))
        model = fit(learned, run(), validation=validation)
        assert (model.training["documents"], model.training["held_out"]) == (150, 50)
        assert not any(CALIBRATION in record for record in model.history)

    def test_too_few_to_hold_any_out(self):
        model = fit(MADE.take(np.arange(19)), run())
        assert (model.training["documents"], model.training["held_out"]) == (19, 0)
        assert not any(CALIBRATION in record or metrics_of(record) for record in model.history)

    # Of the steps of each network: the first one, those at the boundary and after it, and the last one.
    @pytest.mark.parametrize("at", ["first", "boundary", "after", "last"])
    @pytest.mark.parametrize(("members", "member"), [(1, 0), (2, 0), (2, 1)])
    def test_interrupted_and_resumed(self, members, member, at, tmp_path):
        sizes = steps_of_epochs()
        place = {"first": 1, "boundary": sum(sizes[:3]), "after": sum(sizes[:3]) + 1, "last": sum(sizes)}[at]
        with pytest.raises(InterruptedRunError):
            fit(MADE, run(members=members), folder=tmp_path, reporter=CtrlC(member * sum(sizes) + place))
        counter = CtrlC(-1)
        model = fit(MADE, run(members=members), folder=tmp_path, resume=True, reporter=counter)
        assert_same(model, fitted(members))
        assert counter.steps == (members - member) * sum(sizes) - place

    @pytest.mark.parametrize("kind", ["dense", "texts"])
    def test_other_kinds_of_documents(self, kind):
        texts = [" ".join(f"word{word}" for word in row.indices) for row in MADE.X]
        split = Split(None, MADE.Y, texts) if kind == "texts" else Split(MADE.X.toarray(), MADE.Y)
        model = fit(split, run())
        assert (model.training["documents"], model.training["held_out"]) == (ROWS, 0)
        assert model.calibration != (1.0, 0.0)
