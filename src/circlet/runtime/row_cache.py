"""The rows of a large mapped matrix that documents have needed so far.

A mapped page counts as the process's memory once it is touched, and systems map up to two megabytes around it.
With many features, a few documents would pull in most of a first layer of which they need a hundredth. So its rows
are read into memory of our own, each when it is first needed.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.folder.tensors import place_in_file

__all__ = ["RowCache"]

#: Bytes of the rows that are kept. Smaller matrices are not worth it.
KEPT = 1 << 26


class RowCache:
    """Some rows of a mapped matrix; several threads can use it at once.

    Parameters
    ----------
    matrix : float32 ndarray of shape (n, columns)
        Over a mapped file.
    place : (descriptor, offset)
        Where the matrix is; see `circlet.folder.tensors.place_in_file`.

    Attributes
    ----------
    rows : float32 ndarray of shape (capacity, columns)
        The rows that were needed so far, in the order in which they were read.
    """

    def __init__(self, matrix: npt.NDArray[np.float32], place: tuple[int, int]) -> None:
        self._descriptor, self._offset = place
        self._row_bytes = matrix.strides[0]
        self._used, self._reading = 0, threading.Lock()
        #: The place of each row of the matrix among those that were read; −1 if it was not.
        self._places = np.full(len(matrix), -1, dtype=np.int32)
        # Memory that nobody has written to yet takes none.
        self.rows = np.empty((KEPT // self._row_bytes, matrix.shape[1]), dtype=np.float32)

    @classmethod
    def of(cls, matrix: npt.NDArray[np.float32]) -> RowCache | None:
        """A cache for a matrix if it is large and mapped from a file."""
        if matrix.nbytes <= KEPT or not hasattr(os, "preadv"):
            return None
        place = place_in_file(matrix)
        return None if place is None else cls(matrix, place)

    def find(self, wanted: npt.NDArray[np.integer]) -> npt.NDArray[np.int32] | None:
        """Where rows of the matrix are among `rows`, once they are all read; None if they are too many."""
        places: npt.NDArray[np.int32] = self._places[wanted]
        if places.min(initial=0) < 0:
            with self._reading:
                missing = np.unique(wanted[self._places[wanted] < 0])
                if self._used + len(missing) > len(self.rows):
                    return None
                for row in missing.tolist():
                    self._read(row)
            places = self._places[wanted]
        return places

    def _read(self, row: int) -> None:
        found = os.preadv(self._descriptor, [self.rows[self._used]], self._offset + row * self._row_bytes)
        if found != self._row_bytes:
            raise DataError(
                "found fewer weights than when the model was loaded: its file was changed; load it again"
            )
        self._places[row] = self._used  # only now, since others look without the lock
        self._used += 1
