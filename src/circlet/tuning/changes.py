"""What a search may change, starting with what matters most.

The order is that of the gains in the trials that chose the presets (`experiments/results/choices`): how long and
how strongly regularized training is, how the first layer is trained and rows are scaled, then sizes and rates. How
many networks are averaged comes last: more of them nearly always help, but make each trial after that longer. One
setting is changed at a time, except that longer training first comes with more dropout: alone, either often loses.
Then two are. What has lost by much is seldom better after another change, so it is tried again last.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["SETTINGS", "Given", "alternatives", "as_options", "described", "proposals", "work"]

#: Longer training comes with more dropout only below this.
_STRONG = 0.8
#: More networks than these gain next to nothing.
_MOST_MEMBERS = 4
#: How training time grows with a setting, as a power of it.
_POWERS = {"epochs": 1.0, "members": 1.0, "hidden": 0.8, "dim": 0.4, "batch_size": -0.5}
#: How many times as long training takes with parts of words as features, of which a text has many.
_PARTS = 4.0
Values = Mapping[str, Any]
#: What differs from the usual settings.
Given = dict[str, Any]


def _epochs(now: Values) -> Iterator[Any]:
    yield 2 * now["epochs"]
    yield max(1, round(now["epochs"] / 2))


def _dropout(now: Values) -> Iterator[Any]:
    for step in (0.2, -0.2, 0.1, -0.1):
        yield round(min(0.9, max(0.0, now["dropout"] + step)), 2)


def _first_layer(now: Values) -> Iterator[Any]:
    if now["sparse"]:
        yield "same" if now["first_layer"] == "sgd" else "sgd"


def _scaling(now: Values) -> Iterator[Any]:
    if not (now["texts"] or now["even"]):  # texts are weighted by tf-idf
        yield from (each for each in (("sqrt", "l2") if now["sparse"] else ("standard", "l2")))


def _char_ngrams(now: Values) -> Iterator[Any]:
    if now["texts"]:
        yield (3, 5) if now["char_ngrams"] is None else None


def _hidden(now: Values) -> Iterator[Any]:
    for factor in (2, 0.5):
        yield tuple(max(16, round(width * factor)) for width in now["hidden"])


def _dim(now: Values) -> Iterator[Any]:
    yield 2 * now["dim"]


def _batch_size(now: Values) -> Iterator[Any]:
    for factor in (0.5, 2):
        yield max(8, round(now["batch_size"] * factor))


def _lr(now: Values) -> Iterator[Any]:
    for factor in (2, 0.5):
        yield float(f"{now['lr'] * factor:.3g}")


def _members(now: Values) -> Iterator[Any]:
    if now["members"] < _MOST_MEMBERS:
        yield now["members"] + 1


#: The settings that a search changes, and what else each could be, given the present values.
SETTINGS: dict[str, Callable[[Values], Iterator[Any]]] = {
    "epochs": _epochs,
    "dropout": _dropout,
    "first_layer": _first_layer,
    "scaling": _scaling,
    "char_ngrams": _char_ngrams,
    "hidden": _hidden,
    "dim": _dim,
    "batch_size": _batch_size,
    "lr": _lr,
    "members": _members,
}


def alternatives(now: Values) -> list[dict[str, Any]]:
    """Changes of the present values: longer training with more dropout, then the most promising ones."""
    each = {
        name: [{name: value} for value in make(now) if value != now[name]]
        for name, make in SETTINGS.items()
        if name in now
    }
    turns = itertools.zip_longest(*each.values())
    singles = [change for turn in turns for change in turn if change is not None]
    if "epochs" not in now or now.get("dropout", 1) >= _STRONG:
        return singles
    return [{**each["epochs"][0], **each["dropout"][0]}, *singles]


def proposals(
    best: Values, usual: Values, leaps: Sequence[Values], races: Iterable[tuple[Values, Values, float]]
) -> list[dict[str, Any]]:
    """What to try next, the most promising first: the best settings with one change, or with two.

    Parameters
    ----------
    best : dict
        The best settings so far, as far as they differ from the usual ones.
    usual : dict
        All settings that may be changed.
    leaps : sequence of dict
        Changes of several settings at once, which count as one and come first.
    races : iterable of (given, best, gain)
        What was tried, the best settings at that time, and by how much it was ahead of them.

    Returns
    -------
    list of dict
        New changes, in the order of `alternatives`, then those that were behind, by how much they were. Pairs of
        changes count as both of them.
    """
    behind = {str(_difference(given, other, usual)): min(gain, 0.0) for given, other, gain in races}

    def promise(changes: tuple[Values, ...]) -> float:
        """The gain to expect, which is none of what is new."""
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
    """The settings that differ between two, as `given` has them."""
    now, before = _with(usual, given), _with(usual, other)
    return {name: now[name] for name in SETTINGS if now.get(name) != before.get(name)}


def work(values: Values) -> float:
    """How long training takes with these values, in units that are the same for all values of one dataset."""
    product = _PARTS if values.get("char_ngrams") else 1.0
    for name, power in _POWERS.items():
        value = values.get(name, 1)
        product *= float(sum(value) if isinstance(value, tuple) else value) ** power
    return product


def as_options(given: Values) -> list[str]:
    """Settings as options of `circlet train`."""
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", _shown(value))]


def described(given: Values) -> str:
    """Settings for people."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in given.items()) or "defaults"


def _shown(value: Any) -> str:
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
