"""Targets in all forms that users pass, and their conversion to an indicator for training.

| kind | what `y` is | `classes` |
|---|---|---|
| indicator | a sparse or dense matrix of zeros and ones, `(n, n_labels)` | the column numbers |
| named | a list of label lists, of str or of int | the labels, sorted; later ones are appended |
| single | one class for each row, 1-d | the classes, likewise |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import is_integer
from circlet.data.dataset import as_labels, check_label_names
from circlet.errors import DataError
from circlet.storage.layout import MOST_LABELS

_ROWS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True, eq=False)
class Targets:
    """The known labels, and the kind of target that they come from."""

    kind: str  # one of `circlet.storage.contents.KINDS`
    classes: npt.NDArray[Any]  # (n_labels,)

    @property
    def single(self) -> bool:
        """Whether a row has exactly one label."""
        return self.kind == "single"

    def names(self) -> list[str] | None:
        """Return the labels as text; None if they are only columns."""
        return None if self.kind == "indicator" else [str(label) for label in self.classes.tolist()]

    @classmethod
    def of(cls, y: Any, classes: Any = None) -> Targets:
        """The targets of `y`, and of the labels `classes` that may come later."""
        kind, labels = _read(y)
        if kind == "indicator":
            if not labels.shape[1]:
                raise DataError("y: found an indicator without columns; wanted a column for each label")
            return cls(kind, np.arange(labels.shape[1]))
        return cls(kind, np.empty(0, dtype=object))._with(labels, classes)

    def extended(self, y: Any, classes: Any = None) -> Targets:
        """These targets, with new labels of `y` and `classes` appended; the old ones keep their places."""
        kind, labels = self._read_same_kind(y)
        if kind == "indicator":
            return Targets(kind, np.arange(labels.shape[1]))
        return self._with(labels, classes)

    def encode(self, y: Any) -> sp.csr_matrix:
        """The indicator of `y`, `(n, n_labels)`; labels that are not among the classes are left out."""
        kind, labels = self._read_same_kind(y)
        if kind == "indicator":
            return labels[:, : len(self.classes)]
        place = {label: position for position, label in enumerate(self.classes.tolist())}
        if kind == "single":
            present = _distinct_classes(labels)
            position = np.searchsorted(present, labels)
            flat = [place.get(label, -1) for label in present.tolist()]
            ids, lengths = np.array(flat, dtype=np.int64)[position.ravel()], np.ones(len(labels), dtype=np.int64)
        else:
            flat, lengths = labels
            _distinct(flat)  # refuses labels that are collections
            ids = np.fromiter((place.get(label, -1) for label in flat), dtype=np.int64, count=len(flat))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        known = ids >= 0
        shape = (len(lengths), len(self.classes))
        Y = sp.csr_matrix((np.ones(known.sum(), dtype=np.float32), (rows[known], ids[known])), shape=shape)
        Y.data[:] = 1  # a label that occurs twice in a row was added up
        Y.sort_indices()
        return Y

    def _read_same_kind(self, y: Any) -> tuple[str, Any]:
        kind, labels = _read(y, self.kind)
        if kind != self.kind:
            raise DataError(
                f"found targets of the kind {kind}; this classifier was fitted on the kind {self.kind}"
            )
        if kind == "indicator" and labels.shape[1] < len(self.classes):
            raise DataError(
                f"found an indicator of {labels.shape[1]} labels; this classifier knows {len(self.classes)}, "
                "and wanted at least as many columns"
            )
        return kind, labels

    def _with(self, labels: Any, classes: Any) -> Targets:
        found = _distinct_classes(labels) if self.single else _sorted_names(labels[0])
        if classes is not None:
            further = _distinct_classes(_read(classes)[1]) if self.single else _sorted_names(classes)
            if len(found) and len(further) and isinstance(found[0], str) != isinstance(further[0], str):
                raise DataError(
                    f"classes: found {further.tolist()[0]!r}; wanted labels like {found.tolist()[0]!r}"
                )
            found = np.unique(np.concatenate([found, further]))
        if len(self.classes):
            old = set(self.classes.tolist())
            new = [label for label in found.tolist() if label not in old]
            if new and isinstance(new[0], str) != isinstance(self.classes[0], str):
                raise DataError(f"found the label {new[0]!r}; wanted labels like {self.classes.tolist()[0]!r}")
            found = np.concatenate([self.classes, np.array(new, dtype=found.dtype)]) if new else self.classes
        if not len(found):
            raise DataError("found no label in any row; wanted at least one")
        extended = Targets(self.kind, found)
        check_label_names(extended.names() or [], len(found), "y")
        return extended


def renamed(y: Any, names: Mapping[str, str]) -> Any:
    """Label lists with other names for some labels, such as names for URIs; other targets stay as they are."""
    rows = _label_rows(y) if names else None
    if rows is None:
        return y
    return [[names.get(label, label) if isinstance(label, str) else label for label in row] for row in rows]


def _sorted_names(flat: Any) -> npt.NDArray[Any]:
    """Distinct labels, sorted: int, or str as objects, so that one long name does not widen all."""
    labels = _distinct(flat)
    texts = sum(isinstance(label, str) for label in labels)
    if texts == len(labels):
        return np.array(sorted(map(str, labels)), dtype=object)
    for label in labels:
        if texts or not is_integer(label):
            found = next(label for label in labels if not isinstance(label, str)) if texts else label
            wanted = "labels that are all text" if texts else "labels that are all text or all integers"
            raise DataError(f"found the label {found!r} of type {type(found).__name__}; wanted {wanted}")
    return _as_int64(sorted(map(int, labels)))


def _distinct(flat: Any) -> set[Any]:
    try:
        return set(flat.tolist() if isinstance(flat, np.ndarray) else flat)
    except TypeError as error:
        raise DataError(f"y: found a label that is a collection ({error}); wanted text or integers") from error


def _read(y: Any, before: str | None = None) -> tuple[str, Any]:
    """The kind of `y`, and its labels: a CSR indicator, (labels of all rows, labels per row), or a 1-d array.

    Lists that could be of two kinds are read as the kind that was seen `before`.
    """
    if sp.issparse(y):
        if y.ndim == 2 and y.shape[1] > MOST_LABELS:
            raise DataError(f"y: found {y.shape[1]:,} columns; wanted at most {MOST_LABELS:,} labels")
        return "indicator", as_labels(y, "y")
    if (rows := _label_rows(y)) is not None:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = list(chain.from_iterable(rows))
        # Lists of one length are rows of zeros and ones if they have nothing else, since no document has the same
        # label twice. With two columns, lists that are all {0, 1} could be either.
        even = len(lengths) > 0 and lengths[0] > 1 and bool((lengths == lengths[0]).all())
        if before == "named" or not even or not _distinct(flat) <= {0, 1}:
            return "named", (flat, lengths)
        y = np.array(flat, dtype=np.float32).reshape(len(rows), -1)
    array = np.asarray(y)
    if array.ndim != 2 or array.shape[1] == 1:
        return "single", _classes_of_rows(y)
    try:
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        numbers = array.astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"y: found a matrix that is not of numbers ({error}); wanted zeros and ones") from error
    return "indicator", as_labels(sp.csr_matrix(numbers), "y")


def _label_rows(y: Any) -> list[Any] | None:
    """The label lists if `y` has them, in a list or in a 1-d array or series of objects; else None."""
    if not isinstance(y, (list, tuple)):
        if getattr(y, "ndim", 0) != 1 or getattr(getattr(y, "dtype", None), "kind", "") != "O":
            return None
        y = y.tolist()
    if not y or not any(isinstance(row, _ROWS) for row in y):
        return None
    for position, row in enumerate(y):
        if not isinstance(row, _ROWS):
            raise DataError(f"y, row {position + 1}: found {row!r}; wanted a list of labels, as in other rows")
    return list(y)


def _classes_of_rows(y: Any) -> npt.NDArray[Any]:
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, column_or_1d

    y = _of_one_kind(y)
    try:
        checked = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=None, input_name="y")
        labels: npt.NDArray[Any] = np.asarray(checked)
        _distinct_classes(labels)  # names the types of classes that can't be sorted, as scikit-learn does not
        check_classification_targets(checked)
    except ValueError as error:
        raise DataError(str(error)) from error
    if labels.dtype.kind == "u":
        return _as_int64(labels.tolist())
    return labels.astype(object) if labels.dtype.kind == "T" else labels


def _of_one_kind(y: Any) -> Any:
    """Classes as they are, or integers as int64, before NumPy makes text or floating-point numbers of some.

    Classes that a model's folder can't hold, such as dates, raise `DataError`.
    """
    array = None if isinstance(y, (list, tuple)) else np.asarray(y)
    if array is not None and array.dtype.kind != "O":
        if array.dtype.kind not in "UTiufb":
            raise DataError(f"y: found classes of type {array.dtype}; wanted text or numbers")
        return y
    labels = list(y) if array is None else array.ravel().tolist()
    if labels and all(map(is_integer, labels)):
        return _as_int64([int(label) for label in labels])
    texts = sum(isinstance(label, str) for label in labels)
    if 0 < texts < len(labels):
        raise _different_types(labels)
    if odd := [label for label in labels if not isinstance(label, (str, Real, np.bool_))]:
        raise DataError(f"y: found the class {odd[0]!r} of type {type(odd[0]).__name__}; wanted text or numbers")
    return y


def _different_types(labels: list[Any]) -> DataError:
    kinds = sorted({type(label).__name__ for label in labels})
    return DataError(f"y: found classes of the types {', '.join(kinds)}; wanted classes of one type")


def _as_int64(labels: list[int]) -> npt.NDArray[np.int64]:
    try:
        return np.array(labels, dtype=np.int64)
    except OverflowError:
        limit = np.iinfo(np.int64)
        wrong = next(label for label in labels if not limit.min <= label <= limit.max)
        raise DataError(
            f"found the label {wrong}; wanted integers from −2⁶³ to 2⁶³ − 1, or the labels as text"
        ) from None


def _distinct_classes(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The classes of one-class rows, sorted."""
    try:
        return np.unique(labels)
    except TypeError as error:
        raise _different_types(labels.tolist()) from error
