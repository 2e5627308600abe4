"""Feature rows as a network takes them: sparse entries, and the scaling of rows.

Entries are plain arrays, since making a sparse matrix of one row takes longer than using it. The scaling is part
of the model and saved with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.compat import csr_matvecs
from circlet.data.dataset import MappedRows, column_counts, is_mapped, release
from circlet.encoders import RowPairs, TextRows
from circlet.errors import DataError, ParameterError

SCALINGS = {
    "none": "rows as they are",
    "l2": "rows divided by their norm",
    "sqrt": "square roots of the values, then as l2: dampens repeated words",
    "tfidf": "values times the inverse document frequency of their feature, then as l2",
    "standard": "each feature shifted and scaled to mean 0 and standard deviation 1 (dense features only)",
}


class Entries(NamedTuple):
    """The entries of sparse rows, in the order of their columns; row i is ``starts[i]`` to ``starts[i + 1]``."""

    starts: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: npt.NDArray[Any]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    @classmethod
    def of(cls, X: Any) -> Entries:
        """Return a sparse matrix's entries in float32, each column once per row; without a copy where possible."""
        rows = X.tocsr()
        if not rows.has_canonical_format:
            rows = rows.astype(np.float32, copy=True)
            rows.sum_duplicates()
        return cls(rows.indptr, rows.indices, rows.data.astype(np.float32, copy=False))

    def part(self, first: int, last: int) -> Entries:
        """Return the rows from `first` to before `last`."""
        start, end = self.starts[first], self.starts[last]
        return Entries(self.starts[first : last + 1] - start, self.columns[start:end], self.values[start:end])

    def times(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Multiply the rows by a contiguous matrix `(n_columns, outputs)` and add a bias."""
        (n_columns, outputs), out = weight.shape, np.empty((self.n, len(bias)), dtype=np.float32)
        out[:] = bias
        csr_matvecs(
            self.n, n_columns, outputs, self.starts, self.columns, self.values, weight.reshape(-1), out.reshape(-1)
        )
        return out

    def matrix(self, n_columns: int) -> sp.csr_matrix:
        """Return the rows as a sparse matrix."""
        return sp.csr_matrix((self.values, self.columns, self.starts), shape=(self.n, n_columns))


def row_norms(values: npt.NDArray[Any], starts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the norm of each row, `(n,)`; 1 for rows of zeros, to avoid a division by 0."""
    # In float64, since squares of float32 numbers may overflow or underflow float32.
    squares = values.astype(np.float64)
    squares **= 2
    if len(starts) == 2:
        norm = np.sqrt(np.cumsum(squares)[-1:])  # a sum from left to right, as below
        return norm if len(norm) and norm[0] > 0 else np.ones(1)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    norms = np.sqrt(np.bincount(rows, weights=squares, minlength=len(starts) - 1))
    return np.where(norms > 0, norms, 1)


def divide_by_norms(values: npt.NDArray[np.float64], starts: npt.NDArray[Any]) -> None:
    """Divide each row by its norm, in place."""
    norms = row_norms(values, starts)
    values /= norms if len(norms) == 1 else np.repeat(norms, np.diff(starts))


class Scaling:
    """Scales feature rows so that a network learns well from them.

    Parameters
    ----------
    kind : str
        One of `SCALINGS`, or "auto": sqrt for sparse rows, standard for dense ones.
    """

    def __init__(self, kind: str = "auto") -> None:
        if not isinstance(kind, str) or (kind != "auto" and kind not in SCALINGS):
            raise ParameterError(f"`scaling`: found {kind!r}; wanted auto or one of {', '.join(SCALINGS)}")
        self.kind = kind
        #: The arrays that `fit` learned, by name; saved with the model.
        self.arrays: dict[str, npt.NDArray[np.float32]] = {}

    def fit(self, X: Any) -> Scaling:
        """Learn the arrays of the scaling from the training rows."""
        sparse = sp.issparse(X) or is_mapped(X)
        if self.kind == "auto":
            self.kind = "sqrt" if sparse else "standard"
        if self.kind == "standard":
            if sparse:
                raise ParameterError("scaling standard would make sparse rows dense: choose l2, sqrt or tfidf")
            mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            # A column with a smaller deviation counts as constant: it is shifted, but not scaled. Such a deviation
            # is only the rounding error of the sums, or its inverse is too large for float32.
            least = np.maximum(X.shape[0] * np.finfo(np.float64).eps * np.abs(mean), np.finfo(np.float32).tiny)
            self.arrays["mean"] = mean.astype(np.float32)
            self.arrays["scale"] = (1 / np.where(deviation > least, deviation, 1)).astype(np.float32)
        elif self.kind == "tfidf":
            # A mapped matrix stores no zeros.
            present = column_counts(X) if is_mapped(X) else np.asarray((X != 0).sum(axis=0)).ravel()
            self.arrays["idf"] = (np.log((1 + X.shape[0]) / (1 + present)) + 1).astype(np.float32)
        return self

    def transform(self, X: Any) -> Any:
        """Return scaled rows in float32, CSR or dense like the input; the input is not modified.

        Rows of a mapped matrix are scaled when they are read; see `ScaledRows`. Rows of an encoder of texts stay
        unchanged.
        """
        if isinstance(X, (RowPairs, TextRows)):
            return X
        if is_mapped(X):
            return ScaledRows(X, self)
        if sp.issparse(X):
            rows = X.tocsr().astype(np.float32)
            rows.sum_duplicates()
            return self.scale_entries(Entries.of(rows)).matrix(X.shape[1])
        rows = np.asarray(X, dtype=np.float32)
        if self.kind == "standard":
            return _standardize(rows, self.arrays["mean"], self.arrays["scale"])
        if self.kind == "none":
            return rows
        if self.kind == "tfidf":
            rows = _product(rows, self.arrays["idf"])
        elif self.kind == "sqrt":
            rows = _root(rows)
        norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        return (rows / np.where(norms > 0, norms, 1)).astype(np.float32)

    def scale_entries(self, rows: Entries) -> Entries:
        """Return the scaled entries of sparse rows, in float32."""
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
        """Restore a fitted scaling from its saved kind and arrays."""
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
    """Rows of a mapped matrix, each scaled when it is read."""

    def __init__(self, X: sp.csr_matrix | MappedRows, scaling: Scaling) -> None:
        self.X, self.scaling = X, scaling
        self.shape, self.ndim = X.shape, 2

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """Read and scale rows, selected by a slice or an array of row numbers."""
        found = self.X[rows]
        # Copied if it is a view of the mapped arrays, as a slice may be.
        scaled = self.scaling.transform(found.copy() if is_mapped(found) else found)
        release(self.X)
        return scaled


def _standardize(rows: Any, mean: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> Any:
    """Shift and scale rows by column; clip values to the range of float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (rows - mean) * scale
    if np.isfinite(scaled).all():
        return scaled
    # The difference may overflow float32 although the scaled difference does not: compute these in float64.
    largest = np.finfo(np.float32).max
    wide = (rows.astype(np.float64) - mean) * scale.astype(np.float64)
    return np.where(np.isfinite(scaled), scaled, np.clip(wide, -largest, largest)).astype(np.float32)


def _product(values: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Multiply values and weights, in float32 unless a product overflows it."""
    with np.errstate(over="ignore"):
        products = values * weights
    return products if np.isfinite(products).all() else values.astype(np.float64) * weights


def _root(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    roots: npt.NDArray[Any] = np.sign(values) * np.sqrt(np.abs(values))
    return roots
