"""What the tensors of a folder are: weights of networks, arrays of the scaling, and how often labels occurred."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.folder.precision import Stored

__all__ = ["Parts", "other_tensors", "parts_of"]

#: The prefix of the scaling's arrays.
ARRAYS = "features."
#: The name of the label counts: ids and counts of the labels that occur.
COUNTS = "label_counts"


class Parts(NamedTuple):
    """The tensors of a folder."""

    weights: dict[str, Stored]
    scaling: Scaling
    label_counts: npt.NDArray[np.int64] | None


def parts_of(path: Path, tensors: Mapping[str, Stored], config: dict[str, Any]) -> Parts:
    """Tell apart the tensors of the file `path`, of a model with this configuration."""
    # Copied, because as long as anything in a mapped file is in use, some systems do not let it be replaced.
    arrays = {
        name.removeprefix(ARRAYS): each.read().copy() for name, each in tensors.items() if name.startswith(ARRAYS)
    }
    scaling = Scaling.restore(config["scaling"], arrays, config["n_features"])
    counts = None
    if COUNTS in tensors:  # unless the model was made without a count of labels
        counts = _unpacked_counts(path, tensors[COUNTS].read(), config["n_labels"])
    rest = {name: each for name, each in tensors.items() if name != COUNTS and not name.startswith(ARRAYS)}
    return Parts(rest, scaling, counts)


def other_tensors(scaling: Scaling, label_counts: npt.NDArray[np.int64] | None) -> dict[str, npt.NDArray[Any]]:
    """What a folder holds besides the weights, by name."""
    arrays: dict[str, npt.NDArray[Any]] = {ARRAYS + name: array for name, array in scaling.arrays.items()}
    return arrays if label_counts is None else {**arrays, COUNTS: _packed_counts(label_counts)}


def _packed_counts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Ids and counts of the labels that occur, `(2, m)`: the folder does not grow with labels never seen."""
    ids = np.flatnonzero(counts)
    return np.stack([ids, counts[ids]]).astype(np.int32)


def _unpacked_counts(path: Path, packed: npt.NDArray[Any], n_labels: int) -> npt.NDArray[np.int64]:
    fits = packed.dtype == np.int32 and packed.ndim == 2 and len(packed) == 2
    ids, values = packed.astype(np.int64) if fits else (np.array([-1]), np.array([0]))
    if (ids < 0).any() or (ids >= n_labels).any() or (np.diff(ids) <= 0).any() or (values < 1).any():
        raise DataError(f"{path}: found damaged {COUNTS}; wanted ascending ids below {n_labels} and their counts")
    counts = np.zeros(n_labels, dtype=np.int64)
    counts[ids] = values
    return counts
