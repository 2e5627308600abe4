"""The settings of a training run, shared by the commands, the estimator and the experiments; needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circlet.settings.auto import EFFORTS, PRESETS, Facts
    from circlet.settings.network import AUTO, Decision, NetworkSettings
    from circlet.settings.run import RunSettings, TextSettings, TrainingSettings

    #: The default of each setting, by name; "auto" is decided from the data.
    DEFAULTS: dict[str, Any]

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

# Imported on first use: applying a saved model needs no presets and no rules.
_HOMES = {
    "AUTO": "network",
    "Decision": "network",
    "EFFORTS": "auto",
    "PRESETS": "auto",
    "Facts": "auto",
    "NetworkSettings": "network",
    "RunSettings": "run",
    "TextSettings": "run",
    "TrainingSettings": "run",
}


def __getattr__(name: str) -> Any:
    if name == "DEFAULTS":
        from circlet.settings.run import defaults

        value: Any = defaults()
    elif name in _HOMES:
        value = getattr(import_module(f"circlet.settings.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
