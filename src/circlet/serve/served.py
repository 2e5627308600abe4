"""A served model: its answers, its description, and the swap to another version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet import files
from circlet.data.feedback import FeedbackLog
from circlet.errors import ParameterError
from circlet.runtime import Tagger, load
from circlet.runtime.answers import Suggestion
from circlet.serve.feedback import Learner, why_not
from circlet.storage.contents import metrics_of
from circlet.storage.layout import CONFIG, located, read_config


class Options(NamedTuple):
    """Options for tagging; documents with equal options are tagged together."""

    k: int
    threshold: float | None = None
    favor_rare: float = 0.0
    allowed: tuple[str, ...] | None = None


class Snapshot:
    """One version of a model. A request keeps its snapshot, even if the served version changes meanwhile."""

    def __init__(self, tagger: Tagger, version: str) -> None:
        self.tagger, self.version = tagger, version

    @cached_property
    def names(self) -> list[str]:
        """Names of the labels, or their numbers if they have no names."""
        return [str(label) for label in self.tagger.classes_.tolist()]

    @cached_property
    def labels(self) -> dict[str, Any]:
        """The tagger's labels, by name and by URI."""
        own, uris = self.tagger.classes_.tolist(), self.tagger.model_.label_uris
        return dict(zip(self.names, own, strict=True)) | dict(zip(uris or self.names, own, strict=True))

    @cached_property
    def search(self) -> LabelSearch:
        """Finds labels by a part of their names."""
        return LabelSearch(self.names, self.tagger.model_.label_counts)

    @property
    def takes(self) -> str:
        """What the model tags: texts or rows."""
        return "rows" if self.tagger.model_.vectorizer is None else "texts"

    def suggest(self, options: Options, documents: list[Any]) -> list[list[Suggestion]]:
        """Return the labels of texts, or of rows given as numbers by column, best first."""
        return self.tagger.answers(
            documents if self.takes == "texts" else _csr(documents, self.tagger.model_.n_features),
            options.k,
            allowed=None if options.allowed is None else [self.labels[name] for name in options.allowed],
            threshold=options.threshold,
            favor_rare=options.favor_rare,
        )

    def suggesting(self, options: Options) -> tuple[Hashable, Any]:
        """Return key and function for `circlet.serve.batching`."""
        return (id(self), options), partial(self.suggest, options)


class Served:
    """A model under its public name; `about` has facts about its folder: `bytes`, `parts`, `modified`."""

    def __init__(self, name: str, tagger: Tagger, version: str, about: dict[str, Any]) -> None:
        self.name, self.about, self.current = name, about, Snapshot(tagger, version)
        #: If the model learns from feedback.
        self.learner: Learner | None = None

    @classmethod
    def load(cls, folder: Path, name: str) -> Served:
        """Load a model from its folder."""
        tagger, config = load(folder), read_config(folder)
        paths = {part: located(folder, config, part) for part in (CONFIG, *config["files"])}
        parts = [{"name": part, "bytes": files.check_regular(path)} for part, path in paths.items()]
        modified = datetime.fromtimestamp((folder / CONFIG).stat().st_mtime, timezone.utc)
        about = {
            "bytes": sum(part["bytes"] for part in parts),
            "parts": parts,
            "modified": modified.isoformat(timespec="seconds"),
        }
        version = str(config["sha256"])[:12]
        return cls(name, tagger, version, about)

    def swap(self, tagger: Tagger, version: str) -> None:
        """Serve another version; requests in flight finish with the one they started with."""
        self.current = Snapshot(tagger, version)

    def learn(self, folder: Path) -> None:
        """Start to learn from feedback; raise a `CircletError` if that is impossible."""
        if reason := why_not(folder):
            raise ParameterError(f"--learn: {reason}")
        place, before = folder.resolve(), self.current
        # Beside the model's folder, which may be replaced as a whole.
        log = FeedbackLog(place.with_name(f"{place.name}.feedback.jsonl"))
        self.learner = Learner(folder, log, on_swap=self.swap)
        if self.current is before:  # nothing was learned earlier
            self.swap(before.tagger, self.learner.state()["version"])

    def summary(self) -> dict[str, Any]:
        """Return the model's entry in a list of models."""
        now = self.current
        return {
            "id": self.name,
            "labels": now.tagger.model_.n_labels,
            "documents": now.tagger.model_.documents_seen,
            "takes": now.takes,
            "version": now.version,
        }

    def card(self) -> dict[str, Any]:
        """Return everything about the model."""
        now = self.current
        model, threshold = now.tagger.model_, now.tagger.ranking_threshold()
        metrics = [name for record in model.history for name in metrics_of(record)]
        return {
            **self.summary(),
            "features": model.n_features,
            "bytes": self.about["bytes"],
            "parts": self.about["parts"],
            "parameters": model.parameter_counts,
            "history": model.history,
            "metric": metrics[0] if metrics else "nDCG@5",
            "decided": [
                {key: each[key] for key in ("setting", "value", "why")}
                for each in model.training.get("decided", [])
            ],
            "training": {key: value for key, value in model.training.items() if key != "decided"},
            "has_index": now.tagger.has_index,
            "can_learn": self.learner is not None,
            "threshold": threshold.value or 0.0,
            "threshold_from": threshold.origin,
        }


def _csr(documents: list[dict[int, float]], n_features: int) -> sp.csr_matrix:
    ends = np.cumsum([0, *map(len, documents)])
    columns = np.fromiter((column for row in documents for column in row), dtype=np.int64, count=ends[-1])
    numbers = (value for row in documents for value in row.values())
    with np.errstate(over="ignore"):  # too large numbers become infinite, and raise an error
        values = np.fromiter(numbers, dtype=np.float64, count=ends[-1]).astype(np.float32)
    return sp.csr_matrix((values, columns, ends), shape=(len(documents), n_features))


class LabelSearch:
    """Searches the names of labels, most frequent first, as one text, at the speed of C.

    `counts` has the number of documents with each label, if they are known.

    >>> search = LabelSearch(["cats", "Cat", "wildcat", "dog"], np.array([1, 5, 9, 2]))
    >>> search.find("cat", 2)
    ([{'label': 'Cat', 'documents': 5}, {'label': 'cats', 'documents': 1}], 3)
    """

    def __init__(self, names: list[str], counts: npt.NDArray[np.int64] | None) -> None:
        order = range(len(names)) if counts is None else np.argsort(-counts, kind="stable").tolist()
        self._names = [names[i] for i in order]
        self._counts = [None] * len(names) if counts is None else [int(counts[i]) for i in order]
        folded = [name.casefold().replace("\n", " ") for name in self._names]
        self._text = "\n" + "\n".join(folded) + "\n"
        #: Start of each name in the text.
        self._starts = list(accumulate((len(name) + 1 for name in folded[:-1]), initial=1))
        self._ranked = lru_cache(maxsize=64)(self._rank)

    def find(self, query: str, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return labels whose names start with the query, then those that contain it, and their total number."""
        found = self._ranked(query.casefold().strip().replace("\n", " "))
        return [{"label": self._names[i], "documents": self._counts[i]} for i in found[:limit]], len(found)

    def _rank(self, query: str) -> range | list[int]:
        if not query:
            return range(len(self._names))
        first = list(self._lines_with("\n" + query, 1))
        known = set(first)
        return first + [line for line in self._lines_with(query, 0) if line not in known]

    def _lines_with(self, part: str, offset: int) -> Iterator[int]:
        """Yield the name at `offset` characters after each match of `part`, each name once."""
        at = self._text.find(part)
        while at >= 0:
            line = bisect_right(self._starts, at + offset) - 1
            yield line
            end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
            at = self._text.find(part, end)
