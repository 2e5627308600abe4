"""Read and check a model's folder: the whole content, then its tensors, labels and `estimator.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.data.dataset import check_label_names
from circlet.encoders import FEATURES, TextEncoder, TextInput, find
from circlet.errors import CircletError, DataError
from circlet.features.rows import Scaling
from circlet.features.vectorizer import STATE_FILE, TENSOR_FILE, TextVectorizer
from circlet.storage import packed_weights
from circlet.storage.kept_rows import Index, Sample, read_index, read_sample
from circlet.storage.layout import (
    CONFIG,
    ENCODER,
    ENCODER_ARRAYS,
    ESTIMATOR,
    HISTORY,
    LABELS,
    REMEMBERED,
    URIS,
    WEIGHTS,
    checked,
    reading,
    takes_features,
)
from circlet.storage.network_spec import members_of
from circlet.storage.tensors import Stored, map_tensors, stored
from circlet.version import __version__

Tensor = TypeVar("Tensor")


@dataclass
class Contents(Generic[Tensor]):
    """The content of a model's folder."""

    config: dict[str, Any]  # `config.json`
    tensors: dict[str, Tensor]  # weights and arrays by name
    history: list[dict[str, Any]]
    label_names: list[str] | None
    vectorizer: TextVectorizer | TextInput | None  # makes rows of texts
    sample: Sample | None = None  # the samples are only read for further training or copying
    remembered: Sample | None = None
    estimator: dict[str, Any] | None = None  # `estimator.json`, if requested
    index: Index | None = None
    label_uris: list[str] | None = None  # if labels have names as well

    @property
    def encoder(self) -> TextEncoder | None:
        """The model's encoder of texts, if it has one."""
        return self.vectorizer.encoder if isinstance(self.vectorizer, TextInput) else None


def read(folder: Path, *, whole: bool = False, estimator: bool = False) -> Contents[Stored]:
    """Read and check a model; its tensors are memory-mapped.

    With `whole`, for further training or copying, read the samples too, and check all of the weights and the
    index, however large; see `circlet.storage.layout`. With `estimator`, read `estimator.json`, if there is one.
    """

    def all_files(config: dict[str, Any]) -> Contents[Stored]:
        path, n_labels, has = partial(checked, folder, config), config["n_labels"], config["files"]
        return Contents(
            config,
            read_weights(folder, config, whole=whole),
            history=read_history(path(HISTORY)),
            label_names=read_labels(path(LABELS), n_labels) if config["named_labels"] else None,
            label_uris=read_labels(path(URIS), n_labels) if URIS in has else None,
            sample=read_sample(folder, config) if whole else None,
            remembered=read_sample(folder, config, REMEMBERED) if whole else None,
            estimator=read_estimator(path(ESTIMATOR)) if estimator and ESTIMATOR in has else None,
            index=read_index(folder, config, whole=whole),
            vectorizer=_read_text_input(folder, config),
        )

    return reading(folder, all_files)


def read_weights(folder: Path, config: dict[str, Any], *, whole: bool = True) -> dict[str, Stored]:
    """Read the tensors of a model with this configuration; see `read` for `whole`."""
    path = checked(folder, config, WEIGHTS, whole=whole)
    tensors, store = map_tensors(path), config["store"]
    if store == packed_weights.DEFLATED:
        return packed_weights.stored(path, tensors)
    return stored(path, tensors, store)


# What makes rows of texts: the vectorizer's files, and `encoder.json` with `encoder.safetensors`


def write_text_input(vectorizer: TextVectorizer | TextInput, path: Callable[[str], Path]) -> None:
    """Write what makes rows of texts, to the paths of these names."""
    words = vectorizer.words if isinstance(vectorizer, TextInput) else vectorizer
    if words is not None:
        words.write(path(STATE_FILE), path(TENSOR_FILE))
    if isinstance(vectorizer, TextInput):
        state, arrays = vectorizer.encoder.state()
        files.write_json(path(ENCODER), {"settings": vectorizer.encoder.settings(), "state": state})
        if arrays:
            files.write_tensors(path(ENCODER_ARRAYS), arrays)


def _read_text_input(folder: Path, config: dict[str, Any]) -> TextVectorizer | TextInput | None:
    path, name = partial(checked, folder, config), members_of(config)[0].settings.encoder
    if not config["texts"]:
        if name != FEATURES:
            raise DataError(f"{folder / CONFIG}: found an encoder that reads texts; wanted `texts` to be true")
        return None
    words = TextVectorizer.read(path(STATE_FILE), path(TENSOR_FILE)) if takes_features(config) else None
    if name == FEATURES:
        return words
    place = path(ENCODER)
    saved = files.read_json(place)
    if not isinstance(saved, dict) or [*map(type, saved.values())] != [dict, dict]:
        raise DataError(f"{place}: found {str(saved)[:80]}; wanted the settings and the state of an encoder")
    arrays = files.read_tensors(path(ENCODER_ARRAYS), "numpy")[0] if ENCODER_ARRAYS in config["files"] else {}
    kind = find(name)
    try:
        encoder = kind(**saved["settings"])
        encoder.restore(saved["state"], arrays)
    except (CircletError, KeyError, TypeError) as error:
        raise DataError(f"{place}: {error}") from error
    made = TextInput(encoder, words)
    if made.n_features != config["n_features"]:
        raise DataError(
            f"{place}: found an encoder and features of {made.n_features} columns; wanted "
            f"{config['n_features']}, as {CONFIG} says"
        )
    return made


# Tensors: weights of networks, arrays of the scaling, and how often labels occurred

#: The prefix of the scaling's arrays.
ARRAYS = "features."
#: The name of the label counts: ids and counts of the labels that occur.
COUNTS = "label_counts"


def parts_of(
    path: Path, tensors: Mapping[str, Stored], config: dict[str, Any]
) -> tuple[dict[str, Stored], Scaling, npt.NDArray[np.int64] | None]:
    """Sort the tensors of the file `path` into weights, scaling and label counts."""
    # Copied, because some systems do not let a file be replaced while a part of its map is in use.
    arrays = {
        name.removeprefix(ARRAYS): each.read().copy() for name, each in tensors.items() if name.startswith(ARRAYS)
    }
    scaling = Scaling.restore(config["scaling"], arrays, config["n_features"])
    counts = None
    if COUNTS in tensors:  # a model may have no label counts
        packed, n_labels = tensors[COUNTS].read(), config["n_labels"]
        fits = packed.dtype == np.int32 and packed.ndim == 2 and len(packed) == 2
        ids, values = packed.astype(np.int64) if fits else (np.array([-1]), np.array([0]))
        if (ids < 0).any() or (ids >= n_labels).any() or (np.diff(ids) <= 0).any() or (values < 1).any():
            wanted = f"ascending ids below {n_labels} and their counts"
            raise DataError(f"{path}: found damaged {COUNTS}; wanted {wanted}")
        counts = np.zeros(n_labels, dtype=np.int64)
        counts[ids] = values
    rest = {name: each for name, each in tensors.items() if name != COUNTS and not name.startswith(ARRAYS)}
    return rest, scaling, counts


def other_tensors(scaling: Scaling, label_counts: npt.NDArray[np.int64] | None) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a folder besides the weights, by name."""
    arrays: dict[str, npt.NDArray[Any]] = {ARRAYS + name: array for name, array in scaling.arrays.items()}
    if label_counts is not None:
        # Ids and counts of the labels that occur, `(2, m)`, so that unseen labels take no space.
        ids = np.flatnonzero(label_counts)
        arrays[COUNTS] = np.stack([ids, label_counts[ids]]).astype(np.int32)
    return arrays


# `history.json`: a record for each epoch

#: Marks the record of the epoch whose weights the model has: the best one on held-out rows.
KEPT = "kept"


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the records of all epochs."""
    history = files.read_json(path)
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise DataError(f"{path}: found no history; wanted a list with a record per epoch")
    for number, record in enumerate(history, 1):
        counts = [record.get("epoch"), record.get("member", 1)]
        measures = [value for name, value in record.items() if name == "loss" or "@" in name]
        if not all(is_integer(count, 1) for count in counts) or not all(map(is_real, measures)):
            raise DataError(
                f"{path}: found a damaged record, number {number}; wanted an epoch, and finite numbers"
            )
    return history


def kept_epochs(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the chosen epochs, one per network; none if the model has the last epochs' weights.

    No epoch is chosen in a calibration run, in further training, or if held-out rows are trained on in the end.
    """
    last = {record.get("member", 1): record["epoch"] for record in history}
    chosen = {record.get("member", 1): record for record in history if record.get(KEPT) is True}
    further = any(
        not metrics_of(record) and "validation_loss" not in record
        for record in history
        if last[record.get("member", 1)] == record["epoch"]
    )
    return [] if further or chosen.keys() != last.keys() else list(chosen.values())


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    """Return the metrics on validation rows in an epoch's record."""
    return {name: value for name, value in record.items() if "@" in name}


# `labels.txt` and `uris.txt`: names or URIs of the labels, one per line, in the order of the label ids


def labels_text(names: list[str], n_labels: int, where: str = "label_names") -> str:
    """Return the file's content; raise `DataError`, which starts with `where`, for names that it cannot hold."""
    text = "".join(f"{name}\n" for name in names)
    _check(names, text, n_labels, where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: found a label name that is not text ({error.reason})") from error
    return text


def read_labels(path: Path, n_labels: int) -> list[str]:
    """Read the names in a file, which may be gzipped."""
    content = files.read_bytes(path, "label names")
    lines = content.count(b"\n")
    if lines != n_labels:  # checked before memory is allocated for the claimed number
        raise DataError(f"{path}: found {lines} label names; wanted {n_labels}")
    try:
        text = content.decode()
    except ValueError as error:
        raise DataError(f"{path}: found no readable label names ({error})") from error
    if not text.endswith("\n"):
        raise DataError(f"{path}: found a last name without a line end; wanted one after each of {n_labels} names")
    names = text.split("\n")[:-1]
    _check(names, text, n_labels, str(path))
    return names


def _check(names: list[str], text: str, n_labels: int, where: str) -> None:
    # Checking a million names one by one takes seconds, so it is done only if this fast check fails.
    lines = len(names) == n_labels == text.count("\n") and not any(each in text for each in "\t\r\0")
    if not lines or not all(map(str.strip, names)) or len(set(names)) != len(names):
        check_label_names(names, n_labels, where)


# `estimator.json`: the state that only `CircletClassifier` has, such as its classes

ESTIMATOR_FORMAT = 1
#: Kinds of targets: a matrix of zeros and ones, lists of labels, or one class per row.
KINDS = ("indicator", "named", "single")
_KEYS = {"format", "circlet", "parameters", "encoder", "target", "classes", "feature_names"}


def read_estimator(path: Path) -> dict[str, Any]:
    """Read and check `estimator.json`."""
    state = files.read_json(path)
    if not isinstance(state, dict) or "format" not in state:
        raise DataError(f"{path}: found no description of a classifier; wanted one that circlet saved")
    if state["format"] != ESTIMATOR_FORMAT:
        raise DataError(
            f"{path}: found format {str(state['format'])[:40]}; circlet {__version__} reads format "
            f"{ESTIMATOR_FORMAT}"
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
    """Return the classes in the file `path`, `(n_labels,)`: names or classes, or column numbers."""
    names = state["feature_names"]
    if names is not None and len(names) != n_features:
        raise DataError(f"{path}: found {len(names)} feature names; wanted {n_features}")
    if state["target"] == "indicator":
        return np.arange(n_labels)
    try:
        dtype, values = np.dtype(state["classes"]["dtype"]), state["classes"]["values"]
        if dtype.itemsize > 8:  # a text type could claim gigabytes per class
            raise ValueError(f"the type {dtype}")
        classes: npt.NDArray[Any] = np.array(label_names if values is None else values, dtype=dtype)
        different = len(set(classes.tolist()))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: found damaged classes ({error!r})") from error
    if classes.shape != (n_labels,) or different != n_labels or dtype.kind not in "OUiufb":
        raise DataError(f"{path}: found {different} different classes of type {dtype}; wanted {n_labels} labels")
    return classes
