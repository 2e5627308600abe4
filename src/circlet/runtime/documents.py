"""Documents to tag: texts or feature rows, one or many, in any of the usual containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set, ValuesView
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import MappedRows, as_csr, is_checked, is_mapped
from circlet.errors import DataError

__all__ = ["as_many", "as_rows", "as_texts", "count"]


def as_many(X: Any) -> Any:
    """Turn a single document (a text, or a row of shape (n_features,)) into a batch; else unchanged."""
    if isinstance(X, str):
        return [X]
    if isinstance(X, (list, tuple)):
        return np.reshape(X, (1, -1)) if X and isinstance(X[0], Real) else X
    if getattr(X, "ndim", 2) == 1 and getattr(getattr(X, "dtype", None), "kind", "O") in "biuf":
        return X.reshape(1, -1) if sp.issparse(X) else np.asarray(X).reshape(1, -1)
    return X


def as_texts(X: Any) -> list[str] | None:
    """Return `X` as a list if it contains a text, or None; the vectorizer checks that all are texts."""
    if isinstance(X, str):
        raise DataError("found one text; wanted a list of texts")
    if isinstance(X, (Iterator, Set, Mapping, ValuesView)) and not sp.issparse(X):  # sparse ones may be dicts
        raise DataError(f"found a {type(X).__name__}, which has no fixed order; wanted a list of texts or rows")
    if not isinstance(X, (list, tuple)):
        if getattr(X, "ndim", 0) != 1 or getattr(getattr(X, "dtype", None), "kind", "") not in ("O", "U", "T"):
            return None
        X = X.tolist()
    return list(X) if any(isinstance(document, str) for document in X) else None


def as_rows(X: Any, n_features: int, names: list[str] | None = None) -> Any:
    """Check feature rows, and return them as finite numbers, sparse or dense float32.

    A data frame must have the model's column names, if the model has any.
    """
    columns = getattr(X, "columns", None)
    if names is not None and columns is not None and [str(name) for name in columns] != names:
        raise DataError("found a data frame with other columns than those that the model was trained on")
    checked = isinstance(X, MappedRows) or (is_mapped(X) and is_checked(X))
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise DataError(f"found rows of type {X.dtype}; wanted real numbers")
    if not sp.issparse(X) and not checked:
        try:
            with np.errstate(over="ignore"):  # values that are too large become infinite, and are rejected
                X = np.asarray(X, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:  # the last: an integer too large for any float
            raise DataError(
                f"found no feature rows ({error}); wanted numbers of shape (n, {n_features})"
            ) from error
    if X.ndim != 2 or X.shape[1] != n_features:
        raise DataError(f"found rows of shape {tuple(X.shape)}; this model wants {n_features} features")
    if checked:
        return X  # nobody should read its files again
    if sp.issparse(X) and X.format != "csr":
        X = as_csr(X, "X")  # CSR itself is checked by the model, once
    numbers = X.data if sp.issparse(X) else X
    if numbers.dtype.kind not in "biuf":
        raise DataError(f"found rows of type {numbers.dtype}; wanted numbers")
    if not np.isfinite(numbers.sum(dtype=np.float64)) and not np.isfinite(numbers).all():
        raise DataError("found NaN or infinity in X; wanted finite numbers")
    return X


def count(documents: Any) -> int:
    """Return the number of documents."""
    return len(documents) if isinstance(documents, list) else int(documents.shape[0])
