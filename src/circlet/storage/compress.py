"""Make a smaller copy of a model: the same weights in fewer bits."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError, ParameterError
from circlet.storage import tensors
from circlet.storage.card import model_card
from circlet.storage.contents import read_estimator, read_labels, read_weights
from circlet.storage.history import read_history
from circlet.storage.layout import (
    CONFIG,
    ESTIMATOR,
    HISTORY,
    INDEX,
    LABELS,
    REMEMBERED,
    SAMPLE,
    STATE_FILE,
    TENSOR_FILE,
    URIS,
    WEIGHTS,
    checked,
    located,
    reading,
)
from circlet.storage.packed_weights import DEFLATED
from circlet.storage.publish import Publication

__all__ = ["check_output", "compress", "size_without_weights", "write_copy"]

#: The files that are gzipped if weights are deflated.
ZIPPED = (LABELS, URIS, STATE_FILE, TENSOR_FILE)
#: Bytes by which `config.json` may grow in a copy.
GROWTH = 100


def compress(folder: Path, output: Path, store: str) -> None:
    """Copy a model atomically to `output`, with its weights stored as `store`.

    This works on files, not on a network, so a model with a custom encoder does not need that encoder.
    """
    tensors.check_store(store)
    check_output(output)

    def copy(config: dict[str, Any]) -> None:
        whole = {name: each.read() for name, each in read_weights(folder, config).items()}
        try:
            smaller = tensors.packed(whole, store)
        except DataError as error:
            raise DataError(f"{located(folder, config, WEIGHTS)}: {error}") from error
        write_copy(folder, output, smaller, store, config)

    reading(folder, copy)


def check_output(output: Path) -> None:
    """Raise `ParameterError` if the output of a copy exists."""
    if output.exists():
        raise ParameterError(f"{output} exists already: choose another folder, or remove it")


def write_copy(
    folder: Path, output: Path, weights: Mapping[str, tensors.Array], store: str, config: dict[str, Any]
) -> None:
    """Copy a model atomically to `output`, with other weights.

    Only files that the configuration lists are copied, without the samples, which only further training of the
    original needs, and without the index, which would be the largest part of a small copy.

    Parameters
    ----------
    folder, output : Path
    weights : mapping of str to ndarray
    store : str
        How the weights are stored.
    config : dict
        Configuration of the model that the weights were made from. If that model was replaced, nothing is copied.
    """
    check_output(output)
    files.prepare_folder(output.parent)
    files.remove_leftovers(output.parent, output.name)
    scratch = files.temporary_beside(output)
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process with the same id
    try:
        scratch.mkdir()
        _write(folder, Publication(scratch, 1), weights, store, config)
        scratch.rename(output)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot copy {folder} to {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(
    folder: Path, new: Publication, weights: Mapping[str, tensors.Array], store: str, config: dict[str, Any]
) -> None:
    files.write_tensors(new.path(WEIGHTS), weights)
    for name in _others(config):
        path = checked(folder, config, name)
        if name == ESTIMATOR:
            read_estimator(path)  # raises if the file is damaged
        content = files.read_bytes(path)
        if path.suffix == files.GZIPPED or (store == DEFLATED and name in ZIPPED):
            files.write_gzip(new.path(name, zipped=True), content)
        else:
            files.write_bytes(new.path(name), content)
    new.commit({**config, "store": store}, _card(folder, config, store))


def size_without_weights(folder: Path, config: dict[str, Any]) -> int:
    """Return an upper bound on the bytes of a copy with deflated weights, without these weights."""
    copied = (
        len(gzip.compress(files.read_bytes(path))) if name in ZIPPED else path.stat().st_size
        for name in _others(config)
        for path in [located(folder, config, name)]
    )
    written = (folder / CONFIG).stat().st_size + len(_card(folder, config, DEFLATED).encode())
    return written + sum(copied) + GROWTH


def _card(folder: Path, config: dict[str, Any], store: str) -> str:
    """Make the card of a copy; the original's card may be missing or edited."""
    labels = None
    if config["named_labels"]:
        labels = read_labels(checked(folder, config, LABELS), config["n_labels"])
    return model_card({**config, "store": store}, read_history(checked(folder, config, HISTORY)), labels)


def _others(config: dict[str, Any]) -> list[str]:
    """Return the names of the files that are copied unchanged or gzipped."""
    return [name for name in config["files"] if name not in (WEIGHTS, SAMPLE, REMEMBERED, INDEX)]
