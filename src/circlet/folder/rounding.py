"""Weights as small integers: all numbers of a row are multiples of one step.

Steps of a few times a matrix's root mean square leave most numbers at 0 and nearly all others at ±1. What is lost
then are the numbers that become 0, hardly the sizes of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from circlet.folder.precision import Array, Floats, Stored, check_finite, exact, is_matrix

__all__ = ["alike", "rounded", "steps_of"]

#: Numbers that are rounded at a time: 16 MB in float32.
_BLOCK = 1 << 22


def steps_of(tensors: Mapping[str, Array], store: str) -> dict[str, Floats]:
    """The steps of the rows of each float32 matrix, `(rows,)`, for a coarseness of 1.

    In the largest matrix it is the root mean square of all numbers. A matrix with a share s of that many numbers
    has √s of it: a bit less for every number then saves s times as much, and the squared error is s times as
    large.

    Of n rows that are equal, each has 1/√n of it: a document that has one of these features mostly has all, so
    their errors add up, while they are stored only once.

    A matrix that is not finite raises `DataError`, which says that `store` can't hold it.
    """
    matrices = {name: tensor for name, tensor in tensors.items() if is_matrix(tensor, np.float32)}
    largest = max((matrix.size for matrix in matrices.values()), default=1)
    out: dict[str, Floats] = {}
    for name, matrix in matrices.items():
        check_finite(name, matrix, matrix, store)
        spread = float(np.linalg.norm(matrix.astype(np.float64))) / math.sqrt(max(1, matrix.size))
        first, which = alike(matrix)
        equal = np.bincount(which, minlength=len(first))[which]
        out[name] = (spread * math.sqrt(matrix.size / largest) / np.sqrt(equal)).astype(np.float32)
    return out


def rounded(tensors: Mapping[str, Array], steps: Mapping[str, Floats], coarseness: float) -> dict[str, Stored]:
    """Round matrices to integers −127…127; tensors that have no steps stay as they are.

    Parameters
    ----------
    tensors : mapping of str to ndarray
    steps : mapping of str to ndarray of shape (rows,)
        As `steps_of` returns them.
    coarseness : float
        What the steps are multiplied by. A row with numbers above 127 steps has a longer one.
    """
    return {
        name: Stored(tensor) if name not in steps else _rounded(tensor, np.float32(coarseness) * steps[name])
        for name, tensor in tensors.items()
    }


def alike(matrix: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows of a matrix that are different, and for each row which of them it is equal to.

    Returns
    -------
    first : ndarray of int64
        The first of the rows that are equal, ascending.
    which : ndarray of int64 of shape (rows,)
        A position in `first`.
    """
    seen: dict[bytes, int] = {}
    digests = (blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(matrix))
    which = np.fromiter((seen.setdefault(each, len(seen)) for each in digests), np.int64, len(matrix))
    return np.unique(which, return_index=True)[1].astype(np.int64), which


def _rounded(matrix: Floats, steps: Floats) -> Stored:
    numbers, scales = np.empty(matrix.shape, dtype=np.int8), np.empty(len(matrix), dtype=np.float32)
    rows = max(1, _BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), rows):
        part = slice(start, start + rows)
        largest = np.abs(matrix[part]).max(axis=1, initial=0)
        scales[part] = exact(np.maximum(largest / np.float32(127), steps[part]))
        numbers[part] = np.rint(matrix[part] / scales[part, None])
    return Stored(numbers, scales, rounded=True)
