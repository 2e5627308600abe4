"""Similar documents and similar labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.features.rows import Entries
from circlet.runtime.model import RuntimeModel
from circlet.runtime.network import Floats, Network
from circlet.scoring.arrays import MEMORY, Found, best_columns, unit
from circlet.scoring.ranking import merge
from circlet.scoring.scorers import Scorer
from circlet.storage.kept_rows import Index
from circlet.threads import steps

__all__ = ["near_labels", "similar_documents"]

#: Documents of an index converted at a time.
BLOCK = 1 << 12
#: The most documents or features for comparing labels.
SOME = 1 << 11
#: Variances below this part of the squares are rounding errors.
TINY = 1e-9


def similar_documents(model: RuntimeModel, index: Index, documents: Any, k: int) -> Found:
    """Return numbers and cosines of the k documents in an index that are most similar to each document.

    The cosine is that of the predictions, averaged over the networks.
    """
    k, found = min(k, len(index)), []
    for vectors in model.vectors(documents):
        n, scaled = len(vectors), vectors / math.sqrt(len(model.networks))
        best: Found = np.empty((n, 0), dtype=np.int64), np.empty((n, 0), dtype=np.float32)
        for start, end in steps(len(index), BLOCK):
            cosines = scaled @ index.numbers[start:end].astype(np.float32).T
            cosines *= index.scales[start:end]
            places, values = best_columns(cosines, min(k, end - start))
            best = merge(best, (places + start, values), k)
        found.append(best)
    if not found:
        return np.zeros((0, k), dtype=np.int64), np.zeros((0, k), dtype=np.float32)
    ids, nearest = (np.concatenate(each) for each in zip(*found, strict=True))
    return ids, np.clip(nearest, -1, 1)


def near_labels(model: RuntimeModel, label: int, k: int) -> Found:
    """Return ids and similarities of the k labels nearest to a label, `(k,)` each, without the label itself.

    Labels are near if the same documents have high or low scores for both. The similarity is the correlation of
    the scores over (at most 2,048 evenly spaced) documents of the index or, without an index, over documents with
    a single feature each. It is averaged over the networks.
    """
    total = sum(
        _correlations(network, scorer, vectors, label)
        for network, scorer, vectors in zip(model.networks, model.scorers, _some_vectors(model), strict=True)
    )
    found: npt.NDArray[np.float64] = np.asarray(total) / len(model.networks)
    found[label] = -np.inf
    ids, values = best_columns(found[None, :], max(1, min(k, model.n_labels - 1)))
    known = ids[0] >= 0
    return ids[0][known], np.clip(values[0][known], -1, 1).astype(np.float32)


def _some_vectors(model: RuntimeModel) -> list[Floats]:
    """Return vectors of some documents, for each network."""
    if model.index is not None:
        rows = _spaced(len(model.index))
        joined = model.index.numbers[rows].astype(np.float32) * model.index.scales[rows, None]
        return np.split(joined, np.cumsum([network.width for network in model.networks])[:-1], axis=1)
    columns = _spaced(model.n_features)
    single: Entries | Floats
    if model.sparse:
        ones = np.ones(len(columns), dtype=np.float32)
        single = Entries(np.arange(len(columns) + 1), columns.astype(np.int32), ones)
    else:
        single = np.zeros((len(columns), model.n_features), dtype=np.float32)
        single[np.arange(len(columns)), columns] = 1
    return [unit(network.vectors(single)) for network in model.networks]


def _correlations(network: Network, scorer: Scorer, vectors: Floats, label: int) -> npt.NDArray[np.float64]:
    """Correlate a label's scores with those of every label, over documents with these vectors."""
    sums, squares, products = np.zeros((3, scorer.n_labels))
    for start, end in steps(len(vectors), max(1, MEMORY // (8 * scorer.n_labels))):
        part = vectors[start:end]
        # Scale and bias do not change correlations.
        book = scorer.codebook
        scores = part @ network.head_layers[0].weight if book is None else book.scores(part)
        if scorer.absolute:
            scores = np.abs(scores)
        sums += scores.sum(axis=0, dtype=np.float64)
        squares += np.einsum("ij,ij->j", scores, scores, dtype=np.float64)
        products += np.einsum("ij,i->j", scores, scores[:, label], dtype=np.float64)
    n = len(vectors)
    variances, covariances = squares - sums**2 / n, products - sums * sums[label] / n
    norms = np.sqrt(np.maximum(variances * variances[label], 0))
    found = np.zeros(scorer.n_labels)
    np.divide(covariances, norms, out=found, where=norms > TINY * squares)
    return found


def _spaced(n: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, SOME)).astype(np.int64))
