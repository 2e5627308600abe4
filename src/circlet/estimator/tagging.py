"""What a fitted classifier does with documents: what every tagger does, with scikit-learn's checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from circlet.errors import DataError, ParameterError
from circlet.estimator.documents import as_rows
from circlet.estimator.targets import Targets
from circlet.model import Model
from circlet.runtime import RuntimeModel, tagger
from circlet.runtime.documents import as_texts, count

__all__ = ["Tagging", "check_rows"]


class Tagging(tagger.Tagging):
    """The methods of `CircletClassifier` that use the fitted model."""

    model_: Model
    _targets: Targets
    encoder: Any

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of documents whose best label is right (P@1); with one class per row, the accuracy.

        Labels that the classifier does not know count as missed.
        """
        self._check_ready()
        documents = self._documents(X)
        Y = self._targets.encode(y)
        check_rows(documents, Y)
        labels = self._best_labels(documents)
        right = np.asarray(Y[np.arange(len(labels)), labels]).ravel()
        return float(np.average(right, weights=sample_weight))

    @property
    def _single(self) -> bool:
        return self._targets.single

    @property
    def has_index(self) -> bool:
        self._check_ready()
        return self.model_.index is not None

    @property
    def _runtime(self) -> RuntimeModel:
        if self.model_.network.custom or self.model_.network.settings.reads_texts:
            raise ParameterError("found an encoder that only torch can run; wanted the usual layers to look into")
        return self.model_.as_runtime()

    @property
    def _columns(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _check_ready(self) -> None:
        check_is_fitted(self)

    def _rows(self, X: Any) -> Any:
        return as_rows(self, X, first=False)

    def _first_documents(self, X: Any) -> Any:
        """The documents of the first fit: a list of texts, or float32 rows."""
        texts = as_texts(X)
        if texts is None:
            return as_rows(self, X, first=True)
        for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        return texts


def check_rows(documents: Any, Y: sp.csr_matrix) -> None:
    """Raise `DataError` unless there are as many documents as targets."""
    if count(documents) != Y.shape[0]:
        raise DataError(f"found {count(documents)} rows in X and {Y.shape[0]} in y; wanted the same number")
