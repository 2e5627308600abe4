"""What tests of interrupted runs share."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from circlet.model import Model
from circlet.network import Network, NetworkSettings
from circlet.settings import Decision
from circlet.training import Reporter, StepsTaken, TrainingSettings

N, F, L = 60, 15, 10


def data(seed: int = 0, n: int = N) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    numbers = np.random.default_rng(seed)
    X = sp.csr_matrix(numbers.random((n, F), dtype=np.float32) * (numbers.random((n, F)) < 0.4))
    return X, sp.csr_matrix((numbers.random((n, L)) < 0.2).astype(np.float32))


def make(**changes: Any) -> Network:
    settings = {"dim": 16, "hidden": (12,), "dropout": 0.4, **changes}
    return Network(NetworkSettings(**settings), F, L, sparse=True)


def settings(**changes: Any) -> TrainingSettings:
    chosen = {"epochs": 3, "batch_size": 16, "lr": 0.02, "input_dropout": 0.2, "metric": "P@1"}
    return TrainingSettings(**{**chosen, **changes})


class CtrlC(Reporter):
    """Interrupts training in its step number `at`, counted from 1 over all networks; never if that is 0."""

    def __init__(self, at: int = 0, times: int = 1) -> None:
        self.at, self.times, self.steps = at, times, 0

    def step(self, taken: StepsTaken) -> None:
        self.steps += 1
        for _ in range(self.times if self.steps == self.at else 0):
            signal.raise_signal(signal.SIGINT)


class Recorder(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, int, int]] = []
        self.steps: list[StepsTaken] = []
        self.records: list[dict[str, Any]] = []
        self.decisions: list[list[Decision]] = []
        self.indexed: list[tuple[int, int]] = []

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        self.epochs.append((number, n_steps, done))

    def step(self, taken: StepsTaken) -> None:
        self.steps.append(taken)

    def record(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def decided(self, decisions: Sequence[Decision]) -> None:
        self.decisions.append(list(decisions))

    def indexing(self, done: int, total: int) -> None:
        self.indexed.append((done, total))


class Stop(Reporter):
    """Ends training with an error when this epoch, counted from 0, begins."""

    def __init__(self, at: int) -> None:
        self.at = at

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        if number == self.at:
            raise InterruptedError


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without how long it took."""
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
    assert one.contents().config["members"] == other.contents().config["members"]
    assert timeless(one.history) == timeless(other.history)


def assert_same_weights(one: Network, other: Network) -> None:
    """The same to the bit."""
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
