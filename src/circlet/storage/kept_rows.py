"""What a model keeps of the documents that it was trained on.

- `sample.safetensors`: some held-out rows and their labels, to measure smaller copies of the model;
- `remembered.safetensors`: some training rows and their labels, so that the model forgets nothing when it learns
  from feedback;
- `index.safetensors`: a vector of each training document, to find documents similar to a new one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.errors import DataError
from circlet.files import write_tensors
from circlet.storage.layout import INDEX, SAMPLE, checked
from circlet.storage.network_spec import Member, members_of
from circlet.storage.tensors import map_tensors

#: Limits on held-out rows: their number, and the total number of their feature values (2 MB).
ROWS, NUMBERS = 2000, 250_000
#: The limit on feature values of remembered rows: 4 MB.
REMEMBERED_NUMBERS = 500_000


class Sample(NamedTuple):
    """Documents and their labels."""

    rows: Any  # scaled features, as the network takes them: a csr_matrix or an ndarray
    labels: sp.csr_matrix


def sample_of(rows: Any, labels: sp.csr_matrix, most: int = ROWS, numbers: int = NUMBERS) -> Sample | None:
    """Take at most `most` evenly spaced rows with about `numbers` values, and their labels; None if empty."""
    n = labels.shape[0]
    if not n or not most:
        return None
    some = rows[np.arange(n)[_spaced(n, most)]]
    each = (some.nnz if sp.issparse(some) else some.size) / max(1, some.shape[0])
    chosen = _spaced(n, min(most, max(1, int(numbers / max(1.0, each)))))
    return Sample(rows[chosen], labels[chosen])


def merged(before: Sample | None, after: Sample | None, share: float, most: int) -> Sample | None:
    """Merge two samples; the second gets this share of the result."""
    if before is None or after is None:
        return after if before is None else before
    wanted = round(share * most)
    counts = ((before, most - wanted), (after, wanted))
    kept = [sample_of(*part, count, REMEMBERED_NUMBERS * count // max(1, most)) for part, count in counts]
    parts = [part for part in kept if part is not None]
    width = after.labels.shape[1]
    labels = [sp.csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], width)) for _, Y in parts]
    stack = sp.vstack if sp.issparse(after.rows) else np.vstack
    return Sample(stack([part.rows for part in parts]), sp.vstack(labels, format="csr"))


def write_sample(path: Path, sample: Sample) -> None:
    """Write a sample to a file."""
    sparse = sp.issparse(sample.rows)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for part, matrix in (("labels", sample.labels.tocsr()), ("rows", sample.rows)):
        if part == "labels" or sparse:
            arrays[f"{part}.starts"] = matrix.indptr.astype(np.int32)
            arrays[f"{part}.columns"] = matrix.indices.astype(np.int32)
    arrays["rows.values"] = np.asarray(sample.rows.data if sparse else sample.rows, dtype=np.float32)
    write_tensors(path, arrays)


def read_sample(folder: Path, config: dict[str, Any], name: str = SAMPLE) -> Sample | None:
    """Read the sample with this file name; None if the model has none."""
    if name not in config["files"]:
        return None
    path = checked(folder, config, name)
    found = map_tensors(path)
    wanted = {f"{part}.{name}" for part in ("labels", "rows") for name in ("starts", "columns")} | {"rows.values"}
    if not config["sparse"]:
        wanted -= {"rows.starts", "rows.columns"}
    if set(found) != wanted:
        raise DataError(f"{path}: found the tensors {sorted(found)}; wanted {sorted(wanted)}")
    values = found["rows.values"]
    if values.dtype != np.float32 or not np.isfinite(values).all():
        raise DataError(f"{path}: found damaged rows.values; wanted finite numbers in float32")
    n = len(found["labels.starts"]) - 1
    ones = np.ones(len(found["labels.columns"]), dtype=np.float32)
    labels = _matrix(path, "labels", found, ones, n, config["n_labels"])
    if config["sparse"]:
        return Sample(_matrix(path, "rows", found, values, n, config["n_features"]), labels)
    if values.shape != (n, config["n_features"]):
        raise DataError(f"{path}: found rows of shape {values.shape}; wanted {(n, config['n_features'])}")
    return Sample(values, labels)


def _spaced(n: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` evenly spaced row numbers below n."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def _matrix(
    path: Path,
    part: str,
    found: dict[str, npt.NDArray[Any]],
    values: npt.NDArray[np.float32],
    n_rows: int,
    n_columns: int,
) -> sp.csr_matrix:
    starts, columns = found[f"{part}.starts"], found[f"{part}.columns"]
    flat = all(each.dtype == np.int32 and each.ndim == 1 for each in (starts, columns)) and values.ndim == 1
    ends = (int(starts[0]), int(starts[-1])) if flat and len(starts) else None
    if ends != (0, len(values)) or len(starts) != n_rows + 1 or (np.diff(starts) < 0).any() or n_rows < 1:
        raise DataError(f"{path}: found damaged {part}.starts; wanted where each of {n_rows} rows starts")
    if len(columns) != len(values) or ((columns < 0) | (columns >= n_columns)).any():
        raise DataError(f"{path}: found damaged {part}.columns; wanted {len(values)} numbers below {n_columns}")
    return sp.csr_matrix((values, columns, starts), shape=(n_rows, n_columns))


# The index. A document's vector consists of the networks' predicted codes, and has length 1. It is stored as
# integers −127…127 with a scale. Head `fc` predicts one number per label, so its vector is the last hidden layer
# instead, whose size does not depend on the number of labels.

Identifier = str | int


@dataclass(frozen=True, eq=False)
class Index:
    """Vectors of documents."""

    numbers: npt.NDArray[np.int8]  # (n, width)
    scales: npt.NDArray[np.float32]  # factors that give rows length 1; 0 for a document without a prediction
    ids: list[Identifier] | None = None  # None if documents are numbered from 0

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
    if "ids" not in found:
        return Index(vectors, scales.copy())
    try:
        ids = json.loads(found["ids"].tobytes())
    except (ValueError, RecursionError):
        ids = None
    n = len(vectors)
    if not isinstance(ids, list) or len(ids) != n or not all(type(each) in (str, int) for each in ids):
        raise DataError(f"{path}: found damaged ids; wanted a list of {n} texts or integers")
    return Index(vectors, scales.copy(), ids)
