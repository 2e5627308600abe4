"""A smaller copy of a model: the same weights in fewer bits."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError, ParameterError
from circlet.features.vectorizer_state import STATE_FILE, TENSOR_FILE
from circlet.folder import precision, tensors
from circlet.folder.config import read_config
from circlet.folder.contents import read_weights
from circlet.folder.deflated import DEFLATED
from circlet.folder.layout import CONFIG, ESTIMATOR, LABELS, RUN, SAMPLE, WEIGHTS, is_checkpoint

__all__ = ["check_output", "compress", "size_without_weights", "write_copy"]

#: The files that are gzipped if weights are deflated.
ZIPPED = (LABELS, STATE_FILE, TENSOR_FILE)
#: Bytes by which `config.json` may grow in a copy.
GROWTH = 100


def compress(folder: Path, output: Path, store: str) -> None:
    """Copy a model with its weights stored as `store` says; `output` appears complete or not at all.

    It works on files, not on a network, so a model with a custom encoder needs no encoder here.
    """
    precision.check_store(store)
    config = read_config(folder)
    check_output(output)
    whole = {name: each.read() for name, each in read_weights(folder, config).items()}
    try:
        smaller = precision.packed(whole, store)
    except DataError as error:
        raise DataError(f"{folder / WEIGHTS}: {error}") from error
    write_copy(folder, output, smaller, store)


def check_output(output: Path) -> None:
    """Raise `ParameterError` if there is something where a copy shall appear."""
    if output.exists():
        raise ParameterError(f"{output} exists already: choose another folder, or remove it")


def write_copy(folder: Path, output: Path, weights: Mapping[str, precision.Array], store: str) -> None:
    """Copy a model with other weights, stored as `store` says; `output` appears complete or not at all."""
    config = read_config(folder)
    check_output(output)
    files.prepare_folder(output.parent)
    scratch = output.with_name(f".{output.name}.{os.getpid()}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process that had the same id
    try:
        scratch.mkdir()
        for path in _others(folder):
            if store == DEFLATED and path.name in ZIPPED:
                files.write_gzip(scratch / path.name, path.read_bytes())
            else:
                shutil.copyfile(path, scratch / path.name)
        tensors.write_tensors(scratch / WEIGHTS, weights)
        _describe(folder, scratch, config, store)
        scratch.rename(output)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot copy {folder} to {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def size_without_weights(folder: Path) -> int:
    """The most bytes that a copy with deflated weights takes besides the weights."""
    written = sum((folder / name).stat().st_size for name in (CONFIG, ESTIMATOR) if (folder / name).is_file())
    copied = (
        len(gzip.compress(path.read_bytes())) if path.name in ZIPPED else path.stat().st_size
        for path in _others(folder)
    )
    return written + sum(copied) + GROWTH


def _describe(folder: Path, output: Path, config: dict[str, Any], store: str) -> None:
    """Write the files that have the digest of the new weights."""
    estimator, digest = folder / ESTIMATOR, files.sha256(output / WEIGHTS)
    if estimator.is_file():
        state = files.read_json(estimator)
        if not isinstance(state, dict) or state.get("weights_sha256") != config["weights_sha256"]:
            raise DataError(
                f"{estimator}: found the description of other weights than those of {CONFIG}; "
                "if `circlet train` has replaced the model, remove this file"
            )
        files.write_json(output / estimator.name, {**state, "weights_sha256": digest})
    files.write_json(output / CONFIG, {**config, "store": store, "weights_sha256": digest})


def _others(folder: Path) -> Iterator[Path]:
    """All files except those that are rewritten, the sample, and those of an interrupted run."""
    left_out = {WEIGHTS, CONFIG, ESTIMATOR, RUN, SAMPLE}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not (path.name in left_out or is_checkpoint(path.name) or path.name.startswith(".")):
            yield path
