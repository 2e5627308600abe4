"""What a fitted classifier does with documents: suggestions, scores, probabilities, labels."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from circlet.checks import is_integer, is_real
from circlet.codebooks.decoding import check_options
from circlet.errors import DataError, ParameterError
from circlet.estimator.decisions import best, cut, shares
from circlet.estimator.documents import as_many, as_rows, as_texts, count
from circlet.estimator.targets import Targets
from circlet.model import Model

__all__ = ["Tagging", "check_rows"]


class Tagging:
    """The methods of `CircletClassifier` that use the fitted model."""

    model_: Model
    classes_: npt.NDArray[Any]
    _targets: Targets
    threshold: float
    top_k: int | None

    def suggest(
        self,
        X: Any,
        k: int = 5,
        *,
        allowed: Collection[Any] | None = None,
        threshold: float | None = None,
        memory: int | None = None,
        favor_rare: float = 0.0,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """The k best labels of each document, best first: the most probable ones, unless rare ones are favored.

        Parameters
        ----------
        X : as for `fit`, or one document: a str, or an array of shape (n_features,)
        k : int
        allowed : collection of labels, optional
            Suggest only these.
        threshold : float, optional
            Leave out labels that are less probable.
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
        check_is_fitted(self)
        if not is_integer(k, 1):
            raise ParameterError(f"`k` must be an integer >= 1, got {k!r}")
        if threshold is not None and not (is_real(threshold) and 0 <= threshold <= 1):
            raise ParameterError(f"`threshold` must be between 0 and 1, got {threshold!r}")
        gain, least = self.model_.gain(favor_rare), threshold or 0.0
        mask = None if allowed is None else self._targets.mask(allowed)
        documents = self._documents(as_many(X))
        if self._targets.single:
            check_options(len(self.classes_), memory, None, None)
            slope = self.model_.calibration[0]
            weights = None if gain is None else gain.log_weights.exp().cpu().numpy()
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
        if self._targets.single and len(self.classes_) <= 2:
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
        if self._targets.single:
            return shares(scores, self.model_.calibration[0])
        return self.model_.probabilities(scores)

    def predict(self, X: Any) -> Any:
        """Labels of documents.

        Returns
        -------
        csr_matrix of shape (n, n_labels), float32
            Ones for labels that are at least as probable as `threshold` or, if `top_k` is set, for that many most
            probable labels; columns are in the order of `classes_`. With one class per row, an ndarray of shape
            (n,) of the most probable classes.
        """
        check_is_fitted(self)
        least = self._least_score()
        documents = self._documents(X)
        if self._targets.single:
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

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of documents whose best label is right (P@1); with one class per row, the accuracy.

        Labels that the classifier does not know count as missed.
        """
        check_is_fitted(self)
        documents = self._documents(X)
        Y = self._targets.encode(y)
        check_rows(documents, Y)
        labels = self._best_labels(documents)
        right = np.asarray(Y[np.arange(len(labels)), labels]).ravel()
        return float(np.average(right, weights=sample_weight))

    def _documents(self, X: Any, *, first: bool = False) -> Any:
        """A list of texts, or float32 rows, checked to be like those of the first fit."""
        texts = as_texts(X)
        if first and texts is not None:
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
                self.__dict__.pop(name, None)
        elif not first and texts is None and self.model_.vectorizer is not None:
            if getattr(X, "shape", (len(X),) if isinstance(X, (list, tuple)) else None) != (0,):
                raise DataError(
                    "found feature rows; this classifier was fitted on texts and wants a list of texts"
                )
            texts = []
        if texts is None:
            return as_rows(self, X, first=first)
        if not first and self.model_.vectorizer is None:
            raise DataError("found texts; this classifier was fitted on feature rows and wants rows")
        return texts

    def _all_scores(self, X: Any) -> npt.NDArray[np.float32]:
        check_is_fitted(self)
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
        calibration = self.model_.calibration if hasattr(self, "model_") else (1.0, 0.0)
        return cut(self.threshold, calibration)


def check_rows(documents: Any, Y: sp.csr_matrix) -> None:
    """Raise `DataError` unless there are as many documents as targets."""
    if count(documents) != Y.shape[0]:
        raise DataError(f"found {count(documents)} rows in X and {Y.shape[0]} in y; wanted the same number")
