"""`Tagger`: a saved model that suggests labels, on NumPy and SciPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from circlet.errors import CircletError, DataError
from circlet.folder.contents import explained, read
from circlet.folder.estimator import classes_of
from circlet.folder.layout import ESTIMATOR
from circlet.folder.manifest import located
from circlet.runtime.documents import as_rows
from circlet.runtime.model import RuntimeModel
from circlet.runtime.tagging import Tagging

__all__ = ["Tagger", "load"]


class Tagger(Tagging):
    """Tags documents with a model that was trained and saved before.

    It does what a fitted `CircletClassifier` does with documents, and needs neither torch nor scikit-learn.
    Several threads can use it at once.

    Parameters
    ----------
    model : RuntimeModel
        What scores labels; it becomes the attribute `model_`.
    classes : ndarray of shape (n_labels,)
        The labels: names, or column numbers.
    single : bool
        Whether a document has exactly one label.
    threshold : float or "auto"
        `predict` returns all labels that are at least this probable; "auto": as probable as the model's own
        threshold says.
    top_k : int, optional
        If it is set, `predict` returns this many labels, the best, whatever the threshold.
    feature_names : list of str, optional
        The names of the columns that the model was trained on.

    Attributes
    ----------
    model_ : RuntimeModel
    classes_ : ndarray of shape (n_labels,)

    Examples
    --------
    >>> import tempfile, circlet
    >>> folder = tempfile.mkdtemp()
    >>> texts, tags = ["red fox", "fast car"] * 10, [["animal"], ["vehicle"]] * 10
    >>> circlet.CircletClassifier(dim=16, hidden=(8,), epochs=20, validation=0).fit(texts, tags).save(folder)
    >>> tagger = circlet.load(folder)
    >>> labels, scores = tagger.suggest(["a red car", "the fox"], k=1)
    >>> labels.shape, str(labels[1, 0])
    ((2, 1), 'animal')
    """

    def __init__(
        self,
        model: RuntimeModel,
        classes: npt.NDArray[Any],
        *,
        single: bool = False,
        threshold: float | Literal["auto"] = "auto",
        top_k: int | None = None,
        feature_names: list[str] | None = None,
    ) -> None:
        self.model_: RuntimeModel = model
        self.classes_, self.top_k = classes, top_k
        self.threshold: float | Literal["auto"] = threshold
        self.feature_names, self._one_each = feature_names, single

    @property
    def _single(self) -> bool:
        return self._one_each

    @property
    def has_index(self) -> bool:
        return self.model_.index is not None

    @property
    def _runtime(self) -> RuntimeModel:
        return self.model_

    @property
    def _columns(self) -> list[str] | None:
        return self.feature_names

    def _rows(self, X: Any) -> Any:
        return as_rows(X, self.model_.n_features, self.feature_names)


def load(folder: Path | str) -> Tagger:
    """Load a model that `circlet train` or `CircletClassifier.save` wrote, to tag documents with it.

    Raises
    ------
    DataError
        If the folder is damaged, is not a model's, or has a model that only torch can run.
    """
    folder = Path(folder)
    with explained(folder):
        saved = read(folder, estimator=True)
        model, state = RuntimeModel.restore(folder, saved), saved.estimator
    if state is None:
        names = model.label_names
        return Tagger(model, np.arange(model.n_labels) if names is None else np.array(names, dtype=object))
    path = located(folder, saved.config, ESTIMATOR)
    tagger = Tagger(
        model,
        classes_of(path, state, model.n_features, model.n_labels, model.label_names),
        single=state["target"] == "single",
        threshold=state["parameters"].get("threshold", "auto"),
        top_k=state["parameters"].get("top_k"),
        feature_names=state["feature_names"],
    )
    try:
        tagger._least_score()
    except CircletError as error:
        raise DataError(f"{path}: {error}") from error
    return tagger
