"""Reading a model's folder, every file checked, whatever is wrong a `DataError` that names it; smaller copies."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from circlet import __version__, files
from circlet.errors import DataError, OutputError, ParameterError
from circlet.model import precision as storage
from circlet.network.heads import HEADS
from circlet.network.network import NetworkSettings
from circlet.training import checkpoint

#: Version of the folder's layout; a newer one is refused.
FORMAT = 1
WEIGHTS = "weights.safetensors"
#: What `circlet train` keeps beside a checkpoint; its own name for it must not import torch.
RUN_FILE = "run.json"


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check `config.json`."""
    path = folder / "config.json"
    if not path.is_file():
        if (folder / checkpoint.NAME).is_file():
            # `circlet train` keeps its options beside the checkpoint; without them Python code was training.
            by_command = (folder / RUN_FILE).is_file()
            how = f"circlet train DATA --model {folder} --resume" if by_command else "the same `fit`, resume=True"
            raise DataError(
                f"{folder} is not a circlet model yet: found an interrupted run in it; to go on: {how}"
            )
        raise DataError(f"{folder} is not a circlet model: found no config.json in it")
    config = read_json(path)
    if not isinstance(config, dict) or "format" not in config or "circlet" not in config:
        raise DataError(f"{path}: found a configuration that is not circlet's; wanted a model that circlet saved")
    if config["format"] != FORMAT:
        raise DataError(
            f"{path}: found format {config['format']}, written by circlet {config['circlet']}; "
            f"this is circlet {__version__}, which reads format {FORMAT}"
        )
    config.setdefault("store", "float32")  # not said before there was a choice
    for name, (holds, wanted) in _WANTED.items():
        if name not in config or not holds(config[name]):
            found = repr(config[name])[:80] if name in config else "nothing"
            raise DataError(f"{path}: found {found} as `{name}`; wanted {wanted}")
    return config


def _count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _pair(value: Any) -> bool:
    return isinstance(value, list) and [type(part) in (int, float) for part in value] == [True, True]


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    return lambda value: (None if value is None else type(value)) in kinds


#: What config.json must hold besides its format: a check and its words.
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "network": (_is(dict), "settings by name"),
    "n_features": (_count, "a whole number >= 1"),
    "n_labels": (_count, "a whole number >= 1"),
    "sparse": (_is(bool), "true or false"),
    "codebook": (_is(dict, None), "a codebook's state or null"),
    "scaling": (_is(str), "a name"),
    "calibration": (_pair, "two numbers"),
    "named_labels": (_is(bool), "true or false"),
    "texts": (_is(bool), "true or false"),
    "weights_sha256": (_is(str), "a digest"),
    "store": (
        lambda value: isinstance(value, str) and value in storage.STORES,
        f"one of {', '.join(storage.STORES)}",
    ),
    "training": (_is(dict), "settings by name"),
}


def check_codebook(settings: NetworkSettings, config: dict[str, Any]) -> None:
    """Labels and dimension are named twice; they must agree."""
    wanted = {"n_labels": config["n_labels"], "dim": settings.dim}
    state = config["codebook"]
    found = state and {name: state.get(name) for name in wanted}
    if found != (wanted if HEADS[settings.head].codes else None):
        raise DataError(f"found the codebook {state} for {wanted} and head {settings.head}; wanted one that fits")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read and check `history.json`."""
    history = read_json(path)
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise DataError(f"{path}: found no history; wanted a list with a record per epoch")
    return history


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no readable JSON ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    # The system's messages would name the path once more.
    return str(getattr(error, "strerror", None) or error)


def read_weights(path: Path, digest: str, store: str) -> dict[str, torch.Tensor]:
    """The tensors of a file, in float32 however they are stored."""
    try:
        if files.sha256(path) != digest:
            raise DataError(f"{path}: found other weights than config.json describes; the model is damaged")
        tensors: dict[str, torch.Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: found no readable weights ({_reason(error)})") from error
    return storage.unpacked(path, tensors, store)


def check_features(path: Path, tensors: dict[str, torch.Tensor], n_features: int) -> None:
    """Before a network is made: one for a wrong number of features may be too large for any memory."""
    first = tensors.get("encoder.layers.0.weight")
    if first is not None and n_features not in first.shape:
        raise DataError(f"{path}: found a first layer of shape {tuple(first.shape)}; wanted {n_features} features")


def check_shapes(path: Path, wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    """Refuse tensors of other names, shapes or types than the network has."""
    for name in sorted({*wanted, *found}):
        shapes = [tuple(part[name].shape) if name in part else None for part in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{path}: found {name} of shape {shapes[0]}; wanted {shapes[1]}")
        types = [str(part[name].dtype).removeprefix("torch.") for part in (found, wanted)]
        if types[0] != types[1]:
            raise DataError(f"{path}: found {name} in {types[0]}; wanted {types[1]}")


def read_labels(folder: Path, n_labels: int) -> list[str]:
    """Read the names of the labels."""
    path = folder / "labels.txt"
    try:
        names = path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no readable label names ({_reason(error)})") from error
    if len(names) != n_labels:
        raise DataError(f"{path}: found {len(names)} label names; wanted {n_labels}")
    return names


def compress(folder: Path, output: Path, store: str) -> None:
    """Copy a model with its weights stored as `store` says; `output` appears whole or not at all.

    Works on files, not on a network: a model with an encoder of its own needs none here.
    """
    storage.check_store(store)
    config = read_config(folder)
    if output.exists():
        raise ParameterError(f"{output} exists already: choose another folder, or remove it")
    files.prepare_folder(output.parent)
    scratch = output.with_name(f".{output.name}.{os.getpid()}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # of a process that had the same number, and was killed
    try:
        scratch.mkdir()
        _copy_rest(folder, scratch)
        _write_smaller(folder, scratch, config, store)
        scratch.rename(output)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot copy {folder} to {output}: {_reason(error)}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_smaller(folder: Path, output: Path, config: dict[str, Any], store: str) -> None:
    weights, estimator = folder / WEIGHTS, folder / "estimator.json"
    tensors = read_weights(weights, config["weights_sha256"], config["store"])
    try:
        tensors = storage.packed(tensors, store)
    except DataError as error:
        raise DataError(f"{weights}: {error}") from error
    checkpoint.write_tensors(output / WEIGHTS, tensors)
    digest = files.sha256(output / WEIGHTS)
    if estimator.is_file():
        state = read_json(estimator)
        if not isinstance(state, dict) or state.get("weights_sha256") != config["weights_sha256"]:
            raise DataError(f"{estimator}: found the description of other weights than config.json's")
        files.write_json(output / estimator.name, {**state, "weights_sha256": digest})
    files.write_json(output / "config.json", {**config, "store": store, "weights_sha256": digest})


def _copy_rest(folder: Path, output: Path) -> None:
    """Whatever lies in the folder but what is written anew, and the traces of a run that is under way."""
    written = {WEIGHTS, "config.json", "estimator.json", checkpoint.NAME, RUN_FILE}
    for path in folder.iterdir():
        if path.is_file() and path.name not in written and not path.name.startswith("."):
            shutil.copyfile(path, output / path.name)
