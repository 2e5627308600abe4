"""What a tagger says about its answers: why a label, which documents are alike, which labels are near."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer
from circlet.errors import DataError, ParameterError
from circlet.runtime.decisions import shares
from circlet.runtime.documents import as_many, count

if TYPE_CHECKING:
    from circlet.runtime.explain import Explanation
    from circlet.runtime.model import RuntimeModel

__all__ = ["Explaining"]


class Explaining(ABC):
    """The methods of a tagger that look into its model."""

    classes_: npt.NDArray[Any]

    @property
    @abstractmethod
    def _runtime(self) -> RuntimeModel:
        """The model without torch."""

    @property
    @abstractmethod
    def _single(self) -> bool:
        """Whether a document has exactly one label."""

    @property
    @abstractmethod
    def _columns(self) -> list[str] | None:
        """What the columns of feature rows are called, if they have names."""

    @abstractmethod
    def _documents(self, X: Any) -> Any:
        """A list of texts, or feature rows, checked to be like those that the model was trained on."""

    def _check_ready(self) -> None:  # noqa: B027 — some taggers always have a model
        """Raise an error if there is no model yet."""

    @property
    @abstractmethod
    def has_index(self) -> bool:
        """Whether `similar` can be used."""

    def explain(self, X: Any, k: int = 1, labels: Collection[Any] | None = None) -> list[list[Explanation]]:
        """Explain why documents get labels: what each word, n-gram or feature adds to a label's score.

        The numbers are integrated gradients from the empty document; `circlet.runtime.explain` says how they
        are computed.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Or one document, as for `suggest`.
        k : int
            Explain the k most probable labels of each document.
        labels : collection of labels, optional
            Explain these instead, in this order, however probable they are.

        Returns
        -------
        list of list of Explanation
            For each document, an `circlet.runtime.explain.Explanation` for each label.
        """
        from circlet.runtime.explain import explained

        self._check_ready()
        given = None if labels is None else [self._id_of(label) for label in _listed(labels)]
        _check_k(k)
        documents, model = self._documents(as_many(X)), self._runtime
        found = []
        for row in range(count(documents)):
            document = documents[row : row + 1]
            scores = next(model.score_blocks(document)) if self._single else None
            if given is not None:
                ids = np.array(given, dtype=np.int64)
            elif scores is not None:
                ids = np.argsort(-scores[0], kind="stable")[:k]
            else:
                ids = model.top_k(document, k)[0][0]
            each = explained(model, document, ids, names=self.classes_[ids].tolist(), features=self._columns)
            if scores is not None:  # exactly one class is true
                chances = shares(scores, model.calibration[0])[0, ids].tolist()
                each = [replace(one, probability=chance) for one, chance in zip(each, chances, strict=True)]
            found.append(each)
        return found

    def similar(self, X: Any, k: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Find the documents that the model has learned from and that are most like some documents.

        Alike are documents for which the model predicts the same. It must have been trained with an index:
        ``CircletClassifier(keep_index=True)`` or ``circlet train --keep-index``.

        Returns
        -------
        ids : ndarray of shape (n, min(k, documents in the index))
            What the documents are called in the data, or else their row numbers, from 0.
        similarities : ndarray of the same shape, float32
            Cosines, best first.
        """
        from circlet.runtime.nearness import similar_documents

        self._check_ready()
        _check_k(k)
        documents, model = self._documents(as_many(X)), self._runtime
        if model.index is None:
            raise DataError(
                "this model has no index of the documents that it learned from: train it with --keep-index, or "
                "CircletClassifier(keep_index=True)"
            )
        places, cosines = similar_documents(model, model.index, documents, int(k))
        if model.index.ids is None:
            return places, cosines
        ids = np.empty(len(model.index), dtype=object)
        ids[:] = model.index.ids
        return ids[places], cosines

    def near_labels(self, label: Any, k: int = 10) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Find the known labels that are nearest to a label, itself left out.

        Labels are near if the model gives both high or low scores for the same documents: those of its index or,
        if it has none, documents of a single feature each; see `circlet.runtime.nearness.near_labels`.

        Returns
        -------
        labels : ndarray of shape (min(k, n_labels − 1),)
        similarities : ndarray of the same shape, float32
            Correlations, best first; 0 is unrelated, and less than 0 means that one speaks against the other.
        """
        from circlet.runtime.nearness import near_labels

        self._check_ready()
        _check_k(k)
        ids, similarities = near_labels(self._runtime, self._id_of(label), int(k))
        return self.classes_[ids], similarities

    def _id_of(self, label: Any) -> int:
        """The number of a label."""
        known: list[Any] = self.classes_.tolist()
        try:
            return known.index(label)
        except ValueError:
            raise ParameterError(f"found the label {label!r}, which is none of the {len(known)} labels") from None


def _listed(labels: Any) -> list[Any]:
    if isinstance(labels, str) or not isinstance(labels, (Collection, np.ndarray)):
        raise ParameterError(f"`labels` must be a collection of labels, got {labels!r}")
    return list(labels)


def _check_k(k: Any) -> None:
    if not is_integer(k, 1):
        raise ParameterError(f"`k` must be an integer >= 1, got {k!r}")
