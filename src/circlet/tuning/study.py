"""A search: trials one after the other, each a change of the best so far, until the time is used up.

Within minutes there is time for some dozen trials, too few for a model of how good settings are. So the search
climbs: it changes the best trial so far and keeps the change if held-out rows are ranked better. When every single
change has been tried, it tries pairs of changes. In the end, the defaults and the best are
trained once more with other held-out rows and another seed, since the best of many trials was lucky in part; the
better mean of both wins.

Trials are kept in one JSON file that is rewritten after each, so an interrupted search goes on where it stopped.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet import files
from circlet.data.dataset import Dataset, Split, validation_rows
from circlet.errors import CircletError, DataError
from circlet.provenance import provenance
from circlet.tuning.changes import SETTINGS, alternatives

__all__ = ["METRIC", "Study", "Trial"]

#: What is compared, and the share and largest number of training rows that it is measured on.
METRIC, JUDGED, MOST_JUDGED = "nDCG@5", 0.15, 10_000
#: A trial of unknown length is expected to take this many times as long as the best so far, for twice the work.
_WORK = {"epochs": 1.0, "hidden": 0.8, "dim": 0.4, "batch_size": -0.5}
#: And this many times as long with parts of words as features, of which a text has many.
_PARTS = 4.0


@dataclass(frozen=True)
class Trial:
    """One trained model.

    Parameters
    ----------
    given : dict
        What differs from the preset.
    score : float or None
        The metric on held-out rows, in percent; None if training failed.
    seconds : float
        How long training and ranking took.
    decided : dict
        Values of the other settings that a search may change, as the preset's rules had them.
    draw : int
        Which rows were held out; the confirmation in the end has others.
    failure : str or None
    """

    given: dict[str, Any]
    score: float | None
    seconds: float
    decided: dict[str, Any] = field(default_factory=dict)
    draw: int = 0
    failure: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All settings that a search may change."""
        return {**self.decided, **self.given}


class Study:
    """A search on one dataset.

    Parameters
    ----------
    dataset : Dataset
        Only its training rows are read.
    path : Path
        The file that keeps the trials. If it has trials of the same search, they count.
    preset : str
        What the search starts from.
    seed : int
        Which rows are held out, and what is tried, follow from it.
    device : torch.device or None
        Where to train; None for the CPU.

    Attributes
    ----------
    trials : list of Trial
    """

    def __init__(
        self, dataset: Dataset, path: Path, *, preset: str = "default", seed: int = 0, device: Any = None
    ):
        self.dataset, self.path, self.preset, self.seed, self.device = dataset, path, preset, seed, device
        self.trials: list[Trial] = []
        train = dataset.train
        self.about = {
            "data": dataset.name,
            "documents": train.n,
            "labels": int(train.Y.shape[1]),
            "label_entries": int(train.Y.nnz),
            "preset": preset,
            "seed": seed,
            "metric": METRIC,
        }
        if path.exists():
            self._restore()

    @property
    def spent(self) -> float:
        """Seconds that all trials took."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def searched(self) -> list[Trial]:
        """Trials of the search itself that did not fail."""
        return [trial for trial in self.trials if trial.draw == 0 and trial.score is not None]

    @property
    def best(self) -> Trial:
        """The trial that held-out rows prefer: of two that were confirmed, the one with the better mean."""
        confirmed = [trial for trial in self.trials if trial.draw == 1 and trial.score is not None]
        if len(confirmed) == 2:
            return max(confirmed, key=lambda trial: self.mean_score(trial.given))
        return max(self.searched, key=lambda trial: (trial.score or 0.0, -self.trials.index(trial)))

    def mean_score(self, given: dict[str, Any]) -> float:
        """Mean of the scores of all trials with these settings."""
        scores = [t.score for t in self.trials if t.given == given and t.score is not None]
        return sum(scores) / len(scores)

    def run(self, budget: float, watcher: Callable[[Study, str], None] = lambda study, doing: None) -> Trial:
        """Search until all trials have taken `budget` seconds; at least one trial besides the defaults.

        `watcher` is told before each trial what it will change, and after the last one "".
        """
        for given in self._proposals():
            start = self.trials[0].seconds if self.trials else 0.0
            # Two more trials follow in the end: the defaults and the best again.
            reserved = start + self._expected(self.best.given) if self.searched else 0.0
            if len(self.trials) > 1 and self.spent + self._expected(given) + reserved > budget:
                if self.spent + start + reserved > budget:
                    break
                continue  # a shorter one may fit
            watcher(self, _described(given, self.best.given if self.searched else {}))
            self._try(given, 0)
        if not self.searched:
            raise CircletError(f"every trial failed; the first one: {self.trials[0].failure}")
        if best := self.best.given:
            for given in ({}, best):
                if not any(trial.draw == 1 and trial.given == given for trial in self.trials):
                    watcher(self, "once more, with other held-out rows")
                    self._try(given, 1)
        watcher(self, "")
        return self.best

    def _proposals(self) -> Iterator[dict[str, Any]]:
        """Settings that were not tried yet, each a change of what is the best when it is asked for."""
        if not self.trials:
            yield {}
        while self.searched:
            best = self.best
            found = alternatives(best.values)
            pairs = [{**a, **b} for a, b in itertools.combinations(found, 2) if not a.keys() & b.keys()]
            np.random.default_rng(self.seed).shuffle(pairs)
            tried = [trial.given for trial in self.trials]
            fresh = (
                changed for changes in (*found, *pairs) if (changed := self._changed(best, changes)) not in tried
            )
            count = len(self.trials)
            for given in fresh:
                yield given
                if len(self.trials) != count:
                    break  # the best may be another one now
            else:
                return

    def _changed(self, best: Trial, changes: dict[str, Any]) -> dict[str, Any]:
        """The best trial's settings with changes; what the rules would decide anyway is left to them."""
        usual = self.trials[0].decided
        given = {**best.given, **changes}
        return {name: given[name] for name in SETTINGS if name in given and given[name] != usual.get(name)}

    def _expected(self, given: dict[str, Any]) -> float:
        """Seconds that a trial should take, from the best so far and how much more work it is."""
        best = self.best
        # What is given no longer is as the defaults have it.
        now, then = best.values, {**self.trials[0].decided, **best.decided, **given}
        grown = [(_size(then[name]) / _size(now[name])) ** power for name, power in _WORK.items() if name in now]
        parts = _PARTS if then.get("char_ngrams") and not now.get("char_ngrams") else 1.0
        return float(best.seconds * math.prod(grown) * parts)

    def _try(self, given: dict[str, Any], draw: int) -> None:
        started = time.perf_counter()
        try:
            score, decided, failure = *self._measured(given, draw), None
        except KeyboardInterrupt:  # which may also be a `CircletError`
            raise
        except CircletError as error:
            score, decided, failure = None, {}, str(error)
        seconds = round(time.perf_counter() - started, 2)
        self.trials.append(Trial(given, score, seconds, decided, draw, failure))
        self._save()

    def _measured(self, given: dict[str, Any], draw: int) -> tuple[float, dict[str, Any]]:
        """Train without some rows and rank these: the metric, and what the preset's rules decided."""
        from circlet.metrics import evaluate
        from circlet.model import fit
        from circlet.settings import RunSettings

        learned, judged = self._split(draw)
        # Probabilities don't matter here. Without rows to calibrate by, few documents are trained on only once.
        quick = {"validation": 0, "first_layer": self.trials[0].decided.get("first_layer")} if given else {}
        named = {**quick, **{name: value for name, value in given.items() if value is not None}}
        settings = RunSettings.from_preset(self.preset, named, seed=self.seed + draw)
        settings = settings.with_values({name: None for name, value in given.items() if value is None})
        model = fit(learned, settings, device=self.device)
        depth = int(METRIC.partition("@")[2])
        ids, _ = model.top_k(judged.X if judged.X is not None else judged.texts, depth)
        score = evaluate(judged.Y, ids, k=depth, metrics=(METRIC.partition("@")[0],))[METRIC]
        flat = {each["setting"]: _as_value(each["value"]) for each in model.training.get("decided", ())}
        texts = learned.X is None
        facts = {"texts": texts, "sparse": texts or bool(sp.issparse(learned.X))}
        decided = {name: value for name, value in {**quick, **flat}.items() if name in SETTINGS}
        return round(100 * float(score), 3), {**{k: v for k, v in decided.items() if k not in given}, **facts}

    def _split(self, draw: int) -> tuple[Split, Split]:
        train = self.dataset.train
        size = min(MOST_JUDGED, max(1, round(JUDGED * train.n)))
        rows = validation_rows(train.n, size, self.seed + 1000 + draw)
        return train.take(np.delete(np.arange(train.n), rows)), train.take(rows)

    def _save(self) -> None:
        trials = [
            {**asdict(trial), "given": _plain(trial.given), "decided": _plain(trial.decided)}
            for trial in self.trials
        ]
        files.write_json(self.path, {"study": self.about, "trials": trials, "provenance": provenance()})

    def _restore(self) -> None:
        try:
            found = files.read_json(self.path)
            about = found["study"]
            trials = [
                Trial(**{**each, "given": _values(each["given"]), "decided": _values(each["decided"])})
                for each in found["trials"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self.path}: found no readable search ({error!r}); name another --output") from error
        if about != self.about:
            other = ", ".join(f"{key} {about.get(key)}" for key in self.about if about.get(key) != self.about[key])
            raise DataError(f"{self.path}: found a search with {other}; name another --output")
        self.trials = trials


def _described(given: dict[str, Any], best: dict[str, Any]) -> str:
    changed = {name: value for name, value in given.items() if name not in best or best[name] != value}
    shown = [f"{name} {_shown(value)}" for name, value in changed.items()]
    shown += [f"{name} as by default" for name in best if name not in given]
    return ", ".join(shown) or "the defaults"


def _shown(value: Any) -> str:
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _size(value: Any) -> float:
    return float(sum(value) if isinstance(value, tuple) else value)


def _as_value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _values(found: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_value(value) for name, value in found.items()}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
