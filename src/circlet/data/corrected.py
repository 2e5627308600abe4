"""A dataset with the feedback of users: further texts, and other labels for texts that it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.data.feedback import Entry, Judged, judged
from circlet.data.names import names_by_uri
from circlet.errors import DataError

__all__ = ["corrected"]


def corrected(dataset: Dataset, feedback: Iterable[Entry | Judged]) -> Dataset:
    """Add feedback to the training documents.

    A text that is among them gains the labels that were accepted and loses those that were rejected. Another text
    becomes a document with the accepted labels, unless there are none: of such a text no label is known.

    A label may be called by its name or by its URI. Labels that are new come last; each is its own URI.
    """
    train, names, uris = dataset.train, dataset.label_names, dataset.label_uris
    if train.texts is None or train.X is not None or names is None:
        raise DataError(
            f"{dataset.source or dataset.name}: found {dataset.format}; feedback is about texts and labels with "
            "names, and wanted those to learn from"
        )
    texts = {each.text: each for each in judged(feedback, names_by_uri(names, uris))}
    columns = {name: column for column, name in enumerate(names)}
    for each in texts.values():
        for label in each.accepted:
            columns.setdefault(label, len(columns))
    places = [row for row, text in enumerate(train.texts) if text in texts]
    known = {train.texts[row] for row in places}
    new = [each for each in texts.values() if each.text not in known and each.accepted]
    Y = _widened(train.Y, len(columns)).tolil() if places else _widened(train.Y, len(columns))
    for row in places:
        each = texts[train.texts[row]]
        Y[row, [columns[label] for label in each.accepted]] = 1
        Y[row, [columns[label] for label in each.rejected if label in columns]] = 0
    further = [sorted(columns[label] for label in each.accepted) for each in new]
    starts = np.cumsum([0, *map(len, further)])
    flat = np.array([column for row in further for column in row], dtype=np.int32)
    added = sp.csr_matrix((np.ones(len(flat), np.float32), flat, starts), shape=(len(new), len(columns)))
    together = sp.vstack([sp.csr_matrix(Y, dtype=np.float32), added], format="csr")
    together.eliminate_zeros()
    together.sort_indices()
    test, ids = dataset.test, train.ids
    if ids is not None:
        ids = [*ids, *(f"feedback {number}" for number in range(len(new)))]
    return replace(
        dataset,
        train=Split(None, together, [*train.texts, *(each.text for each in new)], ids),
        test=None if test is None else Split(test.X, _widened(test.Y, len(columns)), test.texts),
        label_names=list(columns),
        label_uris=None if uris is None else [*uris, *list(columns)[len(uris) :]],
    )


def _widened(Y: sp.csr_matrix, width: int) -> sp.csr_matrix:
    return sp.csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], width))
