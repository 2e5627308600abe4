"""The documents that an estimator is given: a list of texts, or checked feature rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set, ValuesView
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.errors import DataError

__all__ = ["as_many", "as_rows", "as_texts", "count"]


def as_many(X: Any) -> Any:
    """`X` itself, or a batch of one if it is a single document: a text, or a row of shape (n_features,)."""
    if isinstance(X, str):
        return [X]
    if isinstance(X, (list, tuple)):
        return np.reshape(X, (1, -1)) if X and isinstance(X[0], Real) else X
    if getattr(X, "ndim", 2) == 1 and getattr(getattr(X, "dtype", None), "kind", "O") in "biuf":
        return X.reshape(1, -1) if sp.issparse(X) else np.asarray(X).reshape(1, -1)
    return X


def as_texts(X: Any) -> list[str] | None:
    """`X` as a list if there is a text in it, else None; the vectorizer checks that all are texts."""
    if isinstance(X, str):
        raise DataError("found one text; wanted a list of texts")
    if isinstance(X, (Iterator, Set, Mapping, ValuesView)) and not sp.issparse(X):  # some sparse ones are dicts
        raise DataError(f"found a {type(X).__name__}, which has no fixed order; wanted a list of texts or rows")
    if not isinstance(X, (list, tuple)):
        if getattr(X, "ndim", 0) != 1 or getattr(getattr(X, "dtype", None), "kind", "") not in ("O", "U", "T"):
            return None
        X = X.tolist()
    return list(X) if any(isinstance(document, str) for document in X) else None


def as_rows(estimator: Any, X: Any, *, first: bool) -> Any:
    """Finite float32 rows, CSR or dense; unless `first`, with as many features as the first fit had."""
    try:
        with np.errstate(over="ignore"):  # values that are too large become infinite, and are rejected
            rows = _validate_data(estimator, X, accept_sparse="csr", dtype=np.float32, reset=first)
    except ValueError as error:
        raise DataError(str(error)) from error
    if not sp.issparse(rows):
        return rows if rows.flags.writeable else rows.copy()  # torch shares memory only with writable arrays
    rows = sp.csr_matrix(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix stays as it is
        rows.sum_duplicates()
    return rows


def count(documents: Any) -> int:
    """How many documents there are."""
    return len(documents) if isinstance(documents, list) else int(documents.shape[0])


def _validate_data(estimator: Any, X: Any, **options: Any) -> Any:
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # scikit-learn before 1.6
        return estimator._validate_data(X, **options)
    return validate_data(estimator, X, **options)
