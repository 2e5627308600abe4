"""`Tagger` suggests, predicts and explains labels with a model, for all interfaces.

A tagger decides the number of labels, the threshold, which labels are allowed, whether rare ones are favored, the
digits of scores, and the names of labels. Commands, the service, Annif and the estimator only present the results.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import check_ranking, check_share, is_integer
from circlet.errors import CircletError, DataError, ParameterError
from circlet.runtime.answers import Suggestion, rounded_rows
from circlet.runtime.documents import as_many, as_rows, as_texts, count
from circlet.runtime.model import RuntimeModel
from circlet.storage.contents import Contents, classes_of, read
from circlet.storage.layout import ESTIMATOR, located
from circlet.storage.model import explained

if TYPE_CHECKING:
    from circlet.runtime.explain import Explanation

__all__ = ["Tagger", "Threshold", "load"]


class Threshold(NamedTuple):
    """The probability that labels must reach, and its origin.

    The caller gave it, or training stored it in the model. Otherwise rankings have none, and sets of labels 0.5.
    """

    value: float | None
    origin: Literal["asked", "stored", "default", "none"]


class Tagger:
    """Tags documents with a saved model, like a fitted `CircletClassifier`, but without torch and scikit-learn.

    Several threads can use it at once.

    Parameters
    ----------
    model : RuntimeModel or circlet.model.Model
        The model, which becomes the attribute `model_`.
    classes : ndarray of shape (n_labels,), optional
        The labels: names, or column numbers. By default those of the model.
    single : bool
        Whether a document has exactly one label.
    threshold : float or "auto"
        `predict` returns all labels with at least this probability; "auto" is the threshold stored by training, or
        0.5 if there is none.
    top_k : int, optional
        If set, `predict` returns the `top_k` best labels, whatever the threshold.
    feature_names : list of str, optional
        Names of the feature columns in training.

    Attributes
    ----------
    model_ : RuntimeModel or circlet.model.Model
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
        model: Any,
        classes: npt.NDArray[Any] | None = None,
        *,
        single: bool = False,
        threshold: float | Literal["auto"] = "auto",
        top_k: int | None = None,
        feature_names: list[str] | None = None,
    ) -> None:
        if classes is None:
            names = model.label_names
            classes = np.arange(model.n_labels) if names is None else np.array(names, dtype=object)
        self.model_: Any = model
        self.classes_: npt.NDArray[Any] = classes
        self.threshold, self.top_k, self.feature_names, self._one_each = threshold, top_k, feature_names, single

    # Overridden by the classifier, which is a tagger once it is fitted.

    @property
    def _model(self) -> Any:
        """The model that computes the answers."""
        return self.model_

    @property
    def _single(self) -> bool:
        return self._one_each

    @property
    def _columns(self) -> list[str] | None:
        return self.feature_names

    def _check_ready(self) -> None:
        """Raise an error if there is no model yet."""

    def _rows(self, X: Any) -> Any:
        """Check that feature rows are like the training rows, and return them."""
        return as_rows(X, self.model_.n_features, self.feature_names)

    # Names of labels, and thresholds

    @property
    def uris_(self) -> list[str] | None:
        """URIs of the labels, in the order of `classes_`; None if labels have no URIs."""
        self._check_ready()
        uris: list[str] | None = self.model_.label_uris
        return uris

    @property
    def named(self) -> bool:
        """Whether labels are names, not numbers."""
        return self.classes_.dtype.kind not in "iu"

    @property
    def has_index(self) -> bool:
        """Whether `similar` can be used."""
        self._check_ready()
        return self.model_.index is not None

    def ranking_threshold(
        self, asked: float | Literal["auto"] | None = "auto", *, favor_rare: float = 0.0
    ) -> Threshold:
        """Return the threshold of a ranking: `asked`, or with "auto" the one that training stored in the model.

        If rare labels are favored, "auto" is none: training chose its threshold for labels ranked by probability.
        """
        if asked is None or (isinstance(asked, str) and asked == "auto"):
            stored = None if asked is None or favor_rare else self.model_.threshold
            return Threshold(stored, "none" if stored is None else "stored")
        check_share("threshold", asked, '"auto" or ')
        return Threshold(float(asked), "asked")

    def labels_threshold(self, asked: float | None = None) -> Threshold:
        """Return the threshold of sets of labels: `asked`, the tagger's own, the stored one, or 0.5."""
        own: Any = self.threshold if asked is None else asked
        if not (isinstance(own, str) and own == "auto"):
            check_share("threshold", own)
            return Threshold(float(own), "asked")
        model = getattr(self, "model_", None)  # a classifier checks its parameters before it has one
        stored = None if model is None else model.threshold
        return Threshold(0.5, "default") if stored is None else Threshold(stored, "stored")

    # Rankings

    def ranked(
        self,
        X: Any,
        k: int = 5,
        *,
        allowed: Collection[Any] | npt.NDArray[np.bool_] | None = None,
        threshold: float | Literal["auto"] | None = None,
        memory: int | None = None,
        favor_rare: float = 0.0,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Suggest labels by their positions in `classes_`, with −1 where there is no label; see `suggest`."""
        self._check_ready()
        _check_k(k)
        least = self.ranking_threshold(threshold, favor_rare=favor_rare).value or 0.0
        mask = None if allowed is None else mask_of(allowed, self.classes_)
        model, documents = self._model, self._documents(as_many(X))
        gain = model.gain(favor_rare)
        if self._single:
            check_ranking(len(self.classes_), memory, None, None)
            weights = None if gain is None else gain.weights
            found = [
                _best(_shares(block, model), int(k), mask, least, weights)
                for block in model.score_blocks(documents)
            ]
            ids, chances = (np.concatenate(parts) for parts in zip(*found, strict=True))
            return ids, chances
        ids, scores = model.top_k(
            documents,
            int(k),
            memory=memory,
            allowed=mask,
            threshold=model.least_score(least),
            favor_rare=favor_rare,
        )
        chances = model.probabilities(scores)
        if mask is None and not least:
            return ids, chances
        none = (ids < 0) | (chances < least)
        return np.where(none, -1, ids), np.where(none, np.float32(0), chances)

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
        """Return the k best labels of each document, best first: the most probable, unless rare ones are favored.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Or one document: a str, or an array of shape (n_features,).
        k : int
        allowed : collection of labels, optional
            Suggest only these.
        threshold : float or "auto", optional
            Leave out labels below this probability; "auto" is the threshold that training stored in the model, if
            any. By default no label is left out, and every document gets k labels.
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.scoring.ranking.top_k`.
        favor_rare : float
            τ between 0 and 1: rank labels by p · w^τ, with a label's probability p and its inverse propensity w,
            which is higher for rarer labels. With 0, the most probable labels come first; with 1, those with the
            highest expected PSP. In both cases, the scores are probabilities.

        Returns
        -------
        labels : ndarray of shape (n, min(k, n_labels))
            Names if labels have names, else column numbers. With `allowed` or `threshold`, the dtype is object,
            with None where they leave no label.
        scores : ndarray of shape (n, min(k, n_labels))
            Calibrated probabilities; 0 where there is no label.
        """
        ids, chances = self.ranked(
            X, k, allowed=allowed, threshold=threshold, memory=memory, favor_rare=favor_rare
        )
        labels = self.classes_[ids]
        if allowed is None and threshold is None:
            return labels, chances
        labels = labels.astype(object)
        labels[ids < 0] = None
        return labels, chances

    def answers(
        self,
        X: Any,
        k: int = 5,
        *,
        allowed: Collection[Any] | None = None,
        threshold: float | Literal["auto"] | None = "auto",
        memory: int | None = None,
        favor_rare: float = 0.0,
    ) -> list[list[Suggestion]]:
        """Suggest labels in a form for output: a list for each document, best first.

        Labels are names or integers, and other classes are text. The default threshold is the stored one, and
        scores have the digits of `circlet.runtime.answers.rounded`.
        """
        ids, chances = self.ranked(
            X, k, allowed=allowed, threshold=threshold, memory=memory, favor_rare=favor_rare
        )
        names, uris = self.classes_[ids], self.model_.label_uris
        if names.dtype.kind in "fb":
            names = names.astype(str)
        rows = zip(ids.tolist(), names.tolist(), rounded_rows(chances), strict=True)
        return [
            [
                Suggestion(name, score, None if uris is None else uris[label])
                for label, name, score in zip(*row, strict=True)
                if label >= 0  # `allowed` or `threshold` may leave places empty
            ]
            for row in rows
        ]

    # Scores, and sets of labels

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, `(n, n_labels)`.

        With many labels, pass few documents at a time, or use `suggest` or `predict`, since the result is dense.
        With one of two classes per row, the shape is (n,), and scores above 0 mean the second class.
        """
        scores = self._all_scores(X)
        if self._single and len(self.classes_) <= 2:
            return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores[:, 0]
        return scores

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return calibrated probabilities of all labels, dense as in `decision_function`.

        With one class per row, they add up to 1: the probabilities if exactly one class is true.
        """
        scores = self._all_scores(X)
        chances: npt.NDArray[np.float32] = (
            _shares(scores, self._model) if self._single else self._model.probabilities(scores)
        )
        return chances

    def predict(self, X: Any) -> Any:
        """Predict the labels of documents as an indicator matrix; `predict_labels` returns their names.

        Returns
        -------
        csr_matrix of shape (n, n_labels), float32
            Ones for labels with a probability of at least `threshold` or, if `top_k` is set, for the `top_k` most
            probable labels; columns are in the order of `classes_`. With one class per row, an ndarray of shape
            (n,) with the most probable classes.
        """
        ids, ends = self._sets(X)
        if self._single:
            return self.classes_[ids]
        ones, shape = np.ones(len(ids), dtype=np.float32), (len(ends) - 1, len(self.classes_))
        marked = sp.csr_matrix((ones, ids, ends), shape=shape)
        marked.sort_indices()
        return marked

    def predict_labels(self, X: Any) -> list[list[Any]]:
        """Return the labels that `predict` marks, as lists of names (or column numbers), best first."""
        return self._named_sets(*self._sets(X))

    def inverse_transform(self, Y: Any) -> list[list[Any]]:
        """Convert an indicator matrix, as from `predict`, to lists of labels, in the order of `classes_`."""
        self._check_ready()
        marked = sp.csr_matrix(Y, copy=True)
        if marked.shape[1] != len(self.classes_):
            raise DataError(f"found an indicator of {marked.shape[1]} labels; wanted {len(self.classes_)}")
        marked.eliminate_zeros()
        marked.sort_indices()
        return self._named_sets(marked.indices, marked.indptr)

    def _sets(self, X: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids that `predict` marks, best first, and where those of each document start and end."""
        self._check_ready()
        least, documents = self._least_score(), self._documents(X)
        if self._single:
            ids = self._best_labels(documents)
            return ids, np.arange(len(ids) + 1)
        if self.top_k is not None:
            best, _ = self._model.top_k(documents, self.top_k)
            return best.ravel(), np.arange(len(best) + 1) * best.shape[1]
        found, counts = [], [np.zeros(1, dtype=np.int64)]
        for block in self._model.score_blocks(documents):
            rows, columns = np.nonzero(block >= least)
            found.append(columns[np.lexsort((columns, -block[rows, columns], rows))])
            counts.append(np.bincount(rows, minlength=len(block)))
        return np.concatenate(found), np.cumsum(np.concatenate(counts))

    def _named_sets(self, ids: npt.NDArray[Any], ends: npt.NDArray[Any]) -> list[list[Any]]:
        names = self.classes_[ids]
        return [names[start:end].tolist() for start, end in pairwise(ends.tolist())]

    # Explanations, similar documents, near labels

    def explain(self, X: Any, k: int = 1, labels: Collection[Any] | None = None) -> list[list[Explanation]]:
        """Explain why documents get labels: what each word, n-gram or feature adds to a label's score.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Or one document, as for `suggest`.
        k : int
            Explain the k most probable labels of each document.
        labels : collection of labels, optional
            Explain these labels instead, in this order, whatever their probability.

        Returns
        -------
        list of list of circlet.runtime.explain.Explanation
            For each document, an explanation for each label.
        """
        from circlet.runtime.explain import explained

        self._check_ready()
        given = None
        if labels is not None:
            given = np.array([self._id_of(label) for label in _collected(labels, "labels")], dtype=np.int64)
        _check_k(k)
        documents, model = self._documents(as_many(X)), self._model.as_runtime()
        found = []
        for row in range(count(documents)):
            document = documents[row : row + 1]
            scores = next(model.score_blocks(document)) if self._single else None
            if given is not None:
                ids = given
            elif scores is not None:
                ids = np.argsort(-scores[0], kind="stable")[:k]
            else:
                ids = model.top_k(document, k)[0][0]
            each = explained(model, document, ids, names=self.classes_[ids].tolist(), features=self._columns)
            if scores is not None:  # exactly one class is true
                chances = _shares(scores, model)[0, ids].tolist()
                each = [replace(one, probability=chance) for one, chance in zip(each, chances, strict=True)]
            found.append(each)
        return found

    def similar(self, X: Any, k: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Find the training documents that are most similar to some documents.

        Documents are similar if the model predicts the same for them. The model must have been trained with an
        index: ``CircletClassifier(keep_index=True)`` or ``circlet train --keep-index``.

        Returns
        -------
        ids : ndarray of shape (n, min(k, documents in the index))
            Ids of the documents in the training data, or else their row numbers, from 0; best first.
        similarities : ndarray of the same shape, float32
            Cosines.
        """
        from circlet.runtime.similar import similar_documents

        self._check_ready()
        _check_k(k)
        documents, model = self._documents(as_many(X)), self._model.as_runtime()
        if model.index is None:
            raise DataError(
                "found a model without an index of its training documents; wanted one trained with --keep-index "
                "or CircletClassifier(keep_index=True)"
            )
        places, cosines = similar_documents(model, model.index, documents, int(k))
        if model.index.ids is None:
            return places, cosines
        ids = np.empty(len(model.index), dtype=object)
        ids[:] = model.index.ids
        return ids[places], cosines

    def near_labels(self, label: Any, k: int = 10) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Find the labels nearest to a label, without the label itself.

        Labels are near if both get high or low scores for the same documents: those of the index or, without an
        index, documents with a single feature each; see `circlet.runtime.similar.near_labels`.

        Returns
        -------
        labels : ndarray of shape (min(k, n_labels − 1),)
        similarities : ndarray of the same shape, float32
            Correlations, best first; 0 means unrelated, and below 0 that one label is evidence against the other.
        """
        from circlet.runtime.similar import near_labels

        self._check_ready()
        _check_k(k)
        ids, similarities = near_labels(self._model.as_runtime(), self._id_of(label), int(k))
        return self.classes_[ids], similarities

    # Shared by these methods

    def _documents(self, X: Any) -> Any:
        """Check that documents are of the kind of the training documents, and return them."""
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
        for block in self._model.score_blocks(documents):
            scores[start : start + len(block)] = block
            start += len(block)
        return scores

    def _best_labels(self, documents: Any) -> npt.NDArray[np.int64]:
        return np.concatenate([block.argmax(axis=1) for block in self._model.score_blocks(documents)])

    def _check_parameters(self) -> None:
        """Raise `ParameterError` for an invalid `threshold` or `top_k`."""
        self.labels_threshold()
        if self.top_k is not None and not is_integer(self.top_k, 1):
            raise ParameterError(f"`top_k`: found {self.top_k!r}; wanted None or an integer >= 1")

    def _least_score(self) -> float:
        """Return the score at the threshold of sets of labels."""
        self._check_parameters()
        threshold = self.labels_threshold().value
        assert threshold is not None
        slope, intercept = self._model.calibration
        with np.errstate(divide="ignore"):  # at 0 and 1, where it is infinite
            log_odds = np.log(threshold) - np.log1p(-threshold)
        least = float((log_odds - intercept) / slope)
        # Scores are in single precision, and NumPy warns when they are compared with a finite number beyond it.
        return math.copysign(math.inf, least) if abs(least) > float(np.finfo(np.float32).max) else least

    def _id_of(self, label: Any) -> int:
        """Return the number of a label."""
        known: list[Any] = self.classes_.tolist()
        try:
            return known.index(label)
        except ValueError:
            raise ParameterError(f"found the label {label!r}, which is none of the {len(known)} labels") from None


def load(folder: Path | str) -> Tagger:
    """Load a model that `circlet train` or `CircletClassifier.save` wrote, to tag documents with it.

    A `DataError` says if the folder is damaged, is not a model's, or has a model that only torch can run.
    """
    folder = Path(folder)
    with explained(folder):
        saved = read(folder, estimator=True)
        return tagger_of(folder, saved, RuntimeModel.restore(folder, saved))


def tagger_of(folder: Path, saved: Contents[Any], model: Any) -> Tagger:
    """Make a tagger for a model, with the state that `CircletClassifier` saved in the folder, if any."""
    if (state := saved.estimator) is None:
        return Tagger(model)
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
        tagger._check_parameters()
    except CircletError as error:
        raise DataError(f"{path}: {error}") from error
    return tagger


def mask_of(labels: Any, classes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the classes among these labels, `(n_labels,)`; a mask is returned unchanged."""
    is_mask = isinstance(labels, np.ndarray) and labels.dtype == bool and labels.shape == classes.shape
    if is_mask and classes.dtype != bool:
        found: npt.NDArray[np.bool_] = labels
        return found
    try:
        given = set(_collected(labels, "allowed"))
    except TypeError as error:
        raise DataError(
            f"`allowed`: found a label that is a collection ({error}); wanted text or integers"
        ) from error
    known = classes.tolist()
    unknown = given.difference(known)
    if unknown:
        raise ParameterError(f"`allowed` has {unknown.pop()!r}, which is none of the {len(known)} labels")
    return np.fromiter((label in given for label in known), dtype=np.bool_, count=len(known))


def _collected(labels: Any, name: str) -> list[Any]:
    """Return the labels of the parameter `name` as a list."""
    if isinstance(labels, str) or not isinstance(labels, (Collection, np.ndarray)):
        raise ParameterError(f"`{name}`: found {labels!r}; wanted a collection of labels")
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _check_k(k: Any) -> None:
    if not is_integer(k, 1):
        raise ParameterError(f"`k`: found {k!r}; wanted an integer >= 1")


def _shares(scores: npt.NDArray[np.float32], model: Any) -> npt.NDArray[np.float32]:
    """Return the probabilities of classes if exactly one is true: proportional to each class's own odds."""
    log_odds = model.calibration[0] * scores.astype(np.float64)
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    found: npt.NDArray[np.float32] = (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


def _best(
    chances: npt.NDArray[np.float32],
    k: int,
    allowed: npt.NDArray[np.bool_] | None,
    threshold: float,
    weights: npt.NDArray[np.float64] | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Rank the classes of documents with exactly one, by probability or probability × weight, as in `ranked`."""
    values: npt.NDArray[Any] = chances if weights is None else chances * weights
    left = chances >= threshold if allowed is None else (chances >= threshold) & allowed
    values = np.where(left, values, -1)
    ids = np.argsort(-values, axis=1, kind="stable")[:, :k]
    none = np.take_along_axis(values, ids, axis=1) < 0
    return np.where(none, -1, ids), np.where(none, np.float32(0), np.take_along_axis(chances, ids, axis=1))
