"""The trials of a search, in one JSON file that is rewritten after each: an interrupted search goes on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.errors import DataError
from circlet.provenance import provenance
from circlet.tuning.changes import SETTINGS, Given

__all__ = ["Trial", "as_value", "read_search", "write_search"]


@dataclass(frozen=True)
class Trial:
    """One trained model.

    Parameters
    ----------
    given : dict
        What differs from the preset.
    draw : int
        Which rows were held out.
    score : float or None
        The metric on these rows, in percent; None if training failed.
    seconds : float
        How long training and ranking took.
    parameters : int or None
        How many the model has; None if training failed.
    failure : str or None
    """

    given: Given
    draw: int
    score: float | None
    seconds: float
    parameters: int | None = None
    failure: str | None = None


def write_search(path: Path, about: Mapping[str, Any], usual: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    """Replace the file of a search.

    Parameters
    ----------
    path : Path
    about : dict
        What tells this search from others.
    usual : dict
        What the settings that may be changed are, unless a trial changes them.
    trials : sequence of Trial
    """
    found = [{**asdict(trial), "given": _plain(trial.given)} for trial in trials]
    files.write_json(path, {"study": about, "usual": _plain(usual), "trials": found, "provenance": provenance()})


def read_search(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[Trial]]:
    """What was given to `write_search`.

    Raises
    ------
    DataError
        If the file is none of a search, or damaged.
    """
    try:
        found = files.read_json(path)
        about, usual = dict(found["study"]), _values(found["usual"])
        trials = [Trial(**{**each, "given": _values(each["given"])}) for each in found["trials"]]
        if not trials or not usual.keys() >= SETTINGS.keys():
            raise ValueError("no trial of the defaults")
        if not all(map(_is_sound, trials)):
            raise ValueError("a trial without its numbers")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: found no readable search ({error!r}); name another --output") from error
    return about, usual, trials


def as_value(value: Any) -> Any:
    """A setting's value as JSON has it, as settings have it."""
    return tuple(value) if isinstance(value, list) else value


def _is_sound(trial: Trial) -> bool:
    numbers = [trial.seconds, *([] if trial.score is None else [trial.score])]
    counts = [trial.draw, *([] if trial.parameters is None else [trial.parameters])]
    known = trial.given.keys() <= SETTINGS.keys()
    return known and all(map(is_real, numbers)) and all(is_integer(count, 0) for count in counts)


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_value(value) for name, value in found.items()}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
