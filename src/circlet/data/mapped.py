"""Memory-mapped sparse matrices: rows are read from files when they are needed, and then released."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["MappedRows", "blocks", "column_counts", "is_known_good", "is_mapped", "mark_known_good", "release"]

#: Entries read at a time where all of them have to be read.
BLOCK = 1 << 20


class MappedRows:
    """Some rows of a mapped matrix, which stay in the files until they are needed.

    Parameters
    ----------
    matrix : csr_matrix or MappedRows
        A matrix over files.
    rows : int64 ndarray of shape (n,)
        Numbers of the rows.
    """

    def __init__(self, matrix: sp.csr_matrix | MappedRows, rows: npt.NDArray[np.int64]) -> None:
        self.matrix: sp.csr_matrix = matrix.matrix if isinstance(matrix, MappedRows) else matrix
        self.rows: npt.NDArray[np.int64] = matrix.rows[rows] if isinstance(matrix, MappedRows) else rows
        self.shape: tuple[int, int] = (len(rows), matrix.shape[1])
        self.ndim = 2

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """Read some of these rows, given by a slice or an array of positions."""
        return self.matrix[self.rows[rows]]

    @property
    def indptr(self) -> npt.NDArray[np.int64]:
        """The row pointers of a matrix of these rows."""
        counts = np.diff(self.matrix.indptr)[self.rows]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def is_mapped(X: Any) -> bool:
    """Whether a matrix is sparse and its entries are in files."""
    return isinstance(X, MappedRows) or _is_map(X)


def _is_map(X: Any) -> bool:
    return sp.issparse(X) and X.format == "csr" and _map_of(X.data) is not None


def mark_known_good(X: sp.csr_matrix) -> None:
    """Note that all entries of a mapped matrix have been checked, so that nobody reads the files again."""
    X.checked_parts = (X.data, X.indices, X.indptr)


def is_known_good(X: Any) -> bool:
    """Whether a mapped matrix was checked, and still consists of the same arrays, which nobody can write to."""
    checked = getattr(X, "checked_parts", None)
    return checked is not None and all(
        before is now and not now.flags.writeable
        for before, now in zip(checked, (X.data, X.indices, X.indptr), strict=True)
    )


def release(X: Any) -> None:
    """Release the pages read from a mapped matrix: the system may cache them, but they no longer count as ours."""
    if isinstance(X, MappedRows):
        X = X.matrix
    if not _is_map(X) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    for array in (X.data, X.indices, X.indptr):
        if (file := _map_of(array)) is not None:
            file.madvise(mmap.MADV_DONTNEED)


def blocks(n: int, size: int | None = None) -> Iterator[slice]:
    """Consecutive slices of `size` entries that cover `n`."""
    size = size or BLOCK
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def column_counts(X: Any) -> npt.NDArray[np.int64]:
    """Number of entries of each column of a sparse matrix, `(n_columns,)`; a mapped one is read in blocks."""
    if not is_mapped(X):
        return np.bincount(X.indices, minlength=X.shape[1])
    counts = np.zeros(X.shape[1], dtype=np.int64)
    size = max(1, BLOCK * X.shape[0] // max(1, int(X.indptr[-1])))
    for block in blocks(X.shape[0], size):
        counts += np.bincount(X[block].indices, minlength=X.shape[1])
        release(X)
    return counts


def _map_of(array: Any) -> mmap.mmap | None:
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None
