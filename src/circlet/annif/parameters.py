"""The backend's parameters: text of `projects.cfg` and of `-b circlet.NAME=VALUE` becomes circlet's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from circlet.errors import ParameterError
from circlet.settings import RunSettings
from circlet.settings.run import all_settings

#: Default values. All settings of `circlet train` are allowed; those that are not here depend on the data, or on
#: the preset.
DEFAULTS: dict[str, Any] = {
    "limit": 100,
    "preset": "default",
    "epochs": "auto",
    "members": 1,
    "favor_rare": 0.0,
    "seed": 0,
    "store": "auto",
    "device": "auto",
    "learn-epochs": 5,
}


def number(params: Mapping[str, Any], name: str, kind: Callable[[Any], Any] = int) -> Any:
    """Read a parameter that is an integer, or with `kind` `float` any number."""
    try:
        return kind(params[name])
    except ValueError:
        words = "an integer" if kind is int else "a number"
        raise ParameterError(f"{name}: found {params[name]!r}; wanted {words}") from None


def settings_of(params: Mapping[str, Any]) -> RunSettings:
    """Return the settings that a project's parameters describe.

    As in `circlet train`, "auto" leaves a setting to the data, and "none" switches it off.
    """
    given: dict[str, Any] = {}
    without: dict[str, None] = {}
    for name, setting in all_settings().items():
        value = str(params.get(name, "auto"))
        if value.lower() == "none":
            without[name] = None
        elif value.lower() != "auto":
            try:
                given[name] = setting.kind.read(value)
            except ValueError:
                raise ParameterError(f"{name}: found {value!r}; wanted {setting.kind.words}") from None
    settings = RunSettings.from_preset(str(params["preset"]), given, seed=number(params, "seed"))
    return settings.with_values(without) if without else settings
