"""Evaluate a model on a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data import Dataset
from circlet.data.catalog import ENTRIES
from circlet.errors import DataError
from circlet.metrics import evaluate, inverse_propensity, inverse_propensity_of_counts

#: How many labels of a document, the best ones, can be predicted at any threshold; the rest is ignored.
PREDICTED = 100
#: Documents ranked at a time if probabilities are kept.
BLOCK = 4096


class Ranker(Protocol):
    """Interface of an object that ranks labels, such as `circlet.runtime.Tagger`."""

    model_: Any

    def ranked(
        self, X: Any, k: int, *, favor_rare: float = ...
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return ids and probabilities of the k best labels of each document."""


class Labeled(Protocol):
    """Interface of a model that knows its labels."""

    label_names: list[str] | None
    label_uris: list[str] | None

    @property
    def n_labels(self) -> int:
        """Number of labels."""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Parameters
    ----------
    values : dict
        Metrics by name, such as ``P@1``. PSP is missing if the labels' frequencies are unknown.
    documents : int
    unknown_labels : int
        Number of the documents' labels that the model does not know and thus cannot suggest.
    truth : csr_matrix of shape (documents, n_labels)
    ranked : ndarray of shape (documents, deepest k)
        Labels, best first; −1 for an empty place.
    label_names : list of str or None
        Names of all columns, including labels that the model does not know.
    chances : csr_matrix of shape (documents, n_labels) or None
        Probabilities of the labels that may be predicted, if requested.
    """

    values: dict[str, float]
    documents: int
    unknown_labels: int
    truth: sp.csr_matrix = field(repr=False, compare=False)
    ranked: npt.NDArray[np.int64] = field(repr=False, compare=False)
    label_names: list[str] | None = field(default=None, repr=False, compare=False)
    chances: sp.csr_matrix | None = field(default=None, repr=False, compare=False)


def evaluate_model(
    tagger: Ranker,
    dataset: Dataset,
    depths: Sequence[int],
    *,
    favor_rare: float = 0.0,
    least: float | None = None,
) -> Evaluation:
    """Rank a dataset's test rows, or all rows if it has no test part, and measure P@k, PSP@k and nDCG@k.

    Propensities come from the dataset's training rows, or from the label counts in the model. For `favor_rare`,
    see `Tagger.suggest`. If `least` is given, the result has the probabilities, of at least `least`, among the
    `PREDICTED` best labels of each document.
    """
    model, part = tagger.model_, dataset.test or dataset.train
    if not part.Y.nnz:
        raise DataError(
            f"{dataset.source}: found no label in any of the {part.n:,} documents; wanted some to compare with"
        )
    truth = in_label_space(model, dataset, part.Y)
    present = np.unique(truth.indices)
    unknown = int((present >= model.n_labels).sum())
    if unknown == len(present):
        raise DataError(
            f"{dataset.source}: found {unknown:,} labels, none of which the model knows; "
            "wanted data with labels like those that it was trained on"
        )
    documents: Any = part.texts if model.vectorizer is not None else part.X
    if documents is None:
        wanted = "texts" if model.vectorizer is not None else "feature rows"
        raise DataError(f"{dataset.source}: found {dataset.format}; this model wants {wanted}")
    deepest = min(max(depths), truth.shape[1])
    chances = None
    if least is None:
        ids, _ = tagger.ranked(documents, deepest, favor_rare=favor_rare)
    else:
        ids, chances = _with_chances(tagger, documents, deepest, truth.shape, favor_rare, least)
    # A model with fewer labels leaves places empty; these count as wrong.
    ids = np.pad(ids, ((0, 0), (0, deepest - ids.shape[1])), constant_values=-1)
    weights = _propensities(model, dataset, truth.shape[1])
    metrics = ("P", "PSP", "nDCG") if weights is not None else ("P", "nDCG")
    values = evaluate(truth, ids, weights, depths, metrics=metrics)
    names = model.label_names or dataset.label_names
    if model.label_names is not None and dataset.label_names is not None:
        names = [*model.label_names, *(dataset.label_names[label] for label in label_columns(model, dataset)[1])]
    return Evaluation(values, part.n, unknown, truth, ids, names, chances)


def _with_chances(
    tagger: Ranker, documents: Any, depth: int, shape: tuple[int, int], favor_rare: float, least: float
) -> tuple[npt.NDArray[np.int64], sp.csr_matrix]:
    """Return the best labels' ids, and the probabilities of at least `least`; rank documents only once."""
    best, row, label, chance = [], [], [], []
    for start in range(0, shape[0], BLOCK):
        some = documents[start : start + BLOCK]
        ids, chances = tagger.ranked(some, max(depth, PREDICTED), favor_rare=favor_rare)
        best.append(ids[:, :depth])
        found = chances[:, :PREDICTED]
        rows, places = np.nonzero((found >= least) & (ids[:, :PREDICTED] >= 0))
        row.append(rows + start)
        label.append(ids[rows, places])
        chance.append(found[rows, places])
    entries = (np.concatenate(chance), (np.concatenate(row), np.concatenate(label)))
    return np.concatenate(best), sp.csr_matrix(entries, shape=shape)


def _propensities(model: Any, dataset: Dataset, n_labels: int) -> npt.NDArray[np.float64] | None:
    known = ENTRIES.get(dataset.name)
    constants = (known.a, known.b) if known else ()
    if dataset.test is not None and dataset.train.n >= 3:
        return inverse_propensity(in_label_space(model, dataset, dataset.train.Y), *constants)
    if model.label_counts is None or model.documents_seen < 3:
        return None
    counts = np.zeros(n_labels, dtype=np.int64)
    counts[: len(model.label_counts)] = model.label_counts
    return inverse_propensity_of_counts(counts, model.documents_seen, *constants)


def in_label_space(model: Labeled, dataset: Dataset, Y: sp.csr_matrix) -> sp.csr_matrix:
    """Map labels to the model's columns; labels that the model does not know get additional columns."""
    if model.label_names is None or dataset.label_names is None:
        if dataset.n_labels != model.n_labels:
            raise DataError(
                f"{dataset.source}: found {dataset.n_labels} labels; wanted {model.n_labels}, as in the model, "
                "or names for the labels of both"
            )
        return Y
    if model.label_names == dataset.label_names:
        return Y
    columns, new = label_columns(model, dataset)
    entries = Y.tocoo()
    shape = (Y.shape[0], model.n_labels + len(new))
    matched = sp.csr_matrix((entries.data, (entries.row, columns[entries.col])), shape=shape)
    matched.data[:] = 1  # a label may occur twice, by its name and by its URI
    return matched


def label_columns(model: Labeled, dataset: Dataset) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the model's column of each label of a dataset, and the new labels, which get the columns after these.

    Labels match by URI or by name; the data may refer to a label of the model by either.
    """
    names = dataset.label_names or []
    known = {name: column for column, name in enumerate(model.label_names or [])}
    known |= {uri: column for column, uri in enumerate(model.label_uris or [])}
    columns = np.empty(len(names), dtype=np.int64)
    new: list[int] = []
    for label, (name, uri) in enumerate(zip(names, dataset.label_uris or names, strict=True)):
        column = known.get(uri, known.get(name))
        if column is None:
            column = model.n_labels + len(new)
            new.append(label)
        columns[label] = column
    return columns, new
