"""Check sparse matrices before computing with them, and read rows of memory-mapped ones.

The compiled code of SciPy and torch trusts a matrix: with a column beyond its shape, or row pointers out of order,
it reads and writes outside the arrays. SciPy can build such a matrix, and any code can change a matrix's arrays.

A matrix's arrays may be memory-mapped: rows are read from the files when they are needed, and then released.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.errors import DataError

#: Entries per block where all entries are read.
BLOCK = 1 << 20


def as_csr(matrix: Any, where: str) -> Any:
    """Return a checked sparse matrix as CSR, without a copy where possible; errors start with `where`.

    Within a row, columns may still be unsorted or repeated. Values are not checked.

    Raises
    ------
    DataError
        If the parts of the matrix do not fit together, or do not fit its shape.
    """
    if matrix.ndim != 2:
        raise DataError(f"{where}: found a sparse matrix of shape {matrix.shape}; wanted two dimensions")
    if matrix.format in ("csr", "csc", "bsr"):
        if is_known_good(matrix):
            return matrix
        _check_compressed(matrix, where)
    elif matrix.format == "coo":
        for numbers, size in ((matrix.row, matrix.shape[0]), (matrix.col, matrix.shape[1])):
            _check_length(numbers, len(matrix.data), where)
            check_indices(numbers, size, where)
    if matrix.format == "csr":
        unused = len(matrix.data) - int(matrix.indptr[-1])
        return type(matrix)(matrix, copy=True) if unused else matrix
    try:
        converted = matrix.tocsr()
    except (ValueError, IndexError) as error:  # SciPy checks some formats while converting them
        raise DataError(f"{where}: found a damaged sparse matrix ({error}); wanted an intact one") from error
    if matrix.format in ("lil", "dok"):
        _check_compressed(converted, where)
    return converted


def widened(matrix: sp.csr_matrix, width: int) -> sp.csr_matrix:
    """Return the same rows with `width` columns; the new ones are empty."""
    return sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))


def check_pointers(indptr: Any, n_entries: int, where: str) -> None:
    """Raise `DataError` unless row pointers increase from 0 to `n_entries`; read them in blocks."""
    right = len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == n_entries
    if right and all(
        (indptr[block.start : block.stop] <= indptr[block.start + 1 : block.stop + 1]).all()
        for block in blocks(len(indptr) - 1)
    ):
        return
    raise DataError(
        f"{where}: found row pointers out of order; wanted pointers that increase from 0 to {n_entries}"
    )


def check_indices(indices: Any, size: int, where: str) -> None:
    """Raise `DataError` unless all indices are at least 0 and below `size`."""
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        wrong = int(indices[np.argmax((indices < 0) | (indices >= size))])
        raise DataError(f"{where}: found index {wrong}; wanted indices from 0 to {size - 1}")


def _check_compressed(matrix: Any, where: str) -> None:
    height, width = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    rows, columns = matrix.shape[0] // height, matrix.shape[1] // width
    major, minor = (columns, rows) if matrix.format == "csc" else (rows, columns)
    data, indices, indptr = matrix.data, matrix.indices, matrix.indptr
    if data.ndim != (3 if matrix.format == "bsr" else 1):
        raise DataError(f"{where}: found values of shape {data.shape} in a sparse matrix; wanted one dimension")
    _check_length(indptr, major + 1, where)
    # SciPy allows unused entries after those of the last row.
    used = int(indptr[-1])
    if used > len(data):
        raise DataError(f"{where}: found row pointers up to {used}; wanted at most {len(data)}")
    check_pointers(indptr, used, where)
    _check_length(indices, len(data), where)
    for block in blocks(used):
        check_indices(indices[block], minor, where)
        release(matrix)


def _check_length(numbers: Any, wanted: int, where: str) -> None:
    if numbers.shape != (wanted,) or numbers.dtype.kind not in "iu":
        found = f"indices of shape {numbers.shape} and type {numbers.dtype} in a sparse matrix"
        raise DataError(f"{where}: found {found}; wanted {wanted} integers")


class MappedRows:
    """Some rows of a mapped matrix; they stay in the files until they are needed.

    Parameters
    ----------
    matrix : csr_matrix or MappedRows
        A memory-mapped matrix.
    rows : int64 ndarray of shape (n,)
        Row numbers.
    """

    def __init__(self, matrix: sp.csr_matrix | MappedRows, rows: npt.NDArray[np.int64]) -> None:
        self.matrix: sp.csr_matrix = matrix.matrix if isinstance(matrix, MappedRows) else matrix
        self.rows: npt.NDArray[np.int64] = matrix.rows[rows] if isinstance(matrix, MappedRows) else rows
        self.shape: tuple[int, int] = (len(rows), matrix.shape[1])
        self.ndim = 2

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """Read some of these rows, selected by a slice or an array of positions."""
        return self.matrix[self.rows[rows]]

    @property
    def indptr(self) -> npt.NDArray[np.int64]:
        """Row pointers of the matrix that consists of these rows."""
        counts = np.diff(self.matrix.indptr)[self.rows]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def is_mapped(X: Any) -> bool:
    """Whether a matrix is sparse and memory-mapped."""
    return isinstance(X, MappedRows) or (sp.issparse(X) and X.format == "csr" and _map_of(X.data) is not None)


def _map_of(array: Any) -> mmap.mmap | None:
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def mark_known_good(X: sp.csr_matrix) -> None:
    """Mark a mapped matrix as checked, so that its files are not read again for a check."""
    X.checked_parts = (X.data, X.indices, X.indptr)


def is_known_good(X: Any) -> bool:
    """Whether a mapped matrix was marked as checked, and still has the same read-only arrays."""
    checked = getattr(X, "checked_parts", None)
    return checked is not None and all(
        before is now and not now.flags.writeable
        for before, now in zip(checked, (X.data, X.indices, X.indptr), strict=True)
    )


def release(X: Any) -> None:
    """Release the pages read from a mapped matrix; the system may cache them, but they leave our memory usage."""
    if isinstance(X, MappedRows):
        X = X.matrix
    if not is_mapped(X) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    for array in (X.data, X.indices, X.indptr):
        if (file := _map_of(array)) is not None:
            file.madvise(mmap.MADV_DONTNEED)


def blocks(n: int, size: int | None = None) -> Iterator[slice]:
    """Yield consecutive slices of `size` entries that cover `n` entries."""
    size = size or BLOCK
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def column_counts(X: Any) -> npt.NDArray[np.int64]:
    """Count the entries in each column of a sparse matrix, `(n_columns,)`; a mapped matrix is read in blocks."""
    if not is_mapped(X):
        return np.bincount(X.indices, minlength=X.shape[1])
    counts = np.zeros(X.shape[1], dtype=np.int64)
    size = max(1, BLOCK * X.shape[0] // max(1, int(X.indptr[-1])))
    for block in blocks(X.shape[0], size):
        counts += np.bincount(X[block].indices, minlength=X.shape[1])
        release(X)
    return counts
