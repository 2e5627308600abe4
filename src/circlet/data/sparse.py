"""Sparse matrices of unknown origin, checked before anything computes with them.

The compiled code of SciPy and torch trusts a matrix: with a column beyond its shape, or row pointers out of order,
it reads and writes outside of its arrays. SciPy can build such a matrix, and anybody can change the arrays of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from circlet.data.mapped import blocks, is_known_good, release
from circlet.errors import DataError

__all__ = ["as_csr", "check_indices", "check_pointers"]


def as_csr(matrix: Any, where: str) -> Any:
    """A sparse matrix of any format as CSR that is safe to use, itself if it is one; `where` opens an error.

    Columns may still be out of order within a row, or occur twice, and values may be anything.

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
    except (ValueError, IndexError) as error:  # of the formats that SciPy checks while it converts them
        raise DataError(f"{where}: found a damaged sparse matrix ({error}); wanted an intact one") from error
    if matrix.format in ("lil", "dok"):
        _check_compressed(converted, where)
    return converted


def check_pointers(indptr: Any, n_entries: int, where: str) -> None:
    """Raise `DataError` unless row pointers increase from 0 to `n_entries`; read in blocks."""
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
    # SciPy allows entries that no row has, behind those that rows have.
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
