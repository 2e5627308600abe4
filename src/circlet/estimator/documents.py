"""The rows that an estimator is given, checked as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data.sparse import as_csr
from circlet.errors import DataError, DTypeError

__all__ = ["as_rows"]


def as_rows(estimator: Any, X: Any, *, first: bool) -> Any:
    """Finite float32 rows, CSR or dense; unless `first`, with as many features as the first fit had."""
    if sp.issparse(X):
        X = as_csr(X, "X")
    try:
        with np.errstate(over="ignore"):  # values that are too large become infinite, and are rejected
            rows = _validate_data(estimator, X, accept_sparse="csr", dtype=np.float32, reset=first)
    except (TypeError, ValueError, OverflowError) as error:  # the last: an integer too large for any float
        # After a whole sentence, scikit-learn recommends other estimators.
        sentence = str(error).split("\n", 1)[0]
        kind = DTypeError if isinstance(error, TypeError) else DataError
        raise kind(sentence if sentence.endswith(".") else str(error)) from error
    if not sp.issparse(rows):
        return rows if rows.flags.writeable else rows.copy()  # torch shares memory only with writable arrays
    rows = sp.csr_matrix(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix stays as it is
        rows.sum_duplicates()
    return rows


def _validate_data(estimator: Any, X: Any, **options: Any) -> Any:
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # scikit-learn before 1.6
        return estimator._validate_data(X, **options)
    return validate_data(estimator, X, **options)
