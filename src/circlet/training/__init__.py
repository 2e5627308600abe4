"""The loop that trains a network: batches, steps, optimizers, and checkpoints to resume from."""

from circlet.devices import resolve_device
from circlet.settings import TrainingSettings
from circlet.training.loop import (
    CALIBRATION,
    THRESHOLD,
    DivergedError,
    InterruptedRunError,
    Joining,
    measured,
    train,
)
from circlet.training.reporter import Reporter, StepsTaken

__all__ = [
    "CALIBRATION",
    "THRESHOLD",
    "DivergedError",
    "InterruptedRunError",
    "Joining",
    "Reporter",
    "StepsTaken",
    "TrainingSettings",
    "measured",
    "resolve_device",
    "train",
]
