"""What a tagger does with documents, with torch or without: suggestions, scores, probabilities, labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import check_ranking, check_share, is_integer
from circlet.errors import CircletError, DataError, ParameterError
from circlet.folder.contents import classes_of, explained, read
from circlet.folder.layout import ESTIMATOR, located
from circlet.runtime.decisions import best, cut, shares
from circlet.runtime.documents import as_many, as_rows, as_texts, count
from circlet.runtime.explaining import Explaining
from circlet.runtime.model import RuntimeModel

__all__ = ["Tagger", "Tagging", "TagsDocuments", "load", "mask_of"]

#: The threshold of a model that stores none.
UNKNOWN = 0.5


class TagsDocuments(Protocol):
    """What tagging needs from a model: `circlet.model.Model` has it, and `circlet.runtime.RuntimeModel`."""

    vectorizer: Any
    calibration: tuple[float, float]
    threshold: float | None
    label_uris: list[str] | None

    def gain(self, favor_rare: float) -> Any:
        """What labels are ranked by if rare ones are favored, with an attribute `weights`; None for 0."""

    def top_k(
        self,
        documents: Any,
        k: int,
        *,
        memory: int | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        threshold: float | None = None,
        favor_rare: float = 0.0,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Ids and scores of the k best labels of each document."""

    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        """Scores of all labels, some documents at a time."""

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of scores."""

    def least_score(self, probability: float) -> float | None:
        """A score that no label of at least this probability is below; None for 0."""


class Tagging(Explaining):
    """The methods of a tagger that use a model.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels: names, or column numbers of an indicator.
    threshold : float or "auto"
        `predict` returns the labels that are at least this probable; "auto" is what training found to be best, or
        0.5 if it held no rows out.
    top_k : int or None
        `predict` returns this many labels, the most probable, whatever the threshold.
    """

    model_: TagsDocuments
    classes_: npt.NDArray[Any]
    threshold: float | Literal["auto"]
    top_k: int | None

    @abstractmethod
    def _rows(self, X: Any) -> Any:
        """Feature rows, checked to be like those that the model was trained on."""

    @property
    def uris_(self) -> list[str] | None:
        """The URIs of the labels, in the order of `classes_`; None if labels have nothing but their names."""
        self._check_ready()
        return self.model_.label_uris

    def suggest(
        self,
        X: Any,
        k: int = 5,
        *,
        allowed: Collection[Any] | None = None,
        threshold: float | Literal["auto"] | None = None,
        memory: int | None = None,
        favor_rare: float = 0.0,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """The k best labels of each document, best first: the most probable ones, unless rare ones are favored.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Or one document: a str, or an array of shape (n_features,).
        k : int
        allowed : collection of labels, optional
            Suggest only these.
        threshold : float or "auto", optional
            Leave out labels that are less probable; "auto" is what training found to be best, or 0.5 if it held no
            rows out. By default none is left out, and every document has k labels.
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.codebooks.decoding.top_k`.
        favor_rare : float
            τ between 0 and 1: rank labels by p · w^τ, with a label's probability p and its inverse propensity w,
            which is higher for rarer labels. With 0 the most probable labels come first; with 1, those of the
            highest expected PSP. The scores are probabilities all the same.

        Returns
        -------
        labels : ndarray of shape (n, min(k, n_labels))
            Names if labels have names, else column numbers; n is 1 for one document. With `allowed` or
            `threshold`, the dtype is object, with None where they leave no label.
        scores : ndarray of shape (n, min(k, n_labels))
            Calibrated probabilities; 0 where there is no label.
        """
        self._check_ready()
        if not is_integer(k, 1):
            raise ParameterError(f"`k` must be an integer >= 1, got {k!r}")
        if isinstance(threshold, str) and threshold == "auto":
            threshold = self._stored_threshold()
        if threshold is not None:
            check_share("threshold", threshold, '"auto" or ')
        gain, least = self.model_.gain(favor_rare), threshold or 0.0
        mask = None if allowed is None else mask_of(allowed, self.classes_)
        documents = self._documents(as_many(X))
        if self._single:
            check_ranking(len(self.classes_), memory, None, None)
            slope, weights = self.model_.calibration[0], None if gain is None else gain.weights
            decide = partial(best, k=int(k), allowed=mask, threshold=least, weights=weights)
            found = [decide(shares(block, slope)) for block in self.model_.score_blocks(documents)]
            ids, chances = (np.concatenate(parts) for parts in zip(*found, strict=True))
        else:
            ids, scores = self.model_.top_k(
                documents,
                int(k),
                memory=memory,
                allowed=mask,
                threshold=self.model_.least_score(least),
                favor_rare=favor_rare,
            )
            chances = self.model_.probabilities(scores)
        labels = self.classes_[ids]
        if mask is None and threshold is None:
            return labels, chances
        none = (ids < 0) | (chances < least)
        labels = labels.astype(object)
        labels[none], chances[none] = None, 0
        return labels, chances

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Scores of all labels.

        The result is dense and takes 4 bytes per document and label. With many labels, pass few documents at a
        time, or use `suggest` or `predict`, whose memory does not grow with the documents.

        Returns
        -------
        ndarray of shape (n, n_labels)
            With one of two classes per row, the shape is (n,) and scores above 0 mean the second class.
        """
        scores = self._all_scores(X)
        if self._single and len(self.classes_) <= 2:
            return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores[:, 0]
        return scores

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of all labels, dense as in `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_labels)
            With one class per row, they add up to 1: the probabilities given that exactly one class is true.
        """
        scores = self._all_scores(X)
        if self._single:
            return shares(scores, self.model_.calibration[0])
        return self.model_.probabilities(scores)

    def predict(self, X: Any) -> Any:
        """Labels of documents; `predict_labels` has their names.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Or one text, which is a batch of one, as everywhere: the result has one row.

        Returns
        -------
        csr_matrix of shape (n, n_labels), float32
            Ones for labels that are at least as probable as `threshold` or, if `top_k` is set, for that many most
            probable labels; columns are in the order of `classes_`. With one class per row, an ndarray of shape
            (n,) of the most probable classes.
        """
        self._check_ready()
        least = self._least_score()
        documents = self._documents(X)
        if self._single:
            return self.classes_[self._best_labels(documents)]
        if self.top_k is not None:
            ids, _ = self.model_.top_k(documents, self.top_k)
            ends = np.arange(len(ids) + 1) * ids.shape[1]
            ones, shape = np.ones(ids.size, dtype=np.float32), (len(ids), len(self.classes_))
            marked = sp.csr_matrix((ones, ids.ravel(), ends), shape=shape)
            marked.sort_indices()
            return marked
        blocks = self.model_.score_blocks(documents)
        found = [sp.csr_matrix(block >= least, dtype=np.float32) for block in blocks]
        return sp.vstack(found, format="csr", dtype=np.float32)

    def predict_labels(self, X: Any) -> list[list[Any]]:
        """The labels of documents that `predict` marks, as lists of names (or of column numbers), best first.

        Returns
        -------
        list of list
            A list for each document, which may be empty; of one document, a list with one list.
        """
        self._check_ready()
        least = self._least_score()
        documents = self._documents(X)
        if self._single:
            return [[label] for label in self.classes_[self._best_labels(documents)].tolist()]
        if self.top_k is not None:
            ids, _ = self.model_.top_k(documents, self.top_k)
            return [row.tolist() for row in self.classes_[ids]]
        found: list[list[Any]] = []
        for block in self.model_.score_blocks(documents):
            rows, columns = np.nonzero(block >= least)
            order = np.lexsort((columns, -block[rows, columns], rows))
            starts = np.searchsorted(rows, np.arange(1, len(block)))
            found += [part.tolist() for part in np.split(self.classes_[columns[order]], starts)]
        return found if count(documents) else []

    def inverse_transform(self, Y: Any) -> list[list[Any]]:
        """The labels that the rows of an indicator mark, such as that of `predict`, in the order of `classes_`.

        Parameters
        ----------
        Y : sparse or dense matrix of shape (n, n_labels)
        """
        self._check_ready()
        marked = sp.csr_matrix(Y, copy=True)
        if marked.shape[1] != len(self.classes_):
            raise DataError(f"found an indicator of {marked.shape[1]} labels; wanted {len(self.classes_)}")
        marked.eliminate_zeros()
        marked.sort_indices()
        if not marked.shape[0]:
            return []
        return [part.tolist() for part in np.split(self.classes_[marked.indices], marked.indptr[1:-1])]

    def _documents(self, X: Any) -> Any:
        """A list of texts, or feature rows, checked to be like those that the model was trained on."""
        texts = as_texts([X] if isinstance(X, str) else X)
        if texts is None and self.model_.vectorizer is not None:
            if getattr(X, "shape", (len(X),) if isinstance(X, (list, tuple)) else None) != (0,):
                raise DataError(
                    "found feature rows; this classifier was fitted on texts and wants a list of texts"
                )
            texts = []
        if texts is None:
            return self._rows(X)
        if self.model_.vectorizer is None:
            raise DataError("found texts; this classifier was fitted on feature rows and wants rows")
        return texts

    def _all_scores(self, X: Any) -> npt.NDArray[np.float32]:
        self._check_ready()
        documents = self._documents(X)
        scores, start = np.empty((count(documents), len(self.classes_)), dtype=np.float32), 0
        for block in self.model_.score_blocks(documents):
            scores[start : start + len(block)] = block
            start += len(block)
        return scores

    def _best_labels(self, documents: Any) -> npt.NDArray[np.int64]:
        blocks = self.model_.score_blocks(documents)
        return np.concatenate([block.argmax(axis=1) for block in blocks])

    def _least_score(self) -> float:
        """The score whose probability is `threshold`."""
        if self.top_k is not None and not is_integer(self.top_k, 1):
            raise ParameterError(f"`top_k` must be None or an integer >= 1, got {self.top_k!r}")
        model = getattr(self, "model_", None)
        threshold: Any = self.threshold
        if isinstance(threshold, str) and threshold == "auto":
            threshold = UNKNOWN if model is None else self._stored_threshold()
        return cut(threshold, (1.0, 0.0) if model is None else model.calibration)

    def _stored_threshold(self) -> float:
        return UNKNOWN if self.model_.threshold is None else self.model_.threshold


def mask_of(labels: Any, classes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which classes are among these labels, `(n_labels,)`."""
    if isinstance(labels, str) or not isinstance(labels, (Collection, np.ndarray)):
        raise ParameterError(f"`allowed` must be a collection of labels, got {labels!r}")
    try:
        given = set(labels.tolist() if isinstance(labels, np.ndarray) else labels)
    except TypeError as error:
        raise DataError(
            f"`allowed`: found a label that is a collection ({error}); wanted text or integers"
        ) from error
    known = classes.tolist()
    unknown = given.difference(known)
    if unknown:
        raise ParameterError(f"`allowed` has {unknown.pop()!r}, which is none of the {len(known)} labels")
    return np.fromiter((label in given for label in known), dtype=np.bool_, count=len(known))


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
