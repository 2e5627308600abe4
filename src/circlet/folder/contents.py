"""Everything in a model's folder, read and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from circlet.errors import CircletError, DataError
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer
from circlet.folder import deflated
from circlet.folder.config import reading
from circlet.folder.estimator import read_estimator
from circlet.folder.history import read_history
from circlet.folder.index import Index, read_index
from circlet.folder.labels import read_labels
from circlet.folder.layout import (
    CONFIG,
    ESTIMATOR,
    HISTORY,
    LABELS,
    REMEMBERED,
    STATE_FILE,
    TENSOR_FILE,
    URIS,
    WEIGHTS,
)
from circlet.folder.manifest import checked, reads_texts
from circlet.folder.precision import Stored, stored
from circlet.folder.sample import Sample, read_sample
from circlet.folder.tensors import map_tensors
from circlet.settings.network import MAX_WORDS

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
    vectorizer : TextVectorizer, Tokenizer or None
    sample, remembered : Sample or None
        Who only uses a model does not read them.
    estimator : dict or None
        What is in `estimator.json`, if that was asked for.
    index : Index or None
    label_uris : list of str or None
        The URIs of labels that have names besides.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    history: list[dict[str, Any]]
    label_names: list[str] | None
    vectorizer: TextVectorizer | Tokenizer | None
    sample: Sample | None = None
    remembered: Sample | None = None
    estimator: dict[str, Any] | None = None
    index: Index | None = None
    label_uris: list[str] | None = None


def read(folder: Path, *, whole: bool = False, estimator: bool = False) -> Contents[Stored]:
    """Read and check a model; its tensors stay in the mapped file.

    Parameters
    ----------
    folder : Path
    whole : bool
        Read the samples too, and check all of the weights and the index, however large: for a model that will be
        trained further or copied. See `circlet.folder.manifest`.
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
        _read_vectorizer(folder, config),
        read_sample(folder, config) if whole else None,
        read_sample(folder, config, REMEMBERED) if whole else None,
        read_estimator(path(ESTIMATOR)) if estimator and ESTIMATOR in config["files"] else None,
        read_index(folder, config, whole=whole),
        read_labels(path(URIS), config["n_labels"]) if URIS in config["files"] else None,
    )


def _read_vectorizer(folder: Path, config: dict[str, Any]) -> TextVectorizer | Tokenizer | None:
    path, read = partial(checked, folder, config), reads_texts(config)
    if not config["texts"]:
        if read:
            raise DataError(f"{folder / CONFIG}: found an encoder that reads texts; wanted `texts` to be true")
        return None
    if not read:
        return TextVectorizer.read(path(STATE_FILE), path(TENSOR_FILE))
    tokenizer = Tokenizer.read(path(STATE_FILE))
    found = tokenizer.n_features, tokenizer.max_words
    wanted = config["n_features"], config["network"].get("max_words") or MAX_WORDS
    if found != wanted:
        raise DataError(
            f"{path(STATE_FILE)}: found numbers for {found[0]} words, {found[1]} of a text; "
            f"wanted {wanted[0]} and {wanted[1]}, as {CONFIG} says"
        )
    return tokenizer


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
