"""`TagBatches`: a tagger for frameworks that work on batches of rows, such as Ray Data and Spark."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from circlet.errors import DataError, ParameterError
from circlet.runtime import Tagger, load
from circlet.runtime.answers import Suggestion
from circlet.threads import use_threads


class TagBatches:
    """Adds columns of labels and scores to batches of documents: a class for Ray Data's `Dataset.map_batches`.

    It loads the model once, when it is made, and needs neither torch nor Ray. Its labels are those of
    `circlet.load(model).answers` and `circlet predict`, with six significant digits.

    Parameters
    ----------
    model : Path or str
        The folder of a model of texts.
    k : int
        Labels per document, at most.
    text_column : str
        The column of a batch with the texts.
    labels_column : str
        The column to add with lists of labels, best first.
    scores_column : str
        The column to add with lists of their probabilities.
    uris_column : str
        The column to add with lists of their URIs, if labels have URIs besides their names.
    threshold : float or "auto", optional
        Leave out labels with a lower probability; "auto" is the threshold in the model, if there is one. By
        default, every document has k labels.
    favor_rare : float
        Rank rare labels higher; see `Tagger.suggest`.
    memory : int, optional
        Bytes that scores may take at a time.
    threads : int, optional
        Threads of this process: one by default, because there is usually a worker for each core. None changes
        nothing.

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
        self.tagger = load_tagger(model)
        self.with_uris = self.tagger.uris_ is not None
        #: What is added to a batch, by the field of a `Suggestion`.
        self.columns = {"label": labels_column, "score": scores_column}
        if self.with_uris:
            self.columns["uri"] = uris_column
        self.options: dict[str, Any] = {"k": k, "threshold": threshold, "favor_rare": favor_rare, "memory": memory}
        # Wrong options fail here, and not in the first batch of each worker.
        self.tagger.answers(["a document"], **self.options)

    def __call__(self, batch: Any) -> Any:
        """Return a batch with more columns: a dictionary of arrays, a pyarrow table or a pandas data frame.

        Raises
        ------
        DataError
            If the batch has no column of texts, a row has no text, or the batch has a column to add.
        """
        arrow = hasattr(batch, "column_names")
        names = list(batch.column_names if arrow else batch)
        if self.text_column not in names:
            raise DataError(f"found a batch with the columns {names}; wanted {self.text_column!r} among them")
        for kind, name in self.columns.items():
            if name in names:
                raise DataError(
                    f"found a column {name!r} in the batch, which would be lost; wanted another {kind}s_column"
                )
        column = batch[self.text_column]
        texts = column.to_pylist() if arrow else column.tolist() if hasattr(column, "tolist") else list(column)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                what = f"{self.text_column!r} of type {type(text).__name__} in row {row} of a batch"
                raise DataError(f"found {what}; wanted a string")
        answers = self.tagger.answers(texts, **self.options)
        return self._with_arrow(batch, answers) if arrow else self._with_lists(batch, answers)

    def _with_arrow(self, table: Any, answers: list[list[Suggestion]]) -> Any:
        import pyarrow

        ends = pyarrow.array(np.cumsum([0, *map(len, answers)]), pyarrow.int32())
        kinds = {"label": None if self.tagger.named else pyarrow.int64(), "score": pyarrow.float32()}
        every = list(chain.from_iterable(answers))
        for field, name in self.columns.items():
            values = [getattr(each, field) for each in every]
            column = pyarrow.array(values, kinds.get(field) or pyarrow.string())
            table = table.append_column(name, pyarrow.ListArray.from_arrays(ends, column))
        return table

    def _with_lists(self, batch: Any, answers: list[list[Suggestion]]) -> Any:
        columns = {}
        for field, name in self.columns.items():
            lists = ([getattr(each, field) for each in answer] for answer in answers)
            # np.array would make a matrix of lists of the same length.
            columns[name] = np.fromiter(lists, dtype=object, count=len(answers))
        return {**batch, **columns} if isinstance(batch, dict) else batch.assign(**columns)


def load_tagger(model: Path | str) -> Tagger:
    """Load a tagger; raise `DataError` unless it takes texts."""
    tagger = load(model)
    if tagger.model_.vectorizer is None:
        raise DataError(f"{model}: found a model of feature rows; wanted one that was trained on texts")
    return tagger
