"""Measure decisions (labels whose probability reaches a threshold) and find the best threshold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.metrics.measures import rows, stored
from circlet.settings.run import Aim

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Precision, recall and F1 over all decisions, for every threshold.

    Parameters
    ----------
    thresholds : ndarray
        All distinct probabilities, descending; labels with at least this probability are predicted.
    precision, recall, f1 : ndarray
    """

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats


def curve_of(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int) -> Curve:
    """Compute precision, recall and F1 for every threshold.

    Parameters
    ----------
    chances : ndarray of shape (m,)
        Probabilities of pairs of document and label.
    right : ndarray of shape (m,)
        Whether the label is a true label of the document.
    n_true : int
        Number of all true labels of the documents, including those without a probability.
    """
    order = np.argsort(-chances, kind="stable")
    falling, found = chances[order].astype(np.float64), np.cumsum(right[order])
    # Labels with the same probability are predicted together.
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
    hits, predicted = found[last].astype(np.float64), last + 1.0
    return Curve(falling[last], hits / predicted, hits / max(n_true, 1), 2 * hits / (predicted + n_true))


def best_threshold(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int, aim: Aim) -> float | None:
    """Return the best threshold for an aim, or None if the data show none. See `curve_of` for the parameters.

    For a precision, return the lowest threshold that reaches it; for a recall, the highest. If no threshold
    reaches the aim, return the one that comes closest. A threshold lies halfway between the lowest predicted
    probability and the next one.
    """
    if not right.any():
        return None
    thresholds, precision, recall, f1 = curve_of(chances, right, n_true)
    if aim.measure == "f1" or aim.target is None:
        place = int(np.argmax(f1))
    elif aim.measure == "precision":
        reached = np.flatnonzero(precision >= aim.target)
        place = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    else:
        place = min(int(np.searchsorted(recall, aim.target)), len(recall) - 1)
        place = int(np.searchsorted(recall, recall[place]))  # with as few wrong labels as possible
    if place + 1 == len(thresholds):
        return float(thresholds[place])
    return float(thresholds[place] + thresholds[place + 1]) / 2


class LabelReport(NamedTuple):
    """Measures of the labels that are true or predicted in at least one document, `(m,)` each.

    Parameters
    ----------
    labels : ndarray
        The labels' columns, most frequent first.
    support, predicted : ndarray
        In how many documents each label is true, and in how many it is predicted.
    precision, recall, f1 : ndarray
        0 where the denominator is 0, as in scikit-learn.
    confusions : csr_matrix of shape (m, n_labels)
        In how many documents the label was missed and another label wrongly predicted; only for the most
        frequent other labels.
    """

    labels: npt.NDArray[np.int64]
    support: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    precision: Floats
    recall: Floats
    f1: Floats
    confusions: sp.csr_matrix


class Decisions(NamedTuple):
    """The true labels of documents, and a model's probabilities of labels.

    Parameters
    ----------
    truth : csr_matrix of shape (n, n_labels)
        Ones, with sorted indices.
    chances : csr_matrix of shape (n, n_labels)
        Probabilities; labels that are not stored are never predicted.
    """

    truth: sp.csr_matrix
    chances: sp.csr_matrix

    def curve(self) -> Curve:
        """Compute precision, recall and F1 over all decisions, for every threshold."""
        chances = self.chances
        right = stored(self.truth, rows(chances), chances.indices.astype(np.int64))
        return curve_of(chances.data, right, self.truth.nnz)

    def summary(self, threshold: float) -> dict[str, dict[str, float]]:
        """Compute precision, recall and F1 at a threshold: over all decisions (micro), and as label means (macro).

        Labels that are neither true nor predicted in any document are left out of the means.
        """
        report = self.per_label(threshold, others=0)
        hits = float(np.round(report.recall * report.support).sum())
        predicted, true = float(report.predicted.sum()), float(report.support.sum())
        micro = {
            "precision": hits / max(predicted, 1.0),
            "recall": hits / max(true, 1.0),
            "f1": 2 * hits / max(predicted + true, 1.0),
        }
        macro = {
            name: float(getattr(report, name).mean()) if len(report.labels) else 0.0
            for name in ("precision", "recall", "f1")
        }
        return {"micro": micro, "macro": macro}

    def per_label(self, threshold: float, others: int = 3) -> LabelReport:
        """Measure each label at a threshold, with at most `others` labels that it is confused with."""
        truth, guesses = self.truth, self._predicted(threshold)
        hits = truth.multiply(guesses).tocsr()
        n_labels = truth.shape[1]
        support, predicted, right = (np.bincount(M.indices, minlength=n_labels) for M in (truth, guesses, hits))
        occurring = np.flatnonzero(support + predicted)
        labels = occurring[np.lexsort((occurring, -predicted[occurring], -support[occurring]))]
        true, guessed, found = (each[labels].astype(np.float64) for each in (support, predicted, right))
        confusions = sp.csr_matrix((len(labels), n_labels), dtype=np.int64)
        if others:
            # The product is as sparse as its factors, since a label is missed in few documents.
            missed, wrong = _without(truth, hits), _without(guesses, hits)
            confusions = _largest((missed.T.tocsr()[labels] @ wrong).tocsr(), others)
        return LabelReport(
            labels,
            support[labels],
            predicted[labels],
            found / np.maximum(guessed, 1),
            found / np.maximum(true, 1),
            2 * found / (true + guessed),
            confusions,
        )

    def _predicted(self, threshold: float) -> sp.csr_matrix:
        """Return a matrix with ones for the labels that reach the threshold."""
        chances, row = self.chances, rows(self.chances)
        kept = chances.data >= threshold
        places = (row[kept], chances.indices[kept])
        return sp.csr_matrix((np.ones(len(places[0]), dtype=np.float32), places), shape=chances.shape)


def _without(matrix: sp.csr_matrix, other: sp.csr_matrix) -> sp.csr_matrix:
    """Return the entries set in `matrix` but not in `other`, its subset, as integers for counting."""
    left = (matrix - other).tocsr()
    left.eliminate_zeros()
    return left.astype(np.int64)


def _largest(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """Keep the k largest entries of each row, largest first; for ties, the lower column first."""
    row = rows(matrix)
    order = np.lexsort((matrix.indices, -matrix.data, row))
    kept = order[np.arange(len(order)) - matrix.indptr[row] < k]
    counts = np.minimum(np.diff(matrix.indptr), k)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], starts), shape=matrix.shape)
