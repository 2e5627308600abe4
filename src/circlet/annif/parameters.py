"""Backend parameters: words of `projects.cfg` and of `-b circlet.NAME=VALUE`, read as circlet's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from circlet.errors import ParameterError
from circlet.settings import RunSettings

__all__ = ["DEFAULTS", "SETTINGS", "number", "settings_of", "whole"]

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


def _switch(name: str, value: Any) -> bool:
    known = {
        "1": True,
        "yes": True,
        "true": True,
        "on": True,
        "0": False,
        "no": False,
        "false": False,
        "off": False,
    }
    if str(value).lower() not in known:
        raise ParameterError(f"{name}: found {value!r}; wanted true or false")
    return known[str(value).lower()]


def _integers(name: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in str(value).split(","))
    except ValueError:
        raise ParameterError(f"{name}: found {value!r}; wanted integers separated by commas") from None


def _word(name: str, value: Any) -> str:
    return str(value)


#: How each setting of a run is read; the rest of a project's parameters are Annif's own.
SETTINGS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(RunSettings.names(), _word),
    **dict.fromkeys(
        ("dim", "slots", "epochs", "batch_size", "members", "patience", "max_features", "remember"), whole
    ),
    **dict.fromkeys(("dropout", "input_dropout", "lr", "weight_decay", "validation", "min_df"), number),
    **dict.fromkeys(("hidden", "word_ngrams", "char_ngrams"), _integers),
    "join": _switch,
}


def settings_of(params: Mapping[str, Any]) -> RunSettings:
    """The settings of a training run that a project's parameters describe.

    As in `circlet train`, "auto" leaves a setting to the data, and "none" switches it off.
    """
    given: dict[str, Any] = {}
    without: dict[str, None] = {}
    for name, read in SETTINGS.items():
        value = params.get(name, "auto")
        if str(value).lower() == "none":
            without[name] = None
        elif str(value).lower() != "auto":
            given[name] = read(name, value)
    settings = RunSettings.from_preset(str(params["preset"]), given, seed=whole("seed", params["seed"]))
    return settings.with_values(without) if without else settings
