"""The rows of a large mapped matrix that documents have needed so far.

A mapped page counts as the process's memory once it is touched, and systems map up to two megabytes around it.
With many features, a few documents would pull in most of a first layer of which they need a hundredth. So its rows
are read into memory of our own, each when it is first needed.
"""

from __future__ import annotations

import mmap
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
        # Pages that nobody has written to take no memory. NumPy's own memory would come in pages of 2 MB, and the
        # first use of such a page can take milliseconds.
        capacity = KEPT // self._row_bytes
        memory = mmap.mmap(-1, max(1, capacity) * self._row_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.rows = np.frombuffer(memory, np.float32).reshape(-1, matrix.shape[1])[:capacity]

    @classmethod
    def of(cls, matrix: npt.NDArray[np.float32]) -> RowCache | None:
        """A cache for a matrix if it is large and mapped from a file."""
        place = place_in_file(matrix) if matrix.nbytes > KEPT else None
        return None if place is None else cls(matrix, place)

    def find(self, wanted: npt.NDArray[np.integer]) -> npt.NDArray[np.int32] | None:
        """Where rows of the matrix are among `rows`, once they are all read; None if they are too many."""
        places: npt.NDArray[np.int32] = self._places[wanted]
        if places.min(initial=0) < 0:
            with self._reading:
                missing = np.unique(wanted[self._places[wanted] < 0])
                if self._used + len(missing) > len(self.rows):
                    return None
                self._read(missing)
            places = self._places[wanted]
        return places

    def _read(self, missing: npt.NDArray[np.integer]) -> None:
        for place, row in enumerate(missing.tolist(), self._used):
            found = os.preadv(self._descriptor, [self.rows[place]], self._offset + row * self._row_bytes)
            if found != self._row_bytes:
                raise DataError(
                    "found fewer weights than when the model was loaded: its file was changed; load it again"
                )
        end = self._used + len(missing)
        self._places[missing] = np.arange(self._used, end)  # only now, since others look without the lock
        self._used = end
