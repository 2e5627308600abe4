"""Everything in a model's folder, read and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from circlet.errors import CircletError, DataError
from circlet.features.vectorizer import TextVectorizer
from circlet.folder import deflated
from circlet.folder.config import reading
from circlet.folder.estimator import read_estimator
from circlet.folder.history import read_history
from circlet.folder.labels import read_labels
from circlet.folder.layout import CONFIG, ESTIMATOR, HISTORY, LABELS, STATE_FILE, TENSOR_FILE, URIS, WEIGHTS
from circlet.folder.manifest import checked
from circlet.folder.precision import Stored, stored
from circlet.folder.sample import Sample, read_sample
from circlet.folder.tensors import map_tensors

__all__ = ["Contents", "explained", "read", "read_weights"]

Tensor = TypeVar("Tensor")


@dataclass
class Contents(Generic[Tensor]):
    """What a model's folder holds.

    Parameters
    ----------
    config : dict
        What is in `config.json`.
    tensors : dict
        Weights and arrays by name.
    history : list of dict
    label_names : list of str or None
    vectorizer : TextVectorizer or None
    sample : Sample or None
        Who only uses a model does not read it.
    estimator : dict or None
        What is in `estimator.json`, if that was asked for.
    label_uris : list of str or None
        The URIs of labels that have names besides.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    history: list[dict[str, Any]]
    label_names: list[str] | None
    vectorizer: TextVectorizer | None
    sample: Sample | None = None
    estimator: dict[str, Any] | None = None
    label_uris: list[str] | None = None


def read(folder: Path, *, whole: bool = False, estimator: bool = False) -> Contents[Stored]:
    """Read and check a model; its tensors stay in the mapped file.

    Parameters
    ----------
    folder : Path
    whole : bool
        Read the sample too, and check all of the weights, however large: for a model that will be trained further
        or copied. See `circlet.folder.manifest`.
    estimator : bool
        Read what `CircletClassifier` knows about the model, if it saved it.
    """
    return reading(folder, partial(_read, folder, whole, estimator))


def _read(folder: Path, whole: bool, estimator: bool, config: dict[str, Any]) -> Contents[Stored]:
    path = partial(checked, folder, config)
    return Contents(
        config,
        read_weights(folder, config, whole=whole),
        read_history(path(HISTORY)),
        read_labels(path(LABELS), config["n_labels"]) if config["named_labels"] else None,
        TextVectorizer.read(path(STATE_FILE), path(TENSOR_FILE)) if config["texts"] else None,
        read_sample(folder, config) if whole else None,
        read_estimator(path(ESTIMATOR), config) if estimator and ESTIMATOR in config["files"] else None,
        read_labels(path(URIS), config["n_labels"]) if URIS in config["files"] else None,
    )


def read_weights(folder: Path, config: dict[str, Any], *, whole: bool = True) -> dict[str, Stored]:
    """The tensors of a model with this configuration; `whole` is that of `read`."""
    path = checked(folder, config, WEIGHTS, whole=whole)
    tensors, store = map_tensors(path), config["store"]
    return deflated.stored(path, tensors) if store == deflated.DEFLATED else stored(path, tensors, store)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn whatever is wrong with a model's folder into a `DataError` that names the file."""
    path = folder / CONFIG
    try:
        yield
    except CircletError as error:
        known = str(error).startswith(str(folder))
        raise DataError(str(error) if known else f"{path}: {error}") from error
    # Unknown settings, or sizes that do not fit into memory.
    except (TypeError, RuntimeError, MemoryError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: found a damaged configuration ({reason})") from error
