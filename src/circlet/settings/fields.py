"""Settings: help, valid values and defaults, stored in the metadata of dataclass fields.

The options of `circlet train`, Annif's parameters and the estimator's docstring are made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from circlet.checks import is_integer, is_real
from circlet.errors import ParameterError

NGrams = tuple[int, int]
#: The value of a setting that is decided from the data.
AUTO = "auto"
#: The panels of `circlet train --help`, in their order.
DATA, MAIN, NETWORK, OPTIMIZATION, OUTPUT = "Data", "What matters", "Network", "Optimization", "Output"


@dataclass(frozen=True)
class Kind:
    """The type and the valid values of a setting.

    Parameters
    ----------
    type : type
        Type of the option on the command line: int, float, bool or str.
    metavar : str
        Placeholder for a value in the help.
    documented : str
        Name of the type in docstrings.
    words : str
        Description of a value as text, such as "integers separated by commas".
    read : callable
        Parses a text; raises ValueError for an invalid one.
    wanted : str
        Description of valid values, after "must be".
    valid : callable
        Whether a value is valid.
    plain : callable
        Converts a valid value to Python's types, since JSON has no NumPy numbers, which a search grid may pass.
    names : collection of str
        Names that are valid values; may grow later.
    auto : bool
        Whether "auto" is valid as well.
    """

    type: type = str
    metavar: str = "TEXT"
    documented: str = "str"
    words: str = "a word"
    read: Callable[[str], Any] = str
    wanted: str = ""
    valid: Callable[[Any], bool] = lambda value: True
    plain: Callable[[Any], Any] = lambda value: value
    names: Collection[str] = ()
    auto: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that are valid values; empty if values are not names."""
        return (*([AUTO] if self.auto else []), *self.names)

    def checked(self, name: str, value: Any) -> Any:
        """Convert a valid value to Python's types; raise `ParameterError` if it is not valid."""
        if self.names:
            wanted = f"{'auto or ' if self.auto else ''}one of {', '.join(self.names)}"
            valid = isinstance(value, str) and value in self.choices
        else:
            wanted, valid = self.wanted, self.valid(value)
        if not valid:
            raise ParameterError(f"`{name}` must be {wanted}, got {value!r}")
        return self.plain(value)


@dataclass(frozen=True)
class Setting:
    """A setting of a run.

    Parameters
    ----------
    kind : Kind
        Type and valid values.
    help : str
        Help, one line.
    more : str
        Further documentation.
    usual : Any
        Default of a run. The default of `RunSettings`, which decides nothing from data, may differ.
    panel : str or None
        Panel of `circlet train --help`; None if there is no option.
    option : str
        Name of the option.
    """

    kind: Kind
    help: str
    more: str
    usual: Any
    panel: str | None
    option: str


def setting(
    default: Any,
    kind: Kind,
    line: str,
    more: str = "",
    *,
    panel: str | None = None,
    usual: Any = None,
    option: str = "",
) -> Any:
    """Make a dataclass field with a `Setting` as metadata; `line` is the help, `usual` defaults to `default`."""
    about = Setting(kind, line, more, default if usual is None else usual, panel, option)
    return field(default=default, metadata={"setting": about})


def settings_in(settings: type) -> dict[str, Setting]:
    """Return the settings in a dataclass, by name."""
    return {each.name: each.metadata["setting"] for each in fields(settings) if "setting" in each.metadata}


def check(settings: Any) -> None:
    """Check the fields of a frozen dataclass, and convert their values to Python's types."""
    for name, each in settings_in(type(settings)).items():
        object.__setattr__(settings, name, each.kind.checked(name, getattr(settings, name)))


def among(names: Collection[str], *, auto: bool = False) -> Kind:
    """One of some names, or "auto"."""
    return Kind(metavar="NAME", names=names, auto=auto)


def whole(least: int, *, optional: bool = False) -> Kind:
    """An integer, or None."""
    return Kind(
        int,
        "N",
        "int or None" if optional else "int",
        "an integer",
        int,
        f"{'None or ' if optional else ''}an integer >= {least}",
        lambda value: (optional and value is None) or is_integer(value, least),
        lambda value: None if value is None else int(value),
    )


def number(wanted: str, valid: Callable[[Any], bool]) -> Kind:
    """A finite number that satisfies `valid`."""
    return Kind(
        float, "X", "float", "a number", _number, wanted, lambda value: is_real(value) and valid(value), float
    )


def share() -> Kind:
    """A fraction below 1."""
    return number("at least 0 and below 1", lambda value: bool(0 <= value < 1))


def integers(wanted: str = "", *, documented: str, valid: Callable[[Any], bool] | None = None) -> Kind:
    """A tuple of integers; without `valid`, any value is accepted unchanged."""
    return Kind(
        metavar="N,N",
        documented=documented,
        words="integers separated by commas",
        read=lambda text: tuple(int(part) for part in text.split(",")),
        wanted=wanted,
        valid=valid or (lambda value: True),
        plain=(lambda value: value) if valid is None else (lambda value: tuple(int(each) for each in value)),
    )


def switch() -> Kind:
    """True or false."""
    return Kind(
        bool, "", "bool", "true or false", _switch, "true or false",
        lambda value: isinstance(value, (bool, np.bool_)), bool,
    )  # fmt: skip


def _number(text: str) -> int | float:
    return int(text) if text.strip().isdecimal() else float(text)


def _switch(text: str) -> bool:
    if text.lower() in ("1", "yes", "true", "on"):
        return True
    if text.lower() in ("0", "no", "false", "off"):
        return False
    raise ValueError(text)


def shown(value: Any) -> str:
    """Format the value of a setting as on the command line."""
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Decision:
    """The decided value of a setting, the reason, and whether a trial decided."""

    name: str
    value: Any
    why: str
    tried: bool = False

    @property
    def shown(self) -> str:
        """Format the value as text."""
        return shown(self.value)

    def as_dict(self) -> dict[str, Any]:
        """Return the decision as a dictionary for JSON."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {"setting": self.name, "value": value, "why": self.why, "tried": self.tried}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Decision:
        """Restore a decision from `as_dict`."""
        value = found["value"]
        return cls(
            found["setting"], tuple(value) if isinstance(value, list) else value, found["why"], found["tried"]
        )


def check_ngrams(word_ngrams: Any, char_ngrams: Any) -> tuple[NGrams | None, NGrams | None]:
    """Lengths of n-grams as plain numbers; `ParameterError` if texts would have no features."""
    lengths: list[NGrams | None] = []
    for name, value in (("word_ngrams", word_ngrams), ("char_ngrams", char_ngrams)):
        pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(is_integer(size) for size in value)
        if value is not None and not (pair and 1 <= value[0] <= value[1]):
            raise ParameterError(
                f"`{name}` must be (shortest, longest) with 1 <= shortest <= longest, got {value!r}"
            )
        lengths.append(None if value is None else (int(value[0]), int(value[1])))
    if lengths == [None, None]:
        raise ParameterError("`word_ngrams` and `char_ngrams` are both None: there would be no features")
    return lengths[0], lengths[1]


def check_frequencies(min_df: Any, max_features: Any) -> tuple[int | float, int | None]:
    """Which terms are kept, by how frequent they are, as plain numbers; `ParameterError` if it makes no sense."""
    if not is_integer(min_df, 1) and not (isinstance(min_df, float) and 0 < min_df < 1):
        raise ParameterError(f"`min_df` must be an integer >= 1 or a fraction below 1, got {min_df!r}")
    if max_features is not None and not is_integer(max_features, 1):
        raise ParameterError(f"`max_features` must be an integer >= 1 or None, got {max_features!r}")
    # JSON knows no NumPy numbers.
    return int(min_df) if is_integer(min_df) else min_df, None if max_features is None else int(max_features)
