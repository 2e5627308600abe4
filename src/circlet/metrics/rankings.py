"""Checks and conversion of what `circlet.metrics.measures` accepts: label matrices, rankings and scores.

Errors name the argument as the caller knows it, and the row (from 0) if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data.sparse import as_csr
from circlet.errors import DataError, ParameterError

Matrix: TypeAlias = "sp.csr_matrix | npt.ArrayLike"
Ints: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 1 << 22  # dense scores are ranked in blocks of about this many


def number_array(values: Any, name: str) -> npt.NDArray[Any]:
    """Convert `values` to an array of real numbers."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} is not a matrix: {error}") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} has dtype {array.dtype}; wanted numbers")
    return array


def label_matrix(y: Matrix, name: str) -> sp.csr_matrix:
    """Check zeros and ones (n, n_labels), and convert them to CSR with sorted indices and only ones stored."""
    matrix: Any = y if sp.issparse(y) else number_array(y, name)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(f"{name} has shape {matrix.shape}; wanted (n, n_labels), both at least 1")
    if not sp.issparse(matrix):  # SciPy has no 16-bit floats
        matrix = sp.csr_matrix(matrix, dtype=np.result_type(matrix, np.float32))
    matrix = _canonical(matrix, name)
    wrong = (matrix.data != 0) & (matrix.data != 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(f"{name}, row {rows(matrix)[at]}: found {matrix.data[at]!s}; labels are 0 or 1")
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix


def ranked_ids(ranked: Matrix, truth: sp.csr_matrix, depth: int) -> Ints:
    """Convert label ids or scores to ids (n, depth), best first, with -1 where there is no prediction."""
    if sp.issparse(ranked):
        _check_shape(ranked, truth, "ranked")
        return _rank_sparse(_canonical(ranked, "ranked"), depth)
    array = number_array(ranked, "ranked")
    if array.dtype.kind == "f":
        hint = "; floating-point numbers are scores, label ids must have an integer dtype"
        _check_shape(array, truth, "ranked", hint)
        return _rank_dense(array, depth)
    if array.dtype.kind == "b":
        raise DataError("ranked has dtype bool; label ids are integers, scores are floating-point numbers")
    return _checked_ids(array, truth, depth)


def decided(y_pred: Matrix, truth: sp.csr_matrix, threshold: float) -> tuple[Ints, Ints]:
    """Row and label of every score above `threshold`."""
    scores: Any = y_pred if sp.issparse(y_pred) else number_array(y_pred, "y_pred")
    _check_shape(scores, truth, "y_pred")
    if not sp.issparse(scores):
        _refuse_nan(scores, lambda at: at // scores.shape[1], "y_pred")
        row, label = np.nonzero(scores > threshold)
        return row, label
    scores = _canonical(scores, "y_pred")
    row = rows(scores)
    _refuse_nan(scores.data, lambda at: row[at], "y_pred")
    above = scores.data > threshold
    return row[above], scores.indices[above].astype(np.int64)


def rows(matrix: sp.csr_matrix) -> Ints:
    """The row of every stored entry."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def stored(matrix: sp.csr_matrix, row: Ints, label: Ints) -> npt.NDArray[np.bool_]:
    """Whether `matrix` stores each (row, label), given as two arrays that broadcast; label -1 is never stored."""
    n_labels = matrix.shape[1]
    keys = rows(matrix) * n_labels + matrix.indices  # increasing, because indices are sorted and occur once
    # -1 must not become the last label of the previous row.
    queries = np.where(label >= 0, row * n_labels + label, -1)
    if not len(keys):
        return np.zeros(queries.shape, dtype=bool)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    found: npt.NDArray[np.bool_] = keys[at] == queries
    return found


def _checked_ids(array: npt.NDArray[Any], truth: sp.csr_matrix, depth: int) -> Ints:
    n, n_labels = truth.shape
    if array.ndim != 2 or len(array) != n:
        raise DataError(f"ranked has shape {array.shape}; y_true has {n} rows and wants ({n}, >= {depth}) ids")
    if array.shape[1] < depth:
        raise ParameterError(
            f"ranked has {array.shape[1]} columns and the largest `k` wants {depth}: "
            f"pad it with -1 if there are no more predictions"
        )
    used = array[:, :depth]
    wrong = (used < -1) | (used >= n_labels)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"ranked, row {row}: found label id {used[row, column]}; "
            f"wanted ids from 0 to {n_labels - 1}, or -1 for no prediction"
        )
    ids = used.astype(np.int64)
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, column = np.argwhere(twice)[0]
        raise DataError(f"ranked, row {row}: found label id {ordered[row, column]} twice; wanted each id once")
    return ids


def _rank_sparse(scores: sp.csr_matrix, depth: int) -> Ints:
    row = rows(scores)
    _refuse_nan(scores.data, lambda at: row[at], "ranked")
    falling = -scores.data.astype(np.result_type(scores.dtype, np.float32), copy=False)
    order = np.lexsort((falling, row))  # stable, so equal scores stay in the order of their ids
    place = np.arange(scores.nnz) - scores.indptr[row]
    kept = place < depth
    ids = np.full((scores.shape[0], depth), -1, dtype=np.int64)
    ids[row[kept], place[kept]] = scores.indices[order[kept]]
    return ids


def _rank_dense(scores: npt.NDArray[Any], depth: int) -> Ints:
    n, n_labels = scores.shape
    _refuse_nan(scores, lambda at: at // n_labels, "ranked")
    ids = np.empty((n, depth), dtype=np.int64)
    step = max(1, _BLOCK // n_labels)
    for start in range(0, n, step):
        falling = -scores[start : start + step]
        # With argpartition it would be arbitrary which of the labels that tie for the last place are chosen.
        last = np.partition(falling, depth - 1, axis=1)[:, depth - 1 : depth]
        inside, ties = falling < last, falling == last
        room = depth - inside.sum(axis=1, keepdims=True)
        chosen = inside | (ties & (np.cumsum(ties, axis=1) <= room))
        labels = np.nonzero(chosen)[1].reshape(-1, depth)
        order = np.argsort(np.take_along_axis(falling, labels, axis=1), axis=1, kind="stable")
        ids[start : start + step] = np.take_along_axis(labels, order, axis=1)
    return ids


def _canonical(matrix: Any, name: str) -> sp.csr_matrix:
    """Convert a sparse matrix to CSR with sorted indices, each once; the caller's matrix is not modified."""
    matrix = as_csr(matrix, name)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _check_shape(scores: Any, truth: sp.csr_matrix, name: str, hint: str = "") -> None:
    if scores.shape != truth.shape:
        raise DataError(f"{name} has shape {scores.shape}; y_true wants scores of shape {truth.shape}{hint}")


def _refuse_nan(values: npt.NDArray[Any], row_of: Callable[[int], int], name: str) -> None:
    # The sum is NaN if any value is (or if there are infinities of both signs), and it needs no additional array.
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(values.sum()):
            return
    missing = np.isnan(values)
    if missing.any():
        raise DataError(f"{name}, row {row_of(int(np.argmax(missing)))}: found NaN; wanted a score")
