"""A search for better settings: races of changes against the best settings so far, within a time budget.

Within minutes there is time for some dozen trials, too few for a model of how good settings are. So the search
climbs from the defaults. In a race, a change and the best settings are trained and evaluated on the same draws of
rows, one draw after the other. The change is dropped as soon as its mean is no better. A change that is ahead
after the last draw becomes the best.

A small set has few rows to hold out, and a single draw of them can't tell half a point from luck. So the smaller
the set, the more draws a race has.

The trials are in one JSON file that is rewritten after each, so that an interrupted search can continue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.data.dataset import Dataset, Split, is_mapped
from circlet.errors import CircletError, DataError
from circlet.identity import Identity
from circlet.provenance import provenance
from circlet.tuning.changes import SETTINGS, Given, described, proposals, work

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Trial:
    """One trained model."""

    #: Settings that differ from the preset.
    given: Given
    #: Number of the draw of held-out rows.
    draw: int
    #: The metric on these rows, in percent; None if training failed.
    score: float | None
    #: Duration of training and ranking.
    seconds: float
    #: Number of parameters of the model; None if training failed.
    parameters: int | None = None
    #: The error, if training failed.
    failure: str | None = None

    def check(self) -> None:
        """Raise `ValueError` if a number or a setting is none."""
        numbers = [each for each in (self.seconds, self.score) if each is not None]
        counts = [each for each in (self.draw, self.parameters) if each is not None]
        known = self.seconds is not None and self.given.keys() <= set(SETTINGS)
        if not (known and all(map(is_real, numbers)) and all(is_integer(count, 0) for count in counts)):
            raise ValueError("a trial without its numbers")


#: The metric, and the share and largest number of training rows that it is measured on in each draw.
METRIC, JUDGED, MOST_JUDGED = "nDCG@5", 0.15, 10_000
#: Number of evaluated rows in all draws of a race together, and bounds on the number of draws.
ENOUGH_JUDGED, FEWEST_DRAWS, MOST_DRAWS = 4000, 2, 5


class Study:
    """A search on one dataset, of which only the training rows are read.

    Parameters
    ----------
    dataset : Dataset
    path : Path
        The file for the trials. Trials of the same search that it already has count.
    preset : str
        The preset that the search starts from.
    seed : int
        Determines the held-out rows.
    device : torch.device or None
        None is the CPU.

    Attributes
    ----------
    trials : list of Trial
    draws : int
        Number of draws of rows in a race.
    """

    def __init__(
        self, dataset: Dataset, path: Path, *, preset: str = "default", seed: int = 0, device: Any = None
    ):
        self.dataset, self.path, self.preset, self.seed, self.device = dataset, path, preset, seed, device
        train = dataset.train
        self.judged = min(MOST_JUDGED, max(1, round(JUDGED * train.n)))
        self.draws = min(MOST_DRAWS, max(FEWEST_DRAWS, math.ceil(ENOUGH_JUDGED / self.judged)))
        self.trials: list[Trial] = []
        #: Values that the preset's rules and its trial decide for the settings that a search may change, and
        #: whether documents are texts, sparse, or rows with no other numbers than one and 0.
        self.usual: dict[str, Any] = {}
        from circlet.training.checkpoint import content_of

        about = {
            "data": dataset.name,
            "documents": train.n,
            "labels": int(train.Y.shape[1]),
            "content": content_of((train.X, train.Y), train.texts or ()),
            "preset": preset,
            "seed": seed,
            "metric": METRIC,
            "draws": self.draws,
        }
        self.identity = Identity(about, words={"content": "other documents or labels"})
        if path.exists():
            self._restore()

    @property
    def spent(self) -> float:
        """Seconds of all trials together."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def tried(self) -> list[Given]:
        """All settings that were tried, in order."""
        found: list[Given] = []
        for trial in self.trials:
            if trial.given not in found:
                found.append(trial.given)
        return found

    @property
    def winners(self) -> list[Given]:
        """The defaults, and all settings that have won a race, each against the one before it."""
        return [{}, *(given for given, best in self._races() if self._has_won(given, best))]

    @property
    def best(self) -> Given:
        """The last winner."""
        return self.winners[-1]

    def trials_of(self, given: Given) -> list[Trial]:
        """The trials with these settings."""
        return [trial for trial in self.trials if trial.given == given]

    def scores(self, given: Given) -> dict[int, float]:
        """The scores with these settings, by draw."""
        return {trial.draw: trial.score for trial in self.trials_of(given) if trial.score is not None}

    def mean_score(self, given: Given) -> float:
        """The mean over all draws that these settings were tried on."""
        return float(np.mean(list(self.scores(given).values())))

    def gain(self, given: Given, over: Given | None = None) -> float:
        """Return the lead of settings over others, or over the defaults, in points.

        The mean over all draws that both were tried on; minus infinity if there is none.
        """
        own, other = self.scores(given), self.scores(over or {})
        common = own.keys() & other.keys()
        return float(np.mean([own[draw] - other[draw] for draw in common])) if common else -math.inf

    def standing(self, given: Given) -> float:
        """Return the points above the defaults: those of the opponent in the race, and the lead over it.

        So the loser of a race stands no higher than the winner, even if it had lucky draws.
        """
        best = next(best for raced, best in self._races() if raced == given)
        return self.gain(best) + self.gain(given, best) if best else self.gain(given)

    def run(self, budget: float, watcher: Callable[[Study, str], None] = lambda study, doing: None) -> Given:
        """Search until no further race fits into `budget` seconds, those of earlier trials included.

        `watcher` is called before each trial with its settings in words, and after the last one with "".
        """
        if not self.trials:
            watcher(self, described({}))
            self._try({}, 0)
        # The first settings whose race is open and fits into the rest of the budget.
        fits = lambda given: self._cost(given) <= budget - self.spent  # noqa: E731
        while (given := next(filter(fits, self._open()), None)) is not None:
            self._race(given, watcher)
        watcher(self, "")
        return self.best

    def wanted(self) -> float | None:
        """Return the seconds of the shortest further race; None if nothing is left to try."""
        return min((self._cost(given) for given in self._open()), default=None)

    def _races(self) -> Iterator[tuple[Given, Given]]:
        """Yield all settings that were tried, each with its opponent: the best ones at that time."""
        best: Given = {}
        for given in self.tried:
            yield given, best
            if self._has_won(given, best):
                best = given

    def _has_won(self, given: Given, best: Given) -> bool:
        return len(self.scores(given)) == self.draws and self.gain(given, best) > 0

    def _open(self) -> Iterator[Given]:
        """Yield the proposals whose race is not over."""
        best = self.best
        races = ((given, other, self.gain(given, other)) for given, other in self._races())
        for given in proposals(best, self.usual, self._of_presets, races):
            if self._may_win(given, best):
                yield given

    @cached_property
    def _of_presets(self) -> list[dict[str, Any]]:
        """The settings that larger presets decide differently, by rules."""
        from circlet.model.plan import Decider
        from circlet.settings import EFFORTS, RunSettings

        presets, split = list(EFFORTS), self._split(0)[0]
        settings = [RunSettings.from_preset(preset, {}, seed=self.seed) for preset in presets]
        own, *others = (Decider(split, each).by_rule().flat() for each in settings[presets.index(self.preset) :])
        return [{name: other[name] for name in SETTINGS if other[name] != own[name]} for other in others]

    def _may_win(self, given: Given, best: Given) -> bool:
        """Whether these settings were not tried yet, or are ahead with draws left."""
        done = self.trials_of(given)
        if any(trial.score is None for trial in done) or len(done) == self.draws:
            return False
        return not done or self.gain(given, best) > 0

    def _cost(self, given: Given) -> float:
        """Estimate the seconds of the rest of a race, from those of the best settings and the work."""
        best = self.best
        once = min(trial.seconds for trial in self.trials_of(best))
        each = once * work({**self.usual, **given}) / work({**self.usual, **best})
        missing = self.draws - len(self.scores(best))
        return missing * once + (self.draws - len(self.scores(given))) * each

    def _race(self, given: Given, watcher: Callable[[Study, str], None]) -> None:
        best = self.best
        for draw in range(self.draws):
            for each in (best, given):
                if draw not in self.scores(each):
                    watcher(self, f"{described(each)} (draw {draw + 1} of {self.draws})")
                    self._try(each, draw)
            if not self._may_win(given, best):
                return

    def _try(self, given: Given, draw: int) -> None:
        started = time.perf_counter()
        score, parameters, failure = None, None, None
        try:
            score, parameters = self._measured(given, draw)
        except KeyboardInterrupt:  # which may also be a `CircletError`
            raise
        except CircletError as error:
            if not given:
                raise
            failure = str(error)
        self.trials.append(Trial(given, draw, score, round(time.perf_counter() - started, 2), parameters, failure))
        self._save()

    def _measured(self, given: Given, draw: int) -> tuple[float, int]:
        """Train without some rows and rank these; return the metric and the number of parameters."""
        from circlet.metrics import evaluate
        from circlet.model import fit
        from circlet.settings import RunSettings

        learned, judged = self._split(draw)
        named = {name: value for name, value in given.items() if value is not None}
        if self.usual:  # the short trial of optimizers need not be run again
            named = {"first_layer": self.usual["first_layer"], **named}
            if RunSettings.from_preset(self.preset, named).has_calibration_run(learned.n):
                named["validation"] = 0  # a calibration run is only for probabilities, which don't matter here
        settings = RunSettings.from_preset(self.preset, named, seed=self.seed + draw)
        settings = settings.with_values({name: None for name, value in given.items() if value is None})
        model = fit(learned, settings, device=self.device)
        if not self.usual:
            self.usual = self._usual(model.training.get("decided", ()), settings.flat())
        depth = int(METRIC.partition("@")[2])
        ids, _ = model.top_k(judged.X if judged.X is not None else judged.texts, depth)
        score = evaluate(judged.Y, ids, k=depth, metrics=(METRIC.partition("@")[0],))[METRIC]
        return round(100 * float(score), 3), model.ranker.parameter_counts()["total"]

    def _usual(self, decided: Any, given: dict[str, Any]) -> dict[str, Any]:
        X: Any = self.dataset.train.X
        known = {**given, **_values({each["setting"]: each["value"] for each in decided})}
        sparse = bool(sp.issparse(X) or is_mapped(X))
        # Square roots of numbers that are all the same change nothing once rows have the same length.
        even = sparse and not is_mapped(X) and bool((X.data == X.data[:1]).all())
        facts = {"texts": X is None, "sparse": X is None or sparse, "even": even}
        return {**{name: known[name] for name in SETTINGS}, **facts}

    def _split(self, draw: int) -> tuple[Split, Split]:
        """Return training rows and held-out rows; no two draws share any of the latter."""
        train = self.dataset.train
        order = np.random.Generator(np.random.PCG64(self.seed + 1000)).permutation(train.n)
        rows = np.sort(order[draw * self.judged : (draw + 1) * self.judged])
        return train.take(np.delete(np.arange(train.n), rows)), train.take(rows)

    def _save(self) -> None:
        trials = [asdict(trial) for trial in self.trials]
        kept = {"study": self.identity.values, "usual": self.usual, "trials": trials, "provenance": provenance()}
        files.write_json(self.path, kept)

    def _restore(self) -> None:
        """Read the trials; raise `DataError` if the file is damaged or of another search."""
        try:
            kept = files.read_json(self.path)
            about, self.usual = dict(kept["study"]), _values(kept["usual"])
            self.trials = [Trial(**{**each, "given": _values(each["given"])}) for each in kept["trials"]]
            if not self.trials or not self.usual.keys() >= set(SETTINGS):
                raise ValueError("no trial of the defaults")
            for trial in self.trials:
                trial.check()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self.path}: found no readable search ({error!r}); name another --output") from error
        if other := self.identity.differences(about):
            found = ", ".join(map(str, other))
            raise DataError(f"{self.path}: found a search with {found}; name another --output")


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings from JSON, whose lists are tuples here."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def draw(study: Study) -> Figure:
    """Draw the gain of all settings at the minute when their last trial ended, and name the winners."""
    from matplotlib.figure import Figure  # an extra

    ends = [seconds / 60 for seconds in accumulate(trial.seconds for trial in study.trials)]
    ended = {str(trial.given): end for trial, end in zip(study.trials, ends, strict=True)}
    # The defaults are trained again in the first races, but they are there from the start.
    ended[str({})] = ends[0]
    judged = [given for given in study.tried if study.scores(given)]
    places = {str(given): (ended[str(given)], study.standing(given)) for given in judged}
    won = [places.pop(str(given)) for given in study.winners]
    lost = list(places.values())
    ours, others = "#0072B2", "#8c8c8c"
    # The picture reaches down to one point, or as many as the best is ahead; what is worse is marked there.
    floor = -max(1.0, won[-1][1])
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    shown = [point for point in lost if point[1] >= floor]
    worse = [(minute, floor) for minute, gain in lost if gain < floor]
    axis.plot(*_apart(shown), "o", color=others, mfc="white", ms=5)
    axis.plot(*_apart(worse), "v", color=others, mfc="white", ms=5)
    axis.step(*_apart([*won, (ends[-1], won[-1][1])]), where="post", color=ours, lw=2)
    axis.plot(*_apart(won), "o", color=ours, ms=7)
    before: dict[str, object] = {}
    for given, place in zip(study.winners, won, strict=True):
        changed = {name: value for name, value in given.items() if before.get(name) != value}
        before = given
        late = place[0] > ends[-1] / 2  # words to its right might run over the edge
        axis.annotate(
            described(changed), place, (-6 if late else 4, 6), textcoords="offset points",
            ha="right" if late else "left", color=ours, fontsize=8,
        )  # fmt: skip
    axis.text(1, 1, "○ lost    ▽ lost by more", transform=axis.transAxes, ha="right", color=others, fontsize=8)
    axis.margins(x=0.12, y=0.15)
    axis.set_xlabel("minutes of training")
    axis.set_ylabel(f"{METRIC} on held-out rows,\npoints above the defaults")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _apart(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return minutes and gains."""
    return [x for x, _ in points], [y for _, y in points]
