"""A search as a picture: how far everything that was tried is ahead of the defaults, over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from circlet.tuning.changes import described
from circlet.tuning.study import METRIC, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

OURS, OTHERS = "#0072B2", "#8c8c8c"
#: The picture reaches down to so many points, or as many as the best is ahead; what is worse is marked there.
DEPTH = 1.0


def draw(study: Study) -> Figure:
    """Draw the gain of all settings at the minute when their last trial ended, and name those that won."""
    from matplotlib.figure import Figure  # an extra

    ends = [seconds / 60 for seconds in accumulate(trial.seconds for trial in study.trials)]
    ended = {str(trial.given): end for trial, end in zip(study.trials, ends, strict=True)}
    # The defaults are trained again in the first races, but they are there from the start.
    ended[str({})] = ends[0]
    judged = [given for given in study.tried if study.scores(given)]
    places = {str(given): (ended[str(given)], study.standing(given)) for given in judged}
    won = [places.pop(str(given)) for given in study.winners]
    lost = list(places.values())
    floor = -max(DEPTH, won[-1][1])
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    shown = [point for point in lost if point[1] >= floor]
    worse = [(minute, floor) for minute, gain in lost if gain < floor]
    axis.plot(*_apart(shown), "o", color=OTHERS, mfc="white", ms=5)
    axis.plot(*_apart(worse), "v", color=OTHERS, mfc="white", ms=5)
    axis.step(*_apart([*won, (ends[-1], won[-1][1])]), where="post", color=OURS, lw=2)
    axis.plot(*_apart(won), "o", color=OURS, ms=7)
    before: dict[str, object] = {}
    for given, place in zip(study.winners, won, strict=True):
        changed = {name: value for name, value in given.items() if before.get(name) != value}
        before = given
        late = place[0] > ends[-1] / 2  # words to its right might run over the edge
        axis.annotate(
            described(changed), place, (-6 if late else 4, 6), textcoords="offset points",
            ha="right" if late else "left", color=OURS, fontsize=8,
        )  # fmt: skip
    axis.text(1, 1, "○ lost    ▽ lost by more", transform=axis.transAxes, ha="right", color=OTHERS, fontsize=8)
    axis.margins(x=0.12, y=0.15)
    axis.set_xlabel("minutes of training")
    axis.set_ylabel(f"{METRIC} on held-out rows,\npoints above the defaults")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _apart(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Minutes and gains."""
    return [x for x, _ in points], [y for _, y in points]
