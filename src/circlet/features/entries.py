"""The entries of sparse rows as plain arrays: making a sparse matrix of one row takes longer than using it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse._sparsetools import csr_matvecs  # what products of CSR matrices use, without their checks

__all__ = ["Entries", "divide_by_norms", "row_norms"]


class Entries(NamedTuple):
    """The entries of sparse rows, in the order of their columns.

    Parameters
    ----------
    starts : integer ndarray of shape (n + 1,)
        The entries of row i are from ``starts[i]`` to ``starts[i + 1]``.
    columns : integer ndarray
    values : ndarray
    """

    starts: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: npt.NDArray[Any]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    @classmethod
    def of(cls, X: Any) -> Entries:
        """The entries of a sparse matrix in float32, each column once; views where possible."""
        rows = X.tocsr()
        if not rows.has_canonical_format:
            rows = rows.astype(np.float32, copy=True)
            rows.sum_duplicates()
        return cls(rows.indptr, rows.indices, rows.data.astype(np.float32, copy=False))

    def part(self, first: int, last: int) -> Entries:
        """Some of the rows."""
        start, end = self.starts[first], self.starts[last]
        return Entries(self.starts[first : last + 1] - start, self.columns[start:end], self.values[start:end])

    def times(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The rows times a contiguous matrix that has a row for each of their columns, plus a bias."""
        (n_columns, outputs), out = weight.shape, np.empty((self.n, len(bias)), dtype=np.float32)
        out[:] = bias
        csr_matvecs(
            self.n, n_columns, outputs, self.starts, self.columns, self.values, weight.reshape(-1), out.reshape(-1)
        )
        return out

    def matrix(self, n_columns: int) -> sp.csr_matrix:
        """The rows as a matrix."""
        return sp.csr_matrix((self.values, self.columns, self.starts), shape=(self.n, n_columns))


def row_norms(values: npt.NDArray[Any], starts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The norm of each row, `(n,)`; 1 for rows of zeros, which nothing can be divided by."""
    # In float64: squares of float32 numbers may be too large or too small for float32.
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
