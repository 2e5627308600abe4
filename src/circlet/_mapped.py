"""Sparse matrices whose arrays lie in files: rows are read when they are asked for, and forgotten."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["blocks", "is_mapped", "release"]

#: Entries looked at at a time where all of them have to be.
BLOCK = 1 << 20


def is_mapped(X: Any) -> bool:
    """Whether a matrix is sparse and its entries lie in a file."""
    return sp.issparse(X) and X.format == "csr" and _map_of(X.data) is not None


def release(X: Any) -> None:
    """Let go of what was read of a mapped matrix: the system may keep it, the process does not count it."""
    if not is_mapped(X) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    for array in (X.data, X.indices, X.indptr):
        if (file := _map_of(array)) is not None:
            file.madvise(mmap.MADV_DONTNEED)


def blocks(n: int, size: int | None = None) -> Iterator[slice]:
    """Slices of so many entries one after the other."""
    size = size or BLOCK
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _map_of(array: Any) -> mmap.mmap | None:
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None
