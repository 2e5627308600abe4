from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training import runs
from tests.training.runs import CtrlC, N, Recorder, assert_same_weights, data, make, timeless

from circlet.errors import DataError
from circlet.model.calibration import calibrate
from circlet.network import Ensemble, Network
from circlet.storage.contents import metrics_of
from circlet.training import (
    CALIBRATION,
    FinalEpoch,
    InterruptedRunError,
    Reporter,
    TrainingSettings,
    loop,
    steps,
    train,
)
from circlet.training.optimizers import set_rate
from circlet.training.steps import Batches

HELD_OUT = np.array([0, 3, 7, 8, 20, 21, 22, 40, 41, 55, 58, 59])
EPOCHS = 3
#: Of an epoch without the rows that are held out, and of the last one, which has them and as many others.
FEW_STEPS, LAST_STEPS = 3, 2
STEPS = EPOCHS * FEW_STEPS + LAST_STEPS


X, Y = data()
VALIDATION = X[HELD_OUT], Y[HELD_OUT]


def settings(**changes: Any) -> TrainingSettings:
    return runs.settings(**{"epochs": EPOCHS, "join": True, **changes})


def finished(network: Network, *, chosen: TrainingSettings | None = None, **options: Any) -> list[dict[str, Any]]:
    """Train with rows that are calibrated on, and trained on in the final epoch."""
    final = FinalEpoch(HELD_OUT, lambda: {CALIBRATION: list(calibrate(Ensemble([network]), *VALIDATION))})
    options = {"final": final, "validation": VALIDATION, **options}
    return train(network, X, Y, chosen or settings(), **options)


#: Every step of a run, of which most are for the slow tests.
TELLING = (1, EPOCHS * FEW_STEPS, EPOCHS * FEW_STEPS + 1, STEPS)
EVERY_STEP = [pytest.param(at, marks=[] if at in TELLING else pytest.mark.slow) for at in range(1, STEPS + 1)]


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[Network, list[dict[str, Any]]]:
    whole = make()
    return whole, finished(whole)


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


class TestHistory:
    @pytest.mark.parametrize("epochs", [1, 2, 5])
    def test_it_is_calibrated_once_just_before_the_final_epoch(self, epochs):
        seen, recorder = [], Recorder()

        def calibration() -> dict[str, Any]:
            seen.append(list(recorder.epochs))
            return {CALIBRATION: [2.5, -0.5]}

        final = FinalEpoch(HELD_OUT, calibration)
        history = finished(make(), chosen=settings(epochs=epochs), final=final, reporter=recorder)
        assert recorder.epochs == [*((epoch, FEW_STEPS, 0) for epoch in range(epochs)), (epochs, LAST_STEPS, 0)]
        assert seen == [recorder.epochs[:epochs]]
        assert [record.get(CALIBRATION) for record in history] == [*[None] * (epochs - 1), [2.5, -0.5]]

    def test_the_final_epoch_has_a_low_rate(self, monkeypatch):
        rates = [settings().final_rate(step, LAST_STEPS) / settings().lr for step in range(LAST_STEPS)]
        assert rates == pytest.approx([0.1, 0.05])
        taken = []

        def spy(optimizer: Any, rate: float) -> None:
            taken.append(rate / settings().lr)
            set_rate(optimizer, rate)

        monkeypatch.setattr(steps, "set_rate", spy)
        finished(make())
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

        finished(network, final=FinalEpoch(HELD_OUT, calibration), reporter=Watch())
        for name, tensor in network.weights().items():
            assert torch.equal(calibrated[0][name], kept[2][name]), name
            torch.testing.assert_close(tensor, kept[2][name], atol=0.02, rtol=0.1)  # not those of the first epoch
        assert not all(torch.equal(network.weights()[name], tensor) for name, tensor in kept[2].items())

    def test_held_out_rows_count_only_in_the_final_epoch(self):
        """Without them, other features of theirs change nothing but the last epoch."""
        other = X.tolil()
        other[HELD_OUT] = 1.0
        losses, ends = [], []
        for rows in (X, other.tocsr()):
            network = make()
            history = train(network, rows, Y, settings(), validation=VALIDATION, final=FinalEpoch(HELD_OUT, dict))
            losses.append([record["loss"] for record in history])
            ends.append(network)
        assert losses[0] == losses[1]
        assert not torch.equal(ends[0].head.output.weight, ends[1].head.output.weight)


class TestInterruption:
    # Every step: those before the boundary, the one at it (FEW_STEPS * EPOCHS) and those after it.
    @pytest.mark.parametrize("at", EVERY_STEP)
    def test_a_run_interrupted_in_any_step_ends_like_one_that_was_not(self, at, uninterrupted, tmp_path):
        whole, history = uninterrupted
        assert [(record["epoch"], *metrics_of(record)) for record in history] == [(n, "P@1") for n in (1, 2, 3)]
        with pytest.raises(InterruptedRunError):
            finished(make(), folder=tmp_path, reporter=CtrlC(at))
        resumed, counter = make(), CtrlC()
        again = finished(resumed, folder=tmp_path, resume=True, reporter=counter)
        assert_same_weights(resumed, whole)
        assert timeless(again) == timeless(history)
        assert counter.steps == STEPS - at  # no step is done twice

    @pytest.mark.parametrize("at", [EPOCHS * FEW_STEPS, STEPS])
    @pytest.mark.parametrize(
        "changes",
        [
            {"first_layer": "sgd", "weight_decay": 0.01, "schedule": "step"},
            {"optimizer": "adadelta", "schedule": "constant"},
        ],
        ids=str,
    )
    def test_other_settings(self, at, changes, tmp_path):
        whole, resumed, chosen = make(), make(), settings(**changes)
        history = finished(whole, chosen=chosen)
        with pytest.raises(InterruptedRunError):
            finished(make(), chosen=chosen, folder=tmp_path, reporter=CtrlC(at))
        again = finished(resumed, chosen=chosen, folder=tmp_path, resume=True)
        assert_same_weights(resumed, whole)
        assert timeless(again) == timeless(history)

    @pytest.mark.parametrize("at", [2, EPOCHS * FEW_STEPS, STEPS])
    def test_calibrated_once_in_both_parts_together(self, at, tmp_path):
        calls = []

        def calibration() -> dict[str, Any]:
            calls.append(at)
            return {CALIBRATION: [2.0, 1.0]}

        final = FinalEpoch(HELD_OUT, calibration)
        with pytest.raises(InterruptedRunError):
            finished(make(), final=final, folder=tmp_path, reporter=CtrlC(at))
        history = finished(make(), final=final, folder=tmp_path, resume=True)
        assert calls == [at]
        assert history[EPOCHS - 1][CALIBRATION] == [2.0, 1.0]

    @pytest.mark.parametrize("at", [2, STEPS])
    def test_of_other_held_out_rows(self, at, tmp_path):
        with pytest.raises(InterruptedRunError):
            finished(make(), folder=tmp_path, reporter=CtrlC(at))
        for final in (None, FinalEpoch(np.arange(len(HELD_OUT)), dict)):
            with pytest.raises(DataError, match="found a checkpoint of another run"):
                finished(make(), final=final, folder=tmp_path, resume=True)
