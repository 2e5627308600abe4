"""What all models have in common, whatever computes their scores: features, labels, calibration, their record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data.sparse import as_csr, is_mapped
from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer

__all__ = ["BaseModel"]


class BaseModel:
    """Everything between a document and its ranked labels, except the networks.

    Parameters
    ----------
    scaling : Scaling
        Fitted; it is applied to rows before a network sees them.
    n_features : int
    sparse : bool
    label_names : list of str or None
    label_uris : list of str or None
        The URIs of labels that have names besides.
    vectorizer : TextVectorizer, Tokenizer or None
        Turns texts into rows; None if documents are rows already.
    calibration : (slope, intercept)
        A label's probability is σ(slope · score + intercept).
    history : list of dict
        A record per epoch.
    training : dict
        How it was trained.
    threshold : float or None
        The probability from which on labels should be predicted, by rows that were held out in training; None if
        that is unknown.
    label_counts : int64 ndarray of shape (n_labels,) or None
        How many of all documents seen have each label, held-out ones included; None if unknown.
    """

    def __init__(
        self,
        scaling: Scaling,
        *,
        n_features: int,
        sparse: bool,
        label_names: list[str] | None = None,
        vectorizer: TextVectorizer | Tokenizer | None = None,
        calibration: tuple[float, float] = (1.0, 0.0),
        history: list[dict[str, Any]] | None = None,
        training: dict[str, Any] | None = None,
        label_counts: npt.NDArray[np.int64] | None = None,
        threshold: float | None = None,
        label_uris: list[str] | None = None,
    ) -> None:
        self.scaling, self.n_features, self.sparse = scaling, n_features, sparse
        self.label_names, self.vectorizer, self.calibration = label_names, vectorizer, calibration
        self.history, self.training, self.label_counts = history or [], training or {}, label_counts
        self.threshold, self.label_uris = threshold, label_uris

    @property
    def documents_seen(self) -> int:
        """How many documents it was trained or validated on."""
        return int(self.training.get("documents", 0)) + int(self.training.get("held_out", 0))

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of scores."""
        slope, intercept = self.calibration
        logits = slope * np.asarray(scores, dtype=np.float64) + intercept
        chances: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0, -logits))
        return chances.astype(np.float32)

    def least_score(self, probability: float) -> float | None:
        """A score that no label of at least this probability is below; None for 0, which has no such score."""
        # A little lower, because `probabilities` are rounded to single precision.
        least = float(probability) * (1 - 2**-23)
        slope, intercept = self.calibration
        return (math.log(least / (1 - least)) - intercept) / slope if least else None

    def checked(self, documents: Any) -> Any:
        """Documents of the kind that the model was trained on: a list of texts, or sparse or dense rows."""
        if self.vectorizer is not None:
            if not _is_texts(documents):
                raise DataError("this model was trained on texts; wanted a list of texts, got feature rows")
            return documents
        if _is_texts(documents):
            raise DataError("this model was trained on feature rows; wanted rows, got texts")
        if documents.ndim != 2 or documents.shape[1] != self.n_features:
            raise DataError(
                f"found rows of shape {tuple(documents.shape)}; this model wants {self.n_features} features"
            )
        if sp.issparse(documents):
            documents = as_csr(documents, "the rows")
        if (sp.issparse(documents) or is_mapped(documents)) != self.sparse:
            return sp.csr_matrix(documents) if self.sparse else documents.toarray()
        return documents


def _is_texts(documents: Any) -> bool:
    return isinstance(documents, Sequence) and not isinstance(documents, np.ndarray)
