"""How feature rows are scaled before the network sees them. The scaling is part of the model and saved with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data.mapped import MappedRows, column_counts, is_mapped, release
from circlet.errors import DataError, ParameterError
from circlet.features.entries import Entries, row_norms
from circlet.features.tokens import TokenRows

__all__ = ["SCALINGS", "ScaledRows", "Scaling"]

SCALINGS = {
    "none": "rows as they are",
    "l2": "rows divided by their norm",
    "sqrt": "square roots of the values, then as l2: dampens repeated words",
    "tfidf": "values times the inverse document frequency of their feature, then as l2",
    "standard": "each feature shifted and scaled to mean 0 and standard deviation 1 (dense features only)",
}


class Scaling:
    """Scales rows so that a network learns well from them.

    Parameters
    ----------
    kind : str
        One of `SCALINGS`, or "auto": sqrt for sparse rows, standard for dense ones.
    """

    def __init__(self, kind: str = "auto") -> None:
        if not isinstance(kind, str) or (kind != "auto" and kind not in SCALINGS):
            raise ParameterError(f"`scaling` must be auto or one of {', '.join(SCALINGS)}, got {kind!r}")
        self.kind = kind
        #: What `fit` learned, by name; saved with the model.
        self.arrays: dict[str, npt.NDArray[np.float32]] = {}

    def fit(self, X: Any) -> Scaling:
        """Learn what the scaling needs to know about the training rows."""
        sparse = sp.issparse(X) or is_mapped(X)
        if self.kind == "auto":
            self.kind = "sqrt" if sparse else "standard"
        if self.kind == "standard":
            if sparse:
                raise ParameterError("scaling standard would make sparse rows dense: choose l2, sqrt or tfidf")
            mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            # A column with a smaller deviation counts as constant: it is shifted, but not scaled up. Either the
            # deviation is only the rounding error of the sums, or its inverse is too large for float32.
            least = np.maximum(X.shape[0] * np.finfo(np.float64).eps * np.abs(mean), np.finfo(np.float32).tiny)
            self.arrays["mean"] = mean.astype(np.float32)
            self.arrays["scale"] = (1 / np.where(deviation > least, deviation, 1)).astype(np.float32)
        elif self.kind == "tfidf":
            # A mapped matrix stores no zeros.
            present = column_counts(X) if is_mapped(X) else np.asarray((X != 0).sum(axis=0)).ravel()
            self.arrays["idf"] = (np.log((1 + X.shape[0]) / (1 + present)) + 1).astype(np.float32)
        return self

    def transform(self, X: Any) -> Any:
        """Scaled rows in float32, CSR or dense like the input, which is not modified.

        Rows of a mapped matrix are scaled when they are read; see `ScaledRows`. Numbers of words stay as they are.
        """
        if isinstance(X, TokenRows):
            return X
        if is_mapped(X):
            return ScaledRows(X, self)
        if sp.issparse(X):
            rows = X.tocsr().astype(np.float32)
            rows.sum_duplicates()
            return self.scaled(Entries.of(rows)).matrix(X.shape[1])
        rows = np.asarray(X, dtype=np.float32)
        if self.kind == "standard":
            return _standardized(rows, self.arrays["mean"], self.arrays["scale"])
        if self.kind == "none":
            return rows
        if self.kind == "tfidf":
            rows = _product(rows, self.arrays["idf"])
        elif self.kind == "sqrt":
            rows = _root(rows)
        norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        return (rows / np.where(norms > 0, norms, 1)).astype(np.float32)

    def scaled(self, rows: Entries) -> Entries:
        """Scaled entries of sparse rows, in float32."""
        starts, columns, values = rows
        if self.kind == "tfidf":
            values = _product(values, self.arrays["idf"][columns])
        elif self.kind == "sqrt":
            values = _root(values)
        if self.kind != "none":
            scales = 1 / row_norms(values, starts)
            values = values * (scales if len(scales) == 1 else np.repeat(scales, np.diff(starts)))
        return Entries(starts, columns, values.astype(np.float32, copy=False))

    @classmethod
    def restore(cls, kind: str, arrays: dict[str, Any], n_features: int) -> Scaling:
        """Restore a fitted scaling from what was saved."""
        if kind not in SCALINGS:
            raise DataError(f"found the scaling {kind!r}; wanted one of {', '.join(SCALINGS)}")
        restored = cls(kind)
        wanted = {"standard": {"mean", "scale"}, "tfidf": {"idf"}}.get(kind, set())
        fits = all(
            array.dtype == np.float32 and array.shape == (n_features,) and np.isfinite(array).all()
            for array in arrays.values()
        )
        if set(arrays) != wanted or not fits:
            raise DataError(
                f"found the arrays {sorted(arrays)} for the scaling {kind}; wanted {sorted(wanted)} "
                f"of {n_features} numbers each, all finite"
            )
        restored.arrays = dict(arrays)
        return restored


class ScaledRows:
    """Rows of a mapped matrix, each scaled when it is read.

    Parameters
    ----------
    X : csr_matrix or MappedRows of shape (n, n_features)
        A mapped matrix.
    scaling : Scaling
        Fitted.
    """

    def __init__(self, X: sp.csr_matrix | MappedRows, scaling: Scaling) -> None:
        self.X, self.scaling = X, scaling
        self.shape, self.ndim = X.shape, 2

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """Read and scale rows, given by a slice or an array of row numbers."""
        found = self.X[rows]
        # A slice may be a view of the mapped arrays; a copy is not.
        scaled = self.scaling.transform(found.copy() if is_mapped(found) else found)
        release(self.X)
        return scaled


def _standardized(rows: Any, mean: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> Any:
    """Rows shifted and scaled by column; values too large for float32 become its largest."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (rows - mean) * scale
    if np.isfinite(scaled).all():
        return scaled
    # The difference may overflow float32 where the scaled one does not, so these values are computed in float64.
    largest = np.finfo(np.float32).max
    wide = (rows.astype(np.float64) - mean) * scale.astype(np.float64)
    return np.where(np.isfinite(scaled), scaled, np.clip(wide, -largest, largest)).astype(np.float32)


def _product(values: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Values times weights, in float32 unless a product is too large for it."""
    with np.errstate(over="ignore"):
        products = values * weights
    return products if np.isfinite(products).all() else values.astype(np.float64) * weights


def _root(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    roots: npt.NDArray[Any] = np.sign(values) * np.sqrt(np.abs(values))
    return roots
