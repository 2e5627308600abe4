"""Everything in a model's folder, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from circlet import files
from circlet.errors import DataError
from circlet.features.vectorizer import TextVectorizer, load_vectorizer
from circlet.folder import deflated
from circlet.folder.config import read_config
from circlet.folder.history import read_history
from circlet.folder.layout import HISTORY, LABELS, WEIGHTS
from circlet.folder.precision import Stored, stored
from circlet.folder.sample import Sample
from circlet.folder.tensors import map_tensors

__all__ = ["Contents", "read", "read_weights"]

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
        For a model that is written; who reads one reads the sample only if it is needed.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    history: list[dict[str, Any]]
    label_names: list[str] | None
    vectorizer: TextVectorizer | None
    sample: Sample | None = None


def read(folder: Path) -> Contents[Stored]:
    """Read and check a model; its tensors stay in the mapped file."""
    config = read_config(folder)
    return Contents(
        config,
        read_weights(folder, config),
        read_history(folder / HISTORY),
        _read_labels(folder / LABELS, config["n_labels"]) if config["named_labels"] else None,
        load_vectorizer(folder) if config["texts"] else None,
    )


def read_weights(folder: Path, config: dict[str, Any]) -> dict[str, Stored]:
    """The tensors of a model with this configuration."""
    path = folder / WEIGHTS
    tensors, store = map_tensors(path, config["weights_sha256"]), config["store"]
    return deflated.stored(path, tensors) if store == deflated.DEFLATED else stored(path, tensors, store)


def _read_labels(path: Path, n_labels: int) -> list[str]:
    try:
        names = files.read_bytes(path, "label names").decode().split("\n")[:-1]
    except ValueError as error:
        raise DataError(f"{path}: found no readable label names ({error})") from error
    if len(names) != n_labels:
        raise DataError(f"{path}: found {len(names)} label names; wanted {n_labels}")
    return names
