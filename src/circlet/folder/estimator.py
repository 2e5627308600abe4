"""`estimator.json`: what only `CircletClassifier` knows about a model, such as what its labels are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet import files
from circlet.errors import DataError
from circlet.version import __version__

__all__ = ["FORMAT", "KINDS", "classes_of", "read_estimator"]

FORMAT = 1
#: What targets are: a matrix of zeros and ones, lists of labels, or one class for each row.
KINDS = ("indicator", "named", "single")
_KEYS = {"format", "circlet", "parameters", "encoder", "target", "classes", "feature_names"}


def read_estimator(path: Path) -> dict[str, Any]:
    """Read and check `estimator.json`."""
    state = files.read_json(path)
    if not isinstance(state, dict) or "format" not in state:
        raise DataError(f"{path}: found no description of a classifier; wanted one that circlet saved")
    if state["format"] != FORMAT:
        raise DataError(
            f"{path}: found format {str(state['format'])[:40]}; circlet {__version__} reads format {FORMAT}"
        )
    if set(state) != _KEYS:
        raise DataError(f"{path}: found the keys {sorted(state)}; wanted {sorted(_KEYS)}")
    parameters, names = state["parameters"], state["feature_names"]
    if not isinstance(parameters, dict):
        raise DataError(f"{path}: found the parameters {str(parameters)[:80]}; wanted values by name")
    if not isinstance(state["target"], str) or state["target"] not in KINDS:
        raise DataError(f"{path}: found the target {state['target']!r}; wanted one of {', '.join(KINDS)}")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DataError(f"{path}: found feature names {str(names)[:80]}; wanted a list of text strings")
    return state


def classes_of(
    path: Path, state: dict[str, Any], n_features: int, n_labels: int, label_names: list[str] | None
) -> npt.NDArray[Any]:
    """The labels that the file `path` describes, `(n_labels,)`: names or classes, or column numbers."""
    names = state["feature_names"]
    if names is not None and len(names) != n_features:
        raise DataError(f"{path}: found {len(names)} feature names; wanted {n_features}")
    if state["target"] == "indicator":
        return np.arange(n_labels)
    try:
        dtype, values = np.dtype(state["classes"]["dtype"]), state["classes"]["values"]
        if dtype.itemsize > 8:  # of text, each class could claim gigabytes
            raise ValueError(f"the type {dtype}")
        classes: npt.NDArray[Any] = np.array(label_names if values is None else values, dtype=dtype)
        different = len(set(classes.tolist()))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: found damaged classes ({error!r})") from error
    if classes.shape != (n_labels,) or different != n_labels or dtype.kind not in "OUiufb":
        raise DataError(f"{path}: found {different} different classes of type {dtype}; wanted {n_labels} labels")
    return classes
