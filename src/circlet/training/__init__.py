"""The loop: batches, steps, optimizers, schedule, checkpoints."""

from circlet.training.loop import InterruptedRunError, Reporter, Taken, TrainingSettings, resolve_device, train

__all__ = ["InterruptedRunError", "Reporter", "Taken", "TrainingSettings", "resolve_device", "train"]
