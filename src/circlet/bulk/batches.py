"""`TagBatches`: a tagger for frameworks that call something with a batch of rows, such as Ray Data and Spark."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError, ParameterError
from circlet.runtime import load
from circlet.threads import use_threads

__all__ = ["Suggestions", "TagBatches"]


@dataclass(frozen=True)
class Suggestions:
    """The labels of some documents, one document after the other.

    Attributes
    ----------
    labels, scores : ndarray
        Of all documents, best first within each. Labels are names or integers; other classes are text.
    ends : int64 ndarray of shape (n + 1,)
        Those of document i are from `ends[i]` to `ends[i + 1]`.
    uris : object ndarray, optional
        The URIs of the labels, if these have some besides their names.
    """

    labels: npt.NDArray[Any]
    scores: npt.NDArray[np.float32]
    ends: npt.NDArray[np.int64]
    uris: npt.NDArray[Any] | None = None

    def lists(self) -> dict[str, list[list[Any]]]:
        """Labels, URIs if there are some, and scores of each document."""
        ranges = [slice(start, end) for start, end in pairwise(self.ends.tolist())]
        every = {"labels": self.labels, "uris": self.uris, "scores": self.scores}
        values = {name: found.tolist() for name, found in every.items() if found is not None}
        return {name: [found[each] for each in ranges] for name, found in values.items()}


class TagBatches:
    """Adds columns of labels and scores to batches of documents: a class for Ray Data's `Dataset.map_batches`.

    It loads the model once, when it is made, and needs neither torch nor Ray. What it suggests is what
    `circlet.load(model).suggest` does.

    Parameters
    ----------
    model : Path or str
        A folder that `circlet train` or `CircletClassifier.save` wrote, with a model of texts.
    k : int
        Labels per document, at most.
    text_column : str
        The column of a batch with the texts.
    labels_column : str
        The column to add with lists of labels, best first.
    scores_column : str
        The column to add with lists of their probabilities.
    uris_column : str
        The column to add with lists of their URIs, if the model's labels have some besides their names.
    threshold : float or "auto", optional
        Leave out labels that are less probable; "auto" is the threshold that the model stores, or 0.5 if it stores
        none. By default none is left out, and every document has k labels.
    favor_rare : float
        Rank rare labels higher; see `Tagger.suggest`.
    memory : int, optional
        Bytes that scores may take at a time.
    threads : int, optional
        Threads that this process may use: one by default, because there is usually a worker for each core. None
        changes nothing.

    Examples
    --------
    >>> import tempfile, circlet
    >>> folder = tempfile.mkdtemp()
    >>> texts, tags = ["red fox", "fast car"] * 10, [["animal"], ["vehicle"]] * 10
    >>> circlet.CircletClassifier(dim=16, hidden=(8,), epochs=20, validation=0).fit(texts, tags).save(folder)
    >>> tag = TagBatches(folder, k=1)
    >>> tag({"text": np.array(["the fox", "a car"])})["labels"].tolist()
    [['animal'], ['vehicle']]
    """

    def __init__(
        self,
        model: Path | str,
        k: int = 5,
        *,
        text_column: str = "text",
        labels_column: str = "labels",
        scores_column: str = "scores",
        uris_column: str = "uris",
        threshold: float | Literal["auto"] | None = None,
        favor_rare: float = 0.0,
        memory: int | None = None,
        threads: int | None = 1,
    ) -> None:
        columns = [text_column, labels_column, scores_column, uris_column]
        if len(set(columns)) < len(columns):
            raise ParameterError(f"found the columns {', '.join(map(repr, columns))}; wanted four different names")
        if threads is not None:
            use_threads(threads)
        self.text_column = text_column
        self.tagger = load(model)
        if self.tagger.model_.vectorizer is None:
            raise DataError(f"{model}: found a model of feature rows; wanted one that was trained on texts")
        self.named = self.tagger.classes_.dtype.kind not in "iu"
        names, uris = self.tagger.model_.label_names, self.tagger.uris_
        #: The URI of each label, if labels have some besides their names, all of which differ.
        self.uris = None if names is None or uris is None else dict(zip(names, uris, strict=True))
        #: What is added to a batch, by the name that `Suggestions.lists` gives it.
        self.columns = {"labels": labels_column, "scores": scores_column}
        if self.uris is not None:
            self.columns["uris"] = uris_column
        self.options: dict[str, Any] = {"k": k, "threshold": threshold, "favor_rare": favor_rare, "memory": memory}
        self.suggest(["a document"])  # wrong options should fail here, and not in the first batch of each worker

    def suggest(self, texts: list[str]) -> Suggestions:
        """The labels of texts."""
        if not texts:
            labels, scores, ends = self.tagger.classes_[:0], np.empty(0, np.float32), np.zeros(1, np.int64)
            return Suggestions(labels, scores, ends, None if self.uris is None else labels)
        labels, scores = self.tagger.suggest(texts, **self.options)
        kept = np.ones(labels.shape, dtype=np.bool_)
        if self.options["threshold"] is not None:
            kept = np.array(labels != None, dtype=np.bool_)  # noqa: E711 — element by element
        ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        labels = labels[kept]
        if self.tagger.classes_.dtype.kind in "fb":
            labels = labels.astype(str)
        uris = None
        if self.uris is not None:
            uris = np.array([self.uris[label] for label in labels.tolist()], dtype=object)
        return Suggestions(labels, scores[kept], ends, uris)

    def __call__(self, batch: Any) -> Any:
        """Add columns to a batch: a dictionary of arrays, a pyarrow table or a pandas data frame; gives the same.

        Raises
        ------
        DataError
            If the batch has no column of texts, a row has no text, or a column to add is there already.
        """
        arrow = hasattr(batch, "column_names")
        names = list(batch.column_names if arrow else batch)
        if self.text_column not in names:
            raise DataError(f"found a batch with the columns {names}; wanted {self.text_column!r} among them")
        for kind, name in self.columns.items():
            if name in names:
                raise DataError(
                    f"found a column {name!r} in the batch, which would be lost; wanted another {kind}_column"
                )
        column = batch[self.text_column]
        texts = column.to_pylist() if arrow else column.tolist() if hasattr(column, "tolist") else list(column)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                what = f"{self.text_column!r} of type {type(text).__name__} in row {row} of a batch"
                raise DataError(f"found {what}; wanted a string")
        found = self.suggest(texts)
        return self._with_arrow(batch, found) if arrow else self._with_lists(batch, found)

    def _with_arrow(self, table: Any, found: Suggestions) -> Any:
        import pyarrow

        ends = pyarrow.array(found.ends, pyarrow.int32())
        kinds = {"labels": None if self.named else pyarrow.int64(), "scores": pyarrow.float32()}
        for kind, name in self.columns.items():
            values = pyarrow.array(getattr(found, kind).tolist(), kinds.get(kind) or pyarrow.string())
            table = table.append_column(name, pyarrow.ListArray.from_arrays(ends, values))
        return table

    def _with_lists(self, batch: Any, found: Suggestions) -> Any:
        lists = found.lists()
        columns = {
            # np.array would make a matrix of lists of the same length.
            name: np.fromiter(lists[kind], dtype=object, count=len(lists[kind]))
            for kind, name in self.columns.items()
        }
        return {**batch, **columns} if isinstance(batch, dict) else batch.assign(**columns)
