"""Backend parameters: words of `projects.cfg` and of `-b circlet.NAME=VALUE`, read as circlet's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circlet.errors import ParameterError
from circlet.settings import RunSettings
from circlet.settings.run import all_settings

__all__ = ["DEFAULTS", "number", "settings_of", "whole"]

#: What a project has unless it says otherwise. All settings of `circlet train` are allowed; those that are not
#: named here are decided from the data, or are those of the preset.
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


def whole(name: str, value: Any) -> int:
    """A parameter that is an integer."""
    try:
        return int(value)
    except ValueError:
        raise ParameterError(f"{name}: found {value!r}; wanted an integer") from None


def number(name: str, value: Any) -> int | float:
    """A parameter that is a number."""
    try:
        found = float(value)
    except ValueError:
        raise ParameterError(f"{name}: found {value!r}; wanted a number") from None
    return whole(name, value) if str(value).strip().isdecimal() else found


def settings_of(params: Mapping[str, Any]) -> RunSettings:
    """The settings of a training run that a project's parameters describe.

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
    settings = RunSettings.from_preset(str(params["preset"]), given, seed=whole("seed", params["seed"]))
    return settings.with_values(without) if without else settings
