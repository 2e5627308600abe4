"""What a training run is told: one description for commands, estimator and experiments; imports no torch."""

from circlet.settings.network import NetworkSettings
from circlet.settings.presets import PRESETS
from circlet.settings.run import DEFAULTS, RunSettings, TextSettings
from circlet.settings.training import TrainingSettings

__all__ = ["DEFAULTS", "PRESETS", "NetworkSettings", "RunSettings", "TextSettings", "TrainingSettings"]
