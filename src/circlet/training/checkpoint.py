"""Checkpoints of a training run: a safetensors file for each network, always replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circlet.checks import is_integer, is_real
from circlet.data.mapped import MappedRows, blocks, release
from circlet.errors import DataError, OutputError
from circlet.features.scaling import ScaledRows
from circlet.features.tokens import TokenRows
from circlet.files import parse_json, read_tensors, write_tensors
from circlet.folder.layout import CHECKPOINT as NAME
from circlet.folder.layout import checkpoint_of as name_of
from circlet.folder.layout import is_checkpoint
from circlet.network import Network
from circlet.settings import NetworkSettings, TrainingSettings
from circlet.training.distributed import ALONE, World
from circlet.training.optimizers import Optimizer

__all__ = ["NAME", "Progress", "absorb", "fingerprint", "is_checkpoint", "name_of", "remove", "restore", "save"]

#: What a checkpoint says about itself, and what those of version 0.1.0 do not say.
_KEYS = {"fingerprint", "checksum", "epoch", "step", "total_loss", "history", "best_value"}
_ADDED = {"labels", "digest"}


@dataclass
class Progress:
    """How far a run has come: the next step, and the results so far."""

    epoch: int = 0
    step: int = 0
    #: Sum of the losses of the epoch's steps so far.
    total_loss: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    #: The weights of the best epoch, and its validation metric.
    best: dict[str, Tensor] = field(default_factory=dict)
    best_value: float = -math.inf


def save(
    path: Path,
    progress: Progress,
    network: Network,
    optimizer: Optimizer | None,
    identity: str,
    label_names: list[str] | None = None,
) -> None:
    """Write the state of a run; `identity` is its `fingerprint`, and a finished run needs no optimizer."""
    tensors: dict[str, Tensor] = {f"network.{key}": value for key, value in network.weights().items()}
    tensors |= {f"best.{key}": value for key, value in progress.best.items()}
    states = {} if optimizer is None else optimizer.state_dict()["state"]
    for index, state in states.items():
        tensors |= {f"optimizer.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
    tensors["noise"] = network.noise.get_state()
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {
        "fingerprint": identity,
        "checksum": _checksum(contiguous),
        "epoch": progress.epoch,
        "step": progress.step,
        "total_loss": progress.total_loss,
        "history": progress.history,
        "best_value": progress.best_value if progress.best else None,
        "labels": _digest(label_names),
    }
    write_tensors(path, contiguous, {"run": json.dumps({**about, "digest": _digest(about)})})


def restore(
    path: Path | None,
    network: Network,
    optimizer: Optimizer,
    identity: str,
    label_names: list[str] | None = None,
    world: World = ALONE,
) -> Progress | None:
    """Bring a new network and optimizer to the checkpoint's state; None if there is no checkpoint.

    Of several processes, the first one reads it for all.
    """
    tensors: dict[str, Tensor] = {}

    def read() -> dict[str, Any] | None:
        if path is None or not path.exists():
            return None
        about, found = _read(path, identity, label_names)
        tensors.update(found)
        return about

    about = world.from_first(read)
    if about is None:
        return None
    tensors = world.tensors_from_first(tensors)
    progress = Progress(about["epoch"], about["step"], about["total_loss"], about["history"])
    network.load_weights(_part(tensors, "network."))
    if about["best_value"] is not None:
        progress.best, progress.best_value = _part(tensors, "best."), about["best_value"]
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _part(tensors, "optimizer.").items():
        index, _, key = name.partition(".")
        states.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    network.seed_noise(0)  # puts the generator on the right device
    network.noise.set_state(tensors["noise"])
    return progress


def _read(path: Path, identity: str, label_names: list[str] | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a checkpoint says about itself, and its tensors; `DataError` unless it is intact and of this run."""
    try:
        tensors, metadata = read_tensors(path, "torch")
        about = _described(metadata)
        if about["checksum"] != _checksum(tensors):
            raise ValueError("its tensors are not what was written")
    except (ValueError, RecursionError) as error:  # a DataError is a ValueError
        reason = str(error).removeprefix(f"{path}: ")
        raise DataError(f"{path}: found no intact checkpoint ({reason}); remove it to start again") from error
    if about["fingerprint"] != identity:
        raise DataError(
            f"{path}: found a checkpoint of another run; wanted one of the same data and settings. "
            "Train without resuming, or with the settings that it was started with"
        )
    if about.get("labels") not in (None, _digest(label_names)):
        raise DataError(
            f"{path}: found a checkpoint of labels with other names; wanted those that the run was started with"
        )
    return about, tensors


def remove(folder: Path) -> None:
    """Remove all checkpoints."""
    for path in folder.glob("checkpoint*.safetensors"):
        if is_checkpoint(path.name):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"cannot remove {path}: {error.strerror}") from error


def fingerprint(network: Network, settings: TrainingSettings, matrices: Iterable[Any], *, validated: bool) -> str:
    """A digest of everything that determines the weights; `matrices` are the rows and labels, validation last."""
    digest = hashlib.sha256()
    shapes = [(name, tuple(tensor.shape)) for name, tensor in network.weights().items()]
    run = f"[{_as_known_to_0_1_0(network.settings)}, {_as_known_to_0_1_0(settings)}, {shapes!r}, {validated!r}]"
    digest.update(run.encode())
    for rows in matrices:
        matrix = rows
        if isinstance(rows, ScaledRows):
            matrix = rows.X
            digest.update(rows.scaling.kind.encode())
            for scale in rows.scaling.arrays.values():
                digest.update(scale.tobytes())
        absorb(digest, matrix)
    return digest.hexdigest()


def absorb(digest: Any, matrix: Any) -> None:
    """Update a digest of `hashlib` with the shape and the numbers of a matrix."""
    if isinstance(matrix, MappedRows):
        digest.update(matrix.rows.tobytes())
        matrix = matrix.matrix
    digest.update(repr(matrix.shape).encode())
    for array in _arrays(matrix):
        numbers: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for block in blocks(len(numbers)):
            digest.update(numbers[block])
            release(matrix)


def _arrays(matrix: Any) -> Iterable[Any]:
    """The arrays that rows consist of."""
    if isinstance(matrix, TokenRows):
        return matrix.arrays
    return (matrix.data, matrix.indices, matrix.indptr) if hasattr(matrix, "indptr") else (matrix,)


def _as_known_to_0_1_0(settings: NetworkSettings | TrainingSettings) -> str:
    """How settings are printed, without those that came later and have the value that was the only one before."""
    printed = repr(settings)
    later = "first_layer='same'", "join=False", "precision='auto'", "activation='relu'", "initial='he'"
    for added in (*later, "encoder='features'", "embedding=None", "max_words=None"):
        printed = printed.replace(f", {added}", "")
    return printed


def _described(metadata: dict[str, str]) -> dict[str, Any]:
    """What a checkpoint says about itself; `ValueError` if that is not what was written."""
    about: Any = parse_json(metadata.get("run", "null"))
    found = set(about) if isinstance(about, dict) else set()
    digest = about.pop("digest", None) if found == _KEYS | _ADDED else None
    # Version 0.1.0 wrote neither a digest nor what it would be compared with.
    if found not in (_KEYS, _KEYS | _ADDED) or (found != _KEYS and digest != _digest(about)):
        raise ValueError("its description is not what was written")
    counts, best = (about["epoch"], about["step"]), about["best_value"]
    measures = (about["total_loss"], 0.0 if best is None else best)
    if not all(is_integer(each, 0) for each in counts) or not all(map(is_real, measures)):
        raise ValueError("its description is damaged")
    if not isinstance(about["history"], list):
        raise ValueError("its history is damaged")
    return dict(about)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: dict[str, Tensor]) -> int:
    """Our own checksum, because safetensors checks only its header."""
    value = 0
    for name in sorted(tensors):
        numbers: Any = tensors[name].reshape(-1).view(torch.uint8).numpy()
        value = zlib.crc32(numbers, zlib.crc32(name.encode(), value))
    return value
