from __future__ import annotations

import logging
import math
import signal
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.runs import CtrlC, Recorder, assert_same_weights
from torch import nn

from circlet.errors import CircletError
from circlet.metrics import evaluate
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.network.encoders import as_batch
from circlet.network.losses import LOSSES
from circlet.network.network import top_k
from circlet.scoring.heads import HEADS
from circlet.settings.network import COSINES
from circlet.settings.run import OPTIMIZERS, SCHEDULES
from circlet.training import (
    DivergedError,
    InterruptedRunError,
    Reporter,
    StepsTaken,
    TrainingSettings,
    train,
)
from circlet.training import loop as training
from circlet.training.loop import VALIDATION_LOSS, measured

CPU = torch.device("cpu")
N_LABELS = 12


def problem(n: int = 160, *, seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Documents with one to two labels; each label has a feature of its own, and the rest is noise."""
    random = np.random.default_rng(seed)
    Y = np.zeros((n, N_LABELS), dtype=np.float32)
    Y[np.arange(n), random.integers(0, N_LABELS, n)] = 1
    Y[np.arange(n), random.integers(0, N_LABELS, n)] = 1
    noise = random.random((n, 8), dtype=np.float32) * (random.random((n, 8)) < 0.3)
    X = np.hstack([Y, noise]).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_matrix(X), sp.csr_matrix(Y)


X, Y = problem()
HELD_OUT = problem(60, seed=1)


def make(*, sparse: bool = True, **changes) -> Network:
    settings = {"dim": 32, "hidden": (24,), "dropout": 0.0, **changes}
    return Network(NetworkSettings(**settings), X.shape[1], N_LABELS, sparse=sparse)


def settings(**changes) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 3, "batch_size": 32, "lr": 0.02, "metric": "P@1", **changes})


def precision(network: Network, rows=X, labels=Y) -> float:
    return evaluate(labels, top_k(Ensemble([network]), rows, 1)[0], k=1, metrics=("P",))["P@1"]


class TestRun:
    def test_follows_the_schedule(self):
        network, chosen = make(), settings(epochs=2)
        seen = []

        class Watch(Reporter):
            def step(self, taken: StepsTaken) -> None:
                seen.append(run.optimizer.param_groups[0]["lr"])

        run = training._Run(network, X, Y, chosen, None, None, CPU, Watch(), None, None)
        history = run.go(resume=False)
        assert seen == [chosen.rate(step, 5) for step in range(10)]
        assert [record["lr"] for record in history] == [seen[4], seen[9]]


class TestLearning:
    @pytest.mark.parametrize(
        ("optimizer", "lr"), [("adamw", 0.02), ("adam", 0.02), ("adadelta", 1), ("sgd", 0.01)]
    )
    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_every_optimizer_lowers_the_loss(self, optimizer, lr, schedule):
        history = train(make(), X, Y, settings(epochs=4, optimizer=optimizer, lr=lr, schedule=schedule))
        losses = [record["loss"] for record in history]
        assert losses[-1] < losses[1] < losses[0]

    @pytest.mark.parametrize("head", HEADS)
    @pytest.mark.parametrize("loss", LOSSES)
    def test_every_head_learns_with_every_loss(self, head, loss):
        if head == "fc" and loss in COSINES:
            pytest.skip("makes no sense")
        network = make(head=head, loss=loss)
        train(network, X, Y, settings(epochs=16))
        assert precision(network) > 0.9

    @pytest.mark.parametrize("codebook", ["spectral", "independent"])
    def test_both_circular_codebooks_learn_what_holds_for_new_rows(self, codebook):
        network = make(codebook=codebook, hidden=(24, 24), dropout=0.1)
        top_k(Ensemble([network]), X, 3)  # codes that were first made for prediction serve training too
        train(network, X, Y, settings(epochs=15))
        assert precision(network, *HELD_OUT) > 0.9

    def test_input_dropout_changes_training_and_still_learns(self):
        plain, dropped = make(), make()
        for network, share in ((plain, 0), (dropped, 0.3)):
            train(network, X, Y, settings(epochs=15, input_dropout=share))
        assert not torch.equal(plain.head.output.weight, dropped.head.output.weight)
        assert precision(dropped) > 0.9

    def test_dense_rows_that_cannot_be_written_to(self):
        dense = X.toarray()
        dense.flags.writeable = False
        network = make(sparse=False)
        train(network, dense, Y, settings(epochs=10, input_dropout=0.2), validation=(dense, Y))
        assert precision(network, dense) > 0.9

    def test_a_custom_encoder(self):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(X.shape[1], 24), nn.Tanh())
        network = Network(
            NetworkSettings(dim=32, hidden=(24,)), X.shape[1], N_LABELS, sparse=False, encoder=encoder
        )
        before = encoder[0].weight.detach().clone()
        train(network, X.toarray(), Y, settings(epochs=15))
        assert precision(network, X.toarray()) > 0.9
        assert not torch.equal(encoder[0].weight, before)

    def test_rows_without_labels_or_features(self):
        features, labels = X.copy(), Y.copy()
        features.data[: features.indptr[20]] = 0
        features.eliminate_zeros()
        labels.data[labels.indptr[-20] :] = 0
        labels.eliminate_zeros()
        for loss in LOSSES:
            history = train(make(loss=loss), features, labels, settings(epochs=1))
            assert math.isfinite(history[0]["loss"])

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_weight_decay_makes_weights_smaller(self, optimizer):
        plain, decayed = make(), make()
        train(plain, X, Y, settings(optimizer=optimizer))
        train(decayed, X, Y, settings(optimizer=optimizer, weight_decay=0.5))
        assert decayed.head.output.weight.norm() < plain.head.output.weight.norm()


@pytest.mark.parametrize("head", ["chrr", "hrr", "fc"])
def test_a_new_network_knows_how_frequent_labels_are(head):
    network = make(head=head)
    train(network, X, Y, settings(epochs=1, lr=1e-9, optimizer="sgd"))
    bias = network.head.output.bias if head == "fc" else network.scorer.bias[:N_LABELS]
    counts = np.bincount(Y.indices, minlength=N_LABELS)
    expected = torch.from_numpy((counts + 0.5) / (X.shape[0] + 1)).float()
    torch.testing.assert_close(bias.detach().sigmoid(), expected)


class TestDeterminism:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_the_same_seed_gives_the_same_weights(self, optimizer):
        chosen = settings(optimizer=optimizer, input_dropout=0.2)
        one, same, other = (make(dropout=0.4, seed=seed) for seed in (0, 0, 1))
        histories = []
        for network in (one, same, other):
            torch.rand(3)  # whatever else draws random numbers
            histories.append(train(network, X, Y, chosen, validation=HELD_OUT))
        assert_same_weights(one, same)
        assert [record["loss"] for record in histories[0]] == [record["loss"] for record in histories[1]]
        assert [record["loss"] for record in histories[0]] != [record["loss"] for record in histories[2]]

    def test_predicting_in_between_changes_nothing(self):
        one, other = make(dropout=0.4), make(dropout=0.4)
        train(one, X, Y, settings())
        top_k(Ensemble([other]), X, 2)
        train(other, X, Y, settings())
        assert_same_weights(one, other)

    def test_the_global_random_state_is_left_alone(self):
        torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        train(make(dropout=0.5), X, Y, settings(epochs=1, input_dropout=0.5))
        assert torch.equal(torch_before, torch.get_rng_state())
        np.testing.assert_array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002

    def test_the_callers_data_is_left_alone(self):
        features, labels = X.copy(), Y.copy()
        train(make(), features, labels, settings(epochs=1, input_dropout=0.5), validation=(features, labels))
        assert (features != X).nnz == 0
        assert (labels != Y).nnz == 0


class TestValidation:
    @pytest.mark.parametrize(
        ("values", "patience", "epochs", "kept"),
        [
            ([0.1, 0.5, 0.5, 0.4], None, 4, 3),  # of equals the later
            ([0.1, 0.5, 0.3, 0.2, 0.9], 2, 4, 2),
            # It begins anew with every improvement.
            ([0.1, 0.05, 0.2, 0.1, 0.3, 0.3, 0.3, 0.3, 0.3], 2, 7, 7),
            ([0.1, 0.05, 0.2, 0.1, 0.3, 0.3, 0.3, 0.3, 0.3], None, 9, 9),
        ],
    )
    def test_the_best_weights_are_kept_with_or_without_patience(self, values, patience, epochs, kept, monkeypatch):
        script = iter(values)
        monkeypatch.setattr(training, "evaluate", lambda *_, **__: {"P@1": next(script)})
        network, best = make(), make()
        chosen = settings(epochs=len(values), patience=patience, schedule="constant")
        history = train(network, X, Y, chosen, validation=HELD_OUT)
        assert [record["P@1"] for record in history] == values[:epochs]
        train(best, X, Y, settings(epochs=kept, schedule="constant"))
        assert_same_weights(network, best)

    def test_without_validation_patience_waits_for_nothing(self):
        history = train(make(), X, Y, settings(epochs=3, patience=1))
        assert len(history) == 3
        assert "P@1" not in history[0]

    @pytest.mark.parametrize("metric", ["P@3", "R@5", "nDCG@5", "coverage@1", "P@40"])
    def test_the_networks_metric_is_the_best_of_the_history(self, metric):
        network = make(dropout=0.5)
        history = train(network, X, Y, settings(epochs=5, lr=0.05, metric=metric), validation=HELD_OUT)
        name, _, k = metric.partition("@")
        ids, _ = top_k(Ensemble([network]), HELD_OUT[0], int(k))
        expected = evaluate(HELD_OUT[1], ids, k=int(k), metrics=(name,))[metric]
        assert max(record[metric] for record in history) == expected


class TestDivergence:
    STEEP = settings(lr=1e38, optimizer="sgd", schedule="constant")

    @pytest.mark.parametrize(
        ("features", "chosen", "became"),
        [
            (
                sp.hstack([X[:, 1:], X[:, :1] * np.inf], format="csr"),
                settings(),
                r"loss became (nan|inf) by step \d",
            ),
            (X, STEEP, r"loss became (nan|inf) by step \d"),
            # No loss comes after the last step that would show it.
            (X * 1e20, replace(STEEP, epochs=1, batch_size=1000), "weights became non-finite .*"),
        ],
        ids=["infinite features", "a huge learning rate", "in the last step"],
    )
    def test_it_is_found(self, features, chosen, became):
        advice = rf"the {became} of epoch 1: lower the learning rate \(lr is .*scale the features"
        with pytest.raises(DivergedError, match=advice):
            train(make(head="fc"), features, Y, chosen)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
    def test_one_number_of_a_weight_is_enough_and_an_infinite_sum_is_not(self, value, dtype):
        weight = torch.ones(1001, 3, dtype=dtype)
        assert training.is_finite(weight)
        weight[700, 1] = value
        assert not training.is_finite(weight)
        assert training.is_finite(torch.full((100,), 3e38, dtype=dtype))
        assert training.is_finite(torch.empty(0, 5, dtype=dtype))


class TestReporter:
    def test_is_told_everything_and_the_history_is_that(self):
        recorder = Recorder()
        history = train(make(), X, Y, settings(epochs=2), reporter=recorder, validation=HELD_OUT)
        assert recorder.epochs == [(0, 5, 0), (1, 5, 0)]
        assert [taken.documents for taken in recorder.steps] == [32] * 10
        assert recorder.records == history
        losses = [taken.loss for taken in recorder.steps]
        assert [record["loss"] for record in history] == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:])])
        assert [record["epoch"] for record in history] == [1, 2]
        for record in history:
            assert set(record) - {"kept"} == {"epoch", "loss", "lr", "seconds", "documents_per_second", "P@1"}
            assert all(isinstance(value, (int, float)) for value in record.values())
        best = max(record["P@1"] for record in history)
        kept = [record for record in history if "kept" in record]
        assert kept == [record for record in history if record["P@1"] == best][-1:]  # of equal ones the last

    def test_the_speed_counts_documents_once(self, monkeypatch):
        clock = iter(range(100))
        monkeypatch.setattr(training.time, "perf_counter", lambda: next(clock))
        history = train(make(), X, Y, settings(epochs=1, batch_size=1000))
        assert history[0]["seconds"] == 1
        assert history[0]["documents_per_second"] == X.shape[0]


class TestInterruption:
    """Without a folder; with one, see the tests of checkpoints."""

    @pytest.mark.parametrize("times", [1, 2])
    def test_stops_after_the_step_and_a_second_one_does_not_wait(self, times):
        reporter, before = CtrlC(2, times), signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt, match="interrupted" if times == 1 else None) as caught:
            train(make(), X, Y, settings(), reporter=reporter)
        assert isinstance(caught.value, InterruptedRunError) == (times == 1)
        assert reporter.steps == 2
        assert signal.getsignal(signal.SIGINT) is before


def test_errors_are_of_two_kinds():
    assert issubclass(InterruptedRunError, KeyboardInterrupt)
    assert issubclass(DivergedError, ArithmeticError)
    assert all(issubclass(each, CircletError) for each in (InterruptedRunError, DivergedError))


def test_the_loss_is_the_mean_over_all_rows():
    network = Network(NetworkSettings(head="fc", hidden=(4,), loss="bce", dropout=0.0), 3, 5, sparse=True)
    random = np.random.default_rng(0)
    X = sp.csr_matrix(random.random((700, 3)).astype(np.float32))  # several batches, the last one shorter
    Y = sp.csr_matrix((random.random((700, 5)) < 0.4).astype(np.float32))
    found = measured(network, X, Y, "loss")
    with torch.no_grad():
        logits = network.scorer.logits(network(as_batch(X)))
        whole = nn.functional.binary_cross_entropy_with_logits(
            logits, torch.from_numpy(Y.toarray()), reduction="sum"
        )
    assert found == {VALIDATION_LOSS: pytest.approx(float(whole) / 700, rel=1e-5)}


def test_the_epoch_of_the_least_loss_is_kept():
    others = HELD_OUT[0], HELD_OUT[1][::-1]  # with wrong labels, which training makes ever less likely
    history = train(make(), X, Y, settings(epochs=8, lr=0.1, metric="loss"), validation=others)
    losses = [record[VALIDATION_LOSS] for record in history]
    assert [place for place, record in enumerate(history) if "kept" in record] == [int(np.argmin(losses))]
    assert np.argmin(losses) < len(losses) - 1


def test_a_plain_reporter_logs_epochs_and_nothing_else(caplog):
    reporter = Reporter()
    with caplog.at_level(logging.DEBUG, logger="circlet.training.loop"):
        reporter.member(1)
        reporter.epoch(0, 5, 0)
        reporter.step(StepsTaken(steps=5, loss=1.0, documents=160))
        assert caplog.records == []
        reporter.record({"epoch": 1, "loss": 0.2})
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "'epoch': 1" in caplog.text
