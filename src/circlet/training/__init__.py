"""The loop that trains a network: batches, steps, optimizers, and checkpoints to resume from."""

from circlet.settings import TrainingSettings
from circlet.training.distributed import resolve_device
from circlet.training.loop import (
    CALIBRATION,
    THRESHOLD,
    DivergedError,
    FinalEpoch,
    InterruptedRunError,
    Reporter,
    measured,
    train,
)
from circlet.training.steps import StepsTaken

__all__ = [
    "CALIBRATION",
    "THRESHOLD",
    "DivergedError",
    "FinalEpoch",
    "InterruptedRunError",
    "Reporter",
    "StepsTaken",
    "TrainingSettings",
    "measured",
    "resolve_device",
    "train",
]
