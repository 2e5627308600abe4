"""The settings of a training run, shared by the commands, the estimator and the experiments; needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circlet.settings.auto import EFFORTS, PRESETS, Facts
    from circlet.settings.network import AUTO, Decision, NetworkSettings
    from circlet.settings.run import DEFAULTS, RunSettings, TextSettings, TrainingSettings

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


def __getattr__(name: str) -> Any:
    """Import a name on first use: applying a saved model needs no presets and no rules."""
    if name in __all__:
        for module in map(import_module, (f"circlet.settings.{home}" for home in ("network", "auto", "run"))):
            if name in vars(module):
                return globals().setdefault(name, vars(module)[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
