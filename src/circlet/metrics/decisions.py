"""How good decisions are: labels that are probable enough, compared with the true ones; and the best threshold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.metrics.measures import rows, stored
from circlet.settings.run import Aim

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Precision, recall and F1 over all decisions, if all labels of at least a probability are predicted.

    Parameters
    ----------
    thresholds : ndarray
        Every probability that occurs, falling.
    precision, recall, f1 : ndarray
    """

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats


def curve_of(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int) -> Curve:
    """What every threshold gives.

    Parameters
    ----------
    chances : ndarray of shape (m,)
        Probabilities of labels that are predicted for some document.
    right : ndarray of shape (m,)
        Whether each is a label of its document.
    n_true : int
        How many labels the documents have, those that are not among the predicted ones included.
    """
    order = np.argsort(-chances, kind="stable")
    falling, found = chances[order].astype(np.float64), np.cumsum(right[order])
    # Labels of the same probability are predicted together.
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
    hits, predicted = found[last].astype(np.float64), last + 1.0
    return Curve(falling[last], hits / predicted, hits / max(n_true, 1), 2 * hits / (predicted + n_true))


def best_threshold(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int, aim: Aim) -> float | None:
    """The threshold that suits an aim best; None if nothing shows one. Parameters are those of `curve_of`.

    For a precision, it is the lowest threshold that reaches it; for a recall, the highest. Where none does, the
    one that comes closest. It lies halfway between the lowest probability that is predicted and the next one.
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
        place = int(np.searchsorted(recall, recall[place]))  # no wrong label more than needed
    if place + 1 == len(thresholds):
        return float(thresholds[place])
    return float(thresholds[place] + thresholds[place + 1]) / 2


class LabelReport(NamedTuple):
    """Numbers of the labels that occur, `(m,)` each: those that are true or predicted in some document.

    Parameters
    ----------
    labels : ndarray
        Their columns: the most frequent ones first.
    support, predicted : ndarray
        How many documents have each label, and how many are predicted to have it.
    precision, recall, f1 : ndarray
        0 where there is nothing to divide by, as in scikit-learn.
    confusions : csr_matrix of shape (m, n_labels)
        In how many documents the label was missed and another one wrongly predicted; only the most frequent
        others.
    """

    labels: npt.NDArray[np.int64]
    support: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    precision: Floats
    recall: Floats
    f1: Floats
    confusions: sp.csr_matrix


class Decisions(NamedTuple):
    """The true labels of documents, and how probable a model finds the labels that it may predict.

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
        """Precision, recall and F1 over all decisions, for every threshold."""
        chances = self.chances
        right = stored(self.truth, rows(chances), chances.indices.astype(np.int64))
        return curve_of(chances.data, right, self.truth.nnz)

    def summary(self, threshold: float) -> dict[str, dict[str, float]]:
        """Precision, recall and F1 at a threshold: over all decisions (micro), and as means over labels (macro).

        Labels that are neither true nor predicted in any document count for nothing.
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
        """Numbers of each label at a threshold, with at most so many `others` that it is confused with."""
        truth, guesses = self.truth, self._predicted(threshold)
        hits = truth.multiply(guesses).tocsr()
        n_labels = truth.shape[1]
        support, predicted, right = (np.bincount(M.indices, minlength=n_labels) for M in (truth, guesses, hits))
        occurring = np.flatnonzero(support + predicted)
        labels = occurring[np.lexsort((occurring, -predicted[occurring], -support[occurring]))]
        true, guessed, found = (each[labels].astype(np.float64) for each in (support, predicted, right))
        confusions = sp.csr_matrix((len(labels), n_labels), dtype=np.int64)
        if others:
            # Both factors are sparse, and so is the product: a label is missed in few documents.
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
        """Ones for the labels that reach the threshold."""
        chances, row = self.chances, rows(self.chances)
        kept = chances.data >= threshold
        places = (row[kept], chances.indices[kept])
        return sp.csr_matrix((np.ones(len(places[0]), dtype=np.float32), places), shape=chances.shape)


def _without(matrix: sp.csr_matrix, other: sp.csr_matrix) -> sp.csr_matrix:
    """The ones of a matrix that another, which has no further ones, does not have; as integers, to count."""
    left = (matrix - other).tocsr()
    left.eliminate_zeros()
    return left.astype(np.int64)


def _largest(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """The k largest entries of each row, largest first; among equal ones the lower column first."""
    row = rows(matrix)
    order = np.lexsort((matrix.indices, -matrix.data, row))
    kept = order[np.arange(len(order)) - matrix.indptr[row] < k]
    counts = np.minimum(np.diff(matrix.indptr), k)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], starts), shape=matrix.shape)
