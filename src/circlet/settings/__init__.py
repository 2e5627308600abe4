"""The settings of a training run, shared by the commands, the estimator and the experiments; needs no torch."""

from circlet.settings.auto import EFFORTS, Decision, Facts
from circlet.settings.network import NetworkSettings
from circlet.settings.presets import PRESETS
from circlet.settings.run import AUTO, DEFAULTS, RunSettings, TextSettings
from circlet.settings.training import TrainingSettings

__all__ = [
    "AUTO",
    "DEFAULTS",
    "EFFORTS",
    "PRESETS",
    "Decision",
    "Facts",
    "NetworkSettings",
    "RunSettings",
    "TextSettings",
    "TrainingSettings",
]
