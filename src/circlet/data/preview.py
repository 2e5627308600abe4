"""A first look at a dataset: its first rows and its most frequent labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import Dataset

__all__ = ["first_rows", "frequent_labels", "one_line"]


def first_rows(dataset: Dataset, n: int = 3, width: int = 80) -> list[dict[str, Any]]:
    """The first training rows, each with its `labels`: names, or ids where labels have no names.

    A row has its `text`, on one line and cut to `width` characters, or the number of its non-zero `features`.
    """
    X: Any = dataset.train.X
    Y, texts = dataset.train.Y, dataset.train.texts
    rows: list[dict[str, Any]] = []
    for row in range(min(n, dataset.train.n)):
        if texts is not None:
            about: dict[str, Any] = {"text": one_line(texts[row], width)}
        else:
            about = {"features": int(X[row].nnz if sp.issparse(X) else np.count_nonzero(X[row]))}
        rows.append({**about, "labels": [_name(dataset, label) for label in Y[row].indices.tolist()]})
    return rows


def frequent_labels(dataset: Dataset, n: int = 10) -> list[dict[str, Any]]:
    """The most frequent labels in training: `label` (name or id) and `count`; among equals, lower ids first."""
    # By what occurs, not by bincount: a file may claim any number of labels.
    ids, counts = np.unique(dataset.train.Y.indices, return_counts=True)
    best = np.argsort(-counts, kind="stable")[:n]
    return [{"label": _name(dataset, int(ids[at])), "count": int(counts[at])} for at in best]


def one_line(text: str, width: int) -> str:
    """`text` without line ends and repeated spaces, cut to `width` characters."""
    start = " ".join(text[: 20 * width].split())
    return start if len(start) <= width and len(text) <= 20 * width else start[: width - 1] + "…"


def _name(dataset: Dataset, label: int) -> str | int:
    return label if dataset.label_names is None else dataset.label_names[label]
