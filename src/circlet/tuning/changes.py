"""Changes of settings that a search tries, the most promising first.

The order is that of the gains in the trials that chose the presets (`experiments/results/choices`): the length of
training and its regularization, the optimizer of the first layer and the scaling, then sizes and rates. The number
of networks comes last: more of them nearly always help, but make each later trial longer. One setting is changed
at a time, except that longer training comes with more dropout, since either alone often loses. Then come pairs of
changes. A change that lost by much is seldom better after another one, so it is tried again last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Values = Mapping[str, Any]
#: Settings that differ from the usual ones.
Given = dict[str, Any]


#: The settings that a search changes.
SETTINGS = (
    "epochs", "dropout", "first_layer", "scaling", "char_ngrams", "hidden", "dim", "batch_size", "lr", "members",
)  # fmt: skip


def _others(name: str, now: Values) -> list[Any]:  # noqa: PLR0911 — one after the other
    """Return other values of a setting, given the present values."""
    value = now[name]
    match name:
        case "epochs":
            return [2 * value, max(1, round(value / 2))]
        case "dropout":
            return [round(min(0.9, max(0.0, value + step)), 2) for step in (0.2, -0.2, 0.1, -0.1)]
        case "first_layer":
            return ["same" if value == "sgd" else "sgd"] if now["sparse"] else []
        case "scaling":
            if now["texts"] or now["even"]:  # texts are weighted by tf-idf
                return []
            return ["sqrt" if now["sparse"] else "standard", "l2"]
        case "char_ngrams":
            return [(3, 5) if value is None else None] if now["texts"] else []
        case "hidden":
            return [tuple(max(16, round(width * factor)) for width in value) for factor in (2, 0.5)]
        case "dim":
            return [2 * value]
        case "batch_size":
            return [max(8, round(value * factor)) for factor in (0.5, 2)]
        case "lr":
            return [float(f"{value * factor:.3g}") for factor in (2, 0.5)]
        case _:  # more than four networks gain next to nothing
            return [value + 1] if value < 4 else []


def alternatives(now: Values) -> list[dict[str, Any]]:
    """Return changes of the present values: longer training with more dropout, then single settings."""
    each = {
        name: [{name: value} for value in _others(name, now) if value != now[name]]
        for name in SETTINGS
        if name in now
    }
    turns = itertools.zip_longest(*each.values())
    singles = [change for turn in turns for change in turn if change is not None]
    if "epochs" not in now or now.get("dropout", 1) >= 0.8:
        return singles
    return [{**each["epochs"][0], **each["dropout"][0]}, *singles]


def proposals(
    best: Values, usual: Values, leaps: Sequence[Values], races: Iterable[tuple[Values, Values, float]]
) -> list[dict[str, Any]]:
    """Return settings to try next: the best ones with one change or two, the most promising first.

    New changes come in the order of `alternatives`, then those that were behind, by their distance. A pair of
    changes counts as both of them. `leaps` are changes of several settings at once, which count as one and come
    first; `races` are settings that were tried, their opponents, and the lead over these. All settings are given
    as far as they differ from the `usual` ones.
    """
    behind = {str(_difference(given, other, usual)): min(gain, 0.0) for given, other, gain in races}

    def promise(changes: tuple[Values, ...]) -> float:
        """Return the gain to expect: none for a new change."""
        whole = behind.get(str(_difference(_with(best, *changes), best, usual)))
        parts = (behind.get(str(_difference(_with(best, change), best, usual)), 0.0) for change in changes)
        return sum(parts) if whole is None else whole

    singles = [*leaps, *alternatives(_with(usual, best))]
    pairs = ((a, b) for a, b in itertools.combinations(singles, 2) if not a.keys() & b.keys())
    ordered = sorted([*((change,) for change in singles), *pairs], key=promise, reverse=True)
    found = (_difference(_with(best, *changes), {}, usual) for changes in ordered)
    return [given for given in found if given != best]


def _with(values: Values, *changes: Values) -> dict[str, Any]:
    return dict(itertools.chain(values.items(), *(change.items() for change in changes)))


def _difference(given: Values, other: Values, usual: Values) -> dict[str, Any]:
    """Return the settings of `given` that differ from those of `other`."""
    now, before = _with(usual, given), _with(usual, other)
    return {name: now[name] for name in SETTINGS if now.get(name) != before.get(name)}


def work(values: Values) -> float:
    """Estimate the duration of training, in units that are the same for all values of one dataset."""
    # A text has many parts of words: with these as features, training takes four times as long.
    product = 4.0 if values.get("char_ngrams") else 1.0
    # Training time grows with each setting, as a power of it.
    powers = {"epochs": 1.0, "members": 1.0, "hidden": 0.8, "dim": 0.4, "batch_size": -0.5}
    for name, power in powers.items():
        value = values.get(name, 1)
        product *= float(sum(value) if isinstance(value, tuple) else value) ** power
    return product


def as_options(given: Values) -> list[str]:
    """Return settings as options of `circlet train`."""
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", _shown(value))]


def described(given: Values) -> str:
    """Return settings in words."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in given.items()) or "defaults"


def _shown(value: Any) -> str:
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
