"""A smaller copy of a model: the same weights in fewer bits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError, ParameterError
from circlet.folder import precision, tensors
from circlet.folder.config import read_config
from circlet.folder.contents import read_weights
from circlet.folder.layout import CONFIG, ESTIMATOR, RUN, WEIGHTS, is_checkpoint

__all__ = ["compress"]


def compress(folder: Path, output: Path, store: str) -> None:
    """Copy a model with its weights stored as `store` says; `output` appears complete or not at all.

    It works on files, not on a network, so a model with a custom encoder needs no encoder here.
    """
    precision.check_store(store)
    config = read_config(folder)
    if output.exists():
        raise ParameterError(f"{output} exists already: choose another folder, or remove it")
    files.prepare_folder(output.parent)
    scratch = output.with_name(f".{output.name}.{os.getpid()}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process that had the same id
    try:
        scratch.mkdir()
        _copy_rest(folder, scratch)
        _write_smaller(folder, scratch, config, store)
        scratch.rename(output)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot copy {folder} to {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_smaller(folder: Path, output: Path, config: dict[str, Any], store: str) -> None:
    estimator = folder / ESTIMATOR
    whole = {name: each.read() for name, each in read_weights(folder, config).items()}
    try:
        smaller = precision.packed(whole, store)
    except DataError as error:
        raise DataError(f"{folder / WEIGHTS}: {error}") from error
    tensors.write_tensors(output / WEIGHTS, smaller)
    digest = files.sha256(output / WEIGHTS)
    if estimator.is_file():
        state = files.read_json(estimator)
        if not isinstance(state, dict) or state.get("weights_sha256") != config["weights_sha256"]:
            raise DataError(
                f"{estimator}: found the description of other weights than those of {CONFIG}; "
                "if `circlet train` has replaced the model, remove this file"
            )
        files.write_json(output / estimator.name, {**state, "weights_sha256": digest})
    files.write_json(output / CONFIG, {**config, "store": store, "weights_sha256": digest})


def _copy_rest(folder: Path, output: Path) -> None:
    """Copy all files except those that are rewritten and those of an interrupted run."""
    written = {WEIGHTS, CONFIG, ESTIMATOR, RUN}
    for path in folder.iterdir():
        left_out = path.name in written or is_checkpoint(path.name) or path.name.startswith(".")
        if path.is_file() and not left_out:
            shutil.copyfile(path, output / path.name)
