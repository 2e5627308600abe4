"""A search as a picture: every trial over time, and the best so far."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from circlet.tuning.study import METRIC, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

OURS, OTHERS = "#0072B2", "#8c8c8c"


def draw(study: Study) -> Figure:
    """Draw the score of each trial at the minute when it ended, with names where the best changed."""
    from matplotlib.figure import Figure  # an extra

    found = study.searched
    ends = [t / 60 for t in accumulate(trial.seconds for trial in study.trials)]
    minutes = [ends[study.trials.index(trial)] for trial in found]
    scores = [trial.score or 0.0 for trial in found]
    best = list(accumulate(scores, max))
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(minutes, scores, "o", color=OTHERS, ms=5)
    axis.step(minutes, best, where="post", color=OURS, lw=2)
    before: dict[str, object] = {}
    for i, trial in enumerate(found):
        if i == 0 or best[i] > best[i - 1]:
            changed = [f"{name} {value}" for name, value in trial.given.items() if before.get(name) != value]
            before = trial.given
            axis.plot(minutes[i], scores[i], "o", color=OURS, ms=7)
            axis.annotate(
                ", ".join(changed) or "defaults", (minutes[i], scores[i]), (4, 6), textcoords="offset points",
                color=OURS, fontsize=8,
            )  # fmt: skip
    axis.margins(x=0.12, y=0.15)
    axis.set_xlabel("minutes of training")
    axis.set_ylabel(f"{METRIC} on held-out rows, %")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    return figure
