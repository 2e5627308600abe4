"""What tests of interrupted runs share."""

from __future__ import annotations

import signal
from typing import Any

import torch

from circlet.model import Model
from circlet.network import Network
from circlet.training import Reporter, StepsTaken


class CtrlC(Reporter):
    """Interrupts training in its step number `at`, counted from 1 over all networks; never if that is 0."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.steps = at, 0

    def step(self, taken: StepsTaken) -> None:
        self.steps += 1
        if self.steps == self.at:
            signal.raise_signal(signal.SIGINT)


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
    assert one._members() == other._members()
    assert timeless(one.history) == timeless(other.history)


def assert_same_weights(one: Network, other: Network) -> None:
    """The same to the bit."""
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
