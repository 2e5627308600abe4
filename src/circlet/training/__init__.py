"""The loop that trains a network: batches, steps, optimizers, and checkpoints to resume from."""

from circlet.settings import TrainingSettings
from circlet.training.distributed import resolve_device
from circlet.training.loop import (
    CALIBRATION,
    THRESHOLD,
    DivergedError,
    InterruptedRunError,
    Joining,
    Reporter,
    measured,
    train,
)
from circlet.training.steps import StepsTaken

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
