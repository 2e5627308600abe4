"""`index.safetensors`: vectors of the training documents, to find documents similar to a new one.

A document's vector consists of the networks' predicted codes, and has length 1. It is stored as integers −127…127
with a scale. Head `fc` predicts one number per label, so its vector is the last hidden layer instead, whose size
does not depend on the number of labels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.files import write_tensors
from circlet.storage.layout import INDEX, checked
from circlet.storage.network_spec import Member, members_of
from circlet.storage.tensors import map_tensors

__all__ = ["Index", "read_index", "vector_width", "write_index"]

Identifier = str | int


@dataclass(frozen=True, eq=False)
class Index:
    """Vectors of documents.

    Parameters
    ----------
    numbers : int8 ndarray of shape (n, width)
    scales : float32 ndarray of shape (n,)
        Factors that give rows length 1; 0 for a document without a prediction.
    ids : list of str or int, or None
        Ids of the documents; None if they are numbered from 0.
    """

    numbers: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    ids: list[Identifier] | None = None

    def __len__(self) -> int:
        return len(self.scales)

    @classmethod
    def of(cls, vectors: npt.NDArray[np.float32], ids: Sequence[Identifier] | None = None) -> Index:
        """Make an index of vectors of any length."""
        largest = np.abs(vectors).max(axis=1, initial=0)
        numbers = np.rint(vectors * (127 / np.where(largest > 0, largest, 1))[:, None]).astype(np.int8)
        norms = np.sqrt(np.einsum("ij,ij->i", numbers, numbers, dtype=np.float64))
        scales = np.where(norms > 0, 1 / np.where(norms > 0, norms, 1), 0).astype(np.float32)
        return cls(numbers, scales, None if ids is None else list(ids))

    def extended(self, more: Index) -> Index:
        """Append the documents of another index; without ids, they continue the numbering."""
        ids = None
        if self.ids is not None or more.ids is not None:
            numbered = range(len(self) + len(more))
            first = self.ids or list(numbered[: len(self)])
            ids = [*first, *(more.ids or numbered[len(self) :])]
        numbers = np.concatenate([self.numbers, more.numbers])
        return Index(numbers, np.concatenate([self.scales, more.scales]), ids)


def vector_width(members: Sequence[Member]) -> int:
    """Return the length of a document's vector."""
    settings = members[0].settings
    if settings.codes is None:
        return len(members) * int(settings.hidden[-1])
    return len(members) * int(settings.dim) * (1 if settings.codes == "real" else 2)


def write_index(path: Path, index: Index) -> None:
    """Write an index to a file."""
    arrays: dict[str, npt.NDArray[Any]] = {"vectors": index.numbers, "scales": index.scales}
    if index.ids is not None:
        text = json.dumps(index.ids, ensure_ascii=True, separators=(",", ":")).encode()
        arrays["ids"] = np.frombuffer(text, dtype=np.uint8)
    write_tensors(path, arrays)


def read_index(folder: Path, config: dict[str, Any], *, whole: bool = False) -> Index | None:
    """Read the index of a model with this configuration, memory-mapped; return None if it has none.

    Unless `whole`, only parts of a large file are checked; see `circlet.storage.layout`.
    """
    if INDEX not in config["files"]:
        return None
    path = checked(folder, config, INDEX, whole=whole)
    found = map_tensors(path)
    if not {"vectors", "scales"} <= set(found) <= {"vectors", "scales", "ids"}:
        raise DataError(f"{path}: found the tensors {sorted(found)}; wanted vectors, scales and maybe ids")
    vectors, scales, width = found["vectors"], found["scales"], vector_width(members_of(config))
    if vectors.dtype != np.int8 or vectors.ndim != 2 or vectors.shape[1] != width or not len(vectors):
        raise DataError(
            f"{path}: found vectors of type {vectors.dtype} and shape {vectors.shape}; "
            f"wanted int8 and {width} columns"
        )
    fits = scales.dtype == np.float32 and scales.shape == (len(vectors),)
    if not fits or not np.isfinite(scales).all() or (scales < 0).any() or (scales > 1).any():
        raise DataError(f"{path}: found damaged scales; wanted {len(vectors)} numbers between 0 and 1 in float32")
    return Index(vectors, scales.copy(), _read_ids(path, found, len(vectors)))


def _read_ids(path: Path, found: dict[str, npt.NDArray[Any]], n: int) -> list[Identifier] | None:
    if "ids" not in found:
        return None
    try:
        ids = json.loads(found["ids"].tobytes())
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or len(ids) != n or not all(type(each) in (str, int) for each in ids):
        raise DataError(f"{path}: found damaged ids; wanted a list of {n} texts or integers")
    return ids
