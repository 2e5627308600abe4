"""The settings of a training run, shared by the commands, the estimator and the experiments; needs no torch."""

from circlet.settings.network import NetworkSettings
from circlet.settings.presets import PRESETS
from circlet.settings.run import DEFAULTS, RunSettings, TextSettings
from circlet.settings.training import TrainingSettings

__all__ = ["DEFAULTS", "PRESETS", "NetworkSettings", "RunSettings", "TextSettings", "TrainingSettings"]
