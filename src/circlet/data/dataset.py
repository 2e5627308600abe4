"""A dataset in memory: features, labels, label names, texts and statistics; and the checks of its matrices.

The compiled code of SciPy and torch trusts a sparse matrix: with a column beyond its shape, or row pointers out of
order, it reads and writes outside the arrays. SciPy can build such a matrix, and any code can change a matrix's
arrays. So `as_csr` checks a matrix before anything computes with it.

A matrix's arrays may be memory-mapped: rows are read from the files when they are needed, and then released.
"""

from __future__ import annotations

import math
import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import is_integer
from circlet.errors import DataError, ParameterError, bad, shown

#: Half of a surrogate pair, which UTF-8 can't hold.
SURROGATE = re.compile("[\ud800-\udfff]")
#: Characters that a label name must not contain.
_ODD = re.compile("[\t\n\r\0\ud800-\udfff]")


@dataclass(frozen=True, eq=False)
class Split:
    """Documents and their labels; `X` or `texts` may be missing, but not both.

    Parameters
    ----------
    X : csr_matrix, ndarray, MappedRows or None
        Features, `(n, n_features)`, float32.
    Y : csr_matrix or MappedRows
        Label indicator, `(n, n_labels)`, float32 ones.
    texts : list of str or None
        The documents as raw text.
    ids : list of str or int, or None
        Names of the documents, if they were requested and the data has them.
    """

    X: sp.csr_matrix | np.ndarray[Any, Any] | None
    Y: sp.csr_matrix
    texts: list[str] | None = None
    ids: list[str | int] | None = None

    @property
    def n(self) -> int:
        """Number of documents."""
        return int(self.Y.shape[0])

    def take(self, rows: Any, *, copy: bool = True) -> Split:
        """Return the documents at `rows`, an index array, in that order.

        With ``copy=False``, rows of mapped matrices stay in their files, as `MappedRows`; training accepts these.
        """
        rows = np.asarray(rows, dtype=np.int64)
        texts = None if self.texts is None else [self.texts[row] for row in rows.tolist()]
        ids = None if self.ids is None else [self.ids[row] for row in rows.tolist()]

        def rows_of(part: Any) -> Any:
            if part is None or not is_mapped(part):
                return None if part is None else part[rows]
            if not copy:
                return MappedRows(part, rows)
            parts = []
            for block in blocks(len(rows), 1024):
                parts.append(part[rows[block]])
                release(part)
            return sp.vstack(parts, format="csr") if parts else part[rows]

        return Split(rows_of(self.X), rows_of(self.Y), texts, ids)


@dataclass(frozen=True)
class Statistics:
    """The statistics that the Extreme Classification Repository publishes for a dataset, and three more.

    `labels_per_point` and `points_per_label` are means over training and test rows together, as the
    Repository counts them. An empty row has no labels; an unseen label is in no training row.
    """

    train_points: int
    test_points: int
    features: int | None
    labels: int
    labels_per_point: float
    points_per_label: float
    empty_rows_train: int
    empty_rows_test: int
    unseen_labels: int

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the numbers by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory; `format` describes the format of its files.

    If labels are URIs with names, `label_names` has the names and `label_uris` the URIs.

    Raises `DataError` if the parts do not fit together; see `check_split`.
    """

    name: str
    train: Split
    test: Split | None = None
    label_names: list[str] | None = None
    format: str = "in memory"
    source: Path | None = None
    label_uris: list[str] | None = None

    def __post_init__(self) -> None:
        where = str(self.source or self.name)
        check_split(self.train, where=f"{where}, train", label_names=self.label_names)
        if self.label_uris is not None and len(self.label_uris) != len(self.label_names or ()):
            found = f"{len(self.label_uris)} URIs of labels and {len(self.label_names or ())} names"
            raise DataError(f"{where}: found {found}; wanted one of both for each label")
        if self.test is None:
            return
        check_split(self.test, where=f"{where}, test")
        features = None if self.test.X is None else self.test.X.shape[1]
        sizes = (("labels", self.n_labels, self.test.Y.shape[1]), ("features", self.n_features, features))
        for what, train, test in sizes:
            if train != test:
                found = f"{train} {what} in train and {test} in test"
                raise DataError(f"{where}: found {found}; wanted the same number")

    @property
    def n_features(self) -> int | None:
        """Number of features; None for raw text."""
        return None if self.train.X is None else int(self.train.X.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.train.Y.shape[1])

    def statistics(self) -> Statistics:
        """Return the statistics of this dataset."""
        train, test = self.train, self.test
        points = train.n + (test.n if test else 0)
        assignments = train.Y.nnz + (test.Y.nnz if test else 0)
        # Not np.bincount, whose result has the size that a file claims.
        seen = np.unique(train.Y.indices).size
        return Statistics(
            train_points=train.n,
            test_points=test.n if test else 0,
            features=self.n_features,
            labels=self.n_labels,
            labels_per_point=assignments / max(points, 1),
            points_per_label=assignments / max(self.n_labels, 1),
            empty_rows_train=int(np.count_nonzero(np.diff(train.Y.indptr) == 0)),
            empty_rows_test=int(np.count_nonzero(np.diff(test.Y.indptr) == 0)) if test else 0,
            unseen_labels=self.n_labels - seen,
        )

    def validation_split(self, size: float, seed: int = 0, *, copy: bool = True) -> tuple[Split, Split]:
        """Split the training rows into training and validation rows, both in their order.

        The same seed gives the same split.

        Parameters
        ----------
        size : float or int
            A fraction between 0 and 1, or a number of rows.
        seed : int
            Seed of the permutation (numpy's PCG64).
        copy : bool
            False leaves mapped training rows in their files; see `Split.take`.
        """
        n = self.train.n
        held_out = validation_rows(n, size, seed)
        return self.train.take(np.delete(np.arange(n), held_out), copy=copy), self.train.take(held_out)


def validation_rows(n: int, size: float, seed: int) -> npt.NDArray[np.int64]:
    """Return the sorted indices of the validation rows among n rows; see `Dataset.validation_split`."""
    if is_integer(size, 1) and size < n:
        held_out = int(size)
    elif isinstance(size, (float, np.floating)) and 0 < size < 1 and n > 1:
        held_out = min(max(round(float(size) * n), 1), n - 1)
    else:
        raise ParameterError(
            f"found size {size!r}; wanted a fraction between 0 and 1, or a number of rows from 1 to {n - 1}"
        )
    return np.sort(np.random.Generator(np.random.PCG64(seed)).permutation(n)[:held_out])


def check_split(split: Split, *, where: str, label_names: Sequence[str] | None = None) -> None:
    """Raise `DataError` unless the parts of `split` fit together; the message starts with `where`."""
    X, Y, texts = split.X, split.Y, split.texts
    if not sp.issparse(Y) or Y.format != "csr":
        raise DataError(f"{where}: found labels of type {type(Y).__name__}; wanted a csr_matrix")
    if X is None and texts is None:
        raise DataError(f"{where}: found neither features nor texts; wanted one of them")
    sizes = {"X": None if X is None else X.shape[0], "texts": None if texts is None else len(texts)}
    for part, n in sizes.items():
        if n is not None and n != Y.shape[0]:
            raise DataError(f"{where}: found {n} rows in {part} and {Y.shape[0]} in Y; wanted the same number")
    check_entries(split, where)
    if not is_checked(Y):
        as_labels(Y, where)
    if X is not None and not is_checked(X):
        _check_finite(X, where)
    if label_names is not None:
        check_label_names(label_names, Y.shape[1], where)


def check_entries(split: Split | None, where: str) -> None:
    """Raise `DataError` if a matrix of `split` has entries outside its shape, which could crash the process."""
    for name in ("X", "Y"):
        if sp.issparse(part := getattr(split, name, None)):
            as_csr(part, f"{where}, {name}")


def check_label_names(names: Sequence[str], n_labels: int, where: str) -> None:
    """Raise `DataError` unless there are `n_labels` names, all different, without tabs and line ends."""
    if len(names) != n_labels:
        raise DataError(f"{where}: found {len(names)} label names; wanted one for each of {n_labels} labels")
    for position, name in enumerate(names, 1):
        if fault := label_fault(name):
            raise DataError(f"{where}, label {position}: found {name!r}, {fault[0]}; wanted {fault[1]}")
    if len(set(names)) != len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise DataError(f"{where}: found the label name {twice!r} twice; wanted different names")


def label_fault(name: str) -> tuple[str, str] | None:
    """Return what is wrong with a label name and what was wanted, or None if the name is valid."""
    if odd := _ODD.search(name):
        if SURROGATE.match(odd[0]):
            return "a label name with half of a surrogate pair", "text that UTF-8 can hold"
        return "a label name with a tab, line end or zero character", "one without"
    if not name.strip():
        return "an empty label name", "at least one visible character"
    return None


def check_label(name: str, path: Path | str, line: int | None) -> None:
    """Raise `DataError` if a label name is invalid; `path` and `line` go into the message."""
    if fault := label_fault(name):
        raise bad(path, line, f"{shown(name)}, {fault[0]}", fault[1])


def as_features(X: Any, where: str) -> sp.csr_matrix | np.ndarray[Any, Any]:
    """Convert `X` to float32, dense `(n, n_features)` or CSR with sorted indices and no stored zeros.

    Raises `DataError` for a non-finite value, or for a feature that occurs twice in a row.
    """
    with np.errstate(over="ignore"):  # a value that overflows float32 becomes infinite, and is refused below
        if not sp.issparse(X):
            dense = np.ascontiguousarray(X, dtype=np.float32)
            if dense.ndim != 2:
                raise DataError(f"{where}: found an array of shape {dense.shape}; wanted two dimensions")
            _check_finite(dense, where)
            return dense
        out = _float32(as_csr(X, where), where)
    _check_finite(out, where)
    return _canonical(out, X, where, "feature")


def as_labels(Y: Any, where: str) -> sp.csr_matrix:
    """Convert `Y` to a CSR indicator of float32 ones; raise `DataError` for values other than 0 and 1."""
    if not sp.issparse(Y):
        raise DataError(f"{where}: found labels of type {type(Y).__name__}; wanted a sparse matrix")
    out = as_csr(Y, where)
    _check_values(out, lambda values: (values == 0) | (values == 1), where, "label", "0 or 1")
    return _canonical(_float32(out, where), Y, where, "label")


def _float32(M: sp.csr_matrix, where: str) -> sp.csr_matrix:
    if M.dtype.kind == "c":
        raise DataError(f"{where}: found values of type {M.dtype}; wanted real numbers")
    # Not M.astype, which sums duplicates first, even in the caller's matrix.
    return sp.csr_matrix((M.data.astype(np.float32, copy=False), M.indices, M.indptr), shape=M.shape)


def _canonical(M: sp.csr_matrix, original: Any, where: str, what: str) -> sp.csr_matrix:
    if not M.has_sorted_indices or not M.data.all():
        if M is original or np.may_share_memory(M.indices, getattr(original, "indices", M.indices)):
            M = M.copy()  # the caller's matrix stays as it is
        M.eliminate_zeros()
        M.sort_indices()
    if not M.has_canonical_format:
        same = np.flatnonzero(M.indices[1:] == M.indices[:-1])
        rows = np.searchsorted(M.indptr, same, side="right")
        inside = rows == np.searchsorted(M.indptr, same + 1, side="right")
        row, column = _cell(M, int(same[inside][0]))
        raise DataError(f"{where}: found {what} {column} twice in row {row}; wanted each {what} once per row")
    return M


def _check_finite(X: Any, where: str) -> None:
    _check_values(X, np.isfinite, where, "feature", "finite numbers")


def _check_values(X: Any, valid: Callable[[Any], Any], where: str, what: str, wanted: str) -> None:
    """Raise `DataError` at the first invalid value. Reads blocks, since a mapped matrix may exceed memory."""
    values = X.data if sp.issparse(X) else X
    for block in blocks(len(values), max(1, BLOCK // max(1, math.prod(values.shape[1:])))):
        right = valid(values[block])
        if not right.all():
            first = tuple(np.argwhere(~right)[0])
            at = block.start + int(first[0])
            row, column = _cell(X, at) if sp.issparse(X) else (at + 1, first[1])
            found = values[block][first]
            raise DataError(f"{where}: found {found} at row {row}, {what} {column}; wanted {wanted}")
        release(X)


def _cell(M: sp.csr_matrix, position: int) -> tuple[int, int]:
    """Return row (from 1) and column (from 0) of the stored value at `position`."""
    return int(np.searchsorted(M.indptr, position, side="right")), int(M.indices[position])


def first_rows(dataset: Dataset, n: int = 3, width: int = 80) -> list[dict[str, Any]]:
    """Return the first training rows, each with its `labels`: names, or ids if labels have no names.

    A row also has its `text`, cut to one line of `width` characters, or its number of non-zero `features`.
    """
    X: Any = dataset.train.X
    Y, texts = dataset.train.Y, dataset.train.texts
    rows: list[dict[str, Any]] = []
    for row in range(min(n, dataset.train.n)):
        if texts is not None:
            about: dict[str, Any] = {"text": one_line(texts[row], width)}
        else:
            about = {"features": int(X[row].nnz if sp.issparse(X) else np.count_nonzero(X[row]))}
        rows.append({**about, "labels": [_name(dataset, label) for label in Y[row].indices.tolist()]})
    return rows


def frequent_labels(dataset: Dataset, n: int = 10) -> list[dict[str, Any]]:
    """Return `label` (name or id) and `count` of the most frequent training labels; for ties, lower ids first."""
    # Not np.bincount, whose result has the size that a file claims.
    ids, counts = np.unique(dataset.train.Y.indices, return_counts=True)
    best = np.argsort(-counts, kind="stable")[:n]
    return [{"label": _name(dataset, int(ids[at])), "count": int(counts[at])} for at in best]


def one_line(text: str, width: int) -> str:
    """Replace line ends and repeated spaces in `text` by single spaces, and cut it to `width` characters."""
    start = " ".join(text[: 20 * width].split())
    return start if len(start) <= width and len(text) <= 20 * width else start[: width - 1] + "…"


def _name(dataset: Dataset, label: int) -> str | int:
    return label if dataset.label_names is None else dataset.label_names[label]


#: Entries per block where all entries are read.
BLOCK = 1 << 20


def as_csr(matrix: Any, where: str) -> Any:
    """Return a sparse matrix as CSR, without a copy where possible.

    Raise a `DataError`, which starts with `where`, if its parts do not fit together, or do not fit its shape.
    Within a row, columns may still be unsorted or repeated. Values are not checked.
    """
    if matrix.ndim != 2:
        raise DataError(f"{where}: found a sparse matrix of shape {matrix.shape}; wanted two dimensions")
    if matrix.format in ("csr", "csc", "bsr"):
        if is_checked(matrix):
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


def widen(matrix: sp.csr_matrix, width: int) -> sp.csr_matrix:
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
    """Some rows of a mapped matrix; they stay in the files until they are needed."""

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


def mark_checked(X: sp.csr_matrix) -> None:
    """Mark a mapped matrix as checked, so that its files are not read again for a check."""
    X.checked_parts = (X.data, X.indices, X.indptr)


def is_checked(X: Any) -> bool:
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


def names_by_uri(names: Sequence[str] | None, uris: Sequence[str] | None) -> dict[str, str]:
    """Map the labels' URIs to their names; empty if the labels have no URIs or no names."""
    return {} if names is None or uris is None else dict(zip(uris, names, strict=True))
