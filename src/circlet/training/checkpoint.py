"""Checkpoints of a training run: a safetensors file per network, replaced atomically."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circlet.checks import is_integer, is_real
from circlet.data.dataset import MappedRows, blocks, release
from circlet.encoders import RowPairs, TextRows
from circlet.errors import DataError, OutputError
from circlet.features.rows import ScaledRows
from circlet.files import parse_json, read_tensors, write_tensors
from circlet.identity import Identity
from circlet.network import Network
from circlet.settings import TrainingSettings
from circlet.storage.layout import is_checkpoint
from circlet.training.distributed import ALONE, World
from circlet.training.optimizers import Optimizer

#: The keys of a checkpoint's description, besides its digest.
_KEYS = {"run", "checksum", "epoch", "step", "total_loss", "history", "best_value"}


@dataclass
class Progress:
    """The progress of a run: the next step, and the results so far."""

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
    identity: Identity,
) -> None:
    """Write a checkpoint; a finished run needs no optimizer."""
    tensors: dict[str, Tensor] = {f"network.{key}": value for key, value in network.weights().items()}
    tensors |= {f"best.{key}": value for key, value in progress.best.items()}
    states = {} if optimizer is None else optimizer.state_dict()["state"]
    for index, state in states.items():
        tensors |= {f"optimizer.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
    tensors["noise"] = network.noise.get_state()
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {
        "run": identity.values,
        "checksum": _checksum(contiguous),
        "epoch": progress.epoch,
        "step": progress.step,
        "total_loss": progress.total_loss,
        "history": progress.history,
        "best_value": progress.best_value if progress.best else None,
    }
    write_tensors(path, contiguous, {"about": json.dumps({**about, "digest": _digest(about)})})


def restore(
    path: Path | None,
    network: Network,
    optimizer: Optimizer,
    identity: Identity,
    world: World = ALONE,
) -> Progress | None:
    """Restore network and optimizer from a checkpoint, and return the progress; None without a checkpoint.

    If there are several processes, the first one reads for all.
    """
    tensors: dict[str, Tensor] = {}

    def read() -> dict[str, Any] | None:
        if path is None or not path.exists():
            return None
        about, found = _read(path, identity)
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


def _read(path: Path, identity: Identity) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a checkpoint's description and tensors; raise `DataError` unless it is intact and of this run."""
    try:
        tensors, metadata = read_tensors(path, "torch")
        about: Any = parse_json(metadata.get("about", "null"))
        if not isinstance(about, dict) or about.pop("digest", None) != _digest(about):
            raise ValueError("its description is not what was written")
        if set(about) != _KEYS or not isinstance(about["run"], dict) or not isinstance(about["history"], list):
            raise ValueError("its description is damaged")
        counts = about["epoch"], about["step"], about["checksum"]
        measures = about["total_loss"], 0.0 if about["best_value"] is None else about["best_value"]
        if not all(is_integer(each, 0) for each in counts) or not all(map(is_real, measures)):
            raise ValueError("its numbers are damaged")
        if about["checksum"] != _checksum(tensors):
            raise ValueError("its tensors are not what was written")
    except (ValueError, RecursionError) as error:  # a DataError is a ValueError
        reason = str(error).removeprefix(f"{path}: ")
        raise DataError(f"{path}: found no intact checkpoint ({reason}); remove it to start again") from error
    if different := identity.differences(about["run"]):
        raise DataError(
            f"{path}: found a checkpoint of another run: {', '.join(map(str, different))}. Wanted one of the same "
            "data and settings: train without resuming, or with the settings that it was started with"
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


def identity_of(
    network: Network,
    settings: TrainingSettings,
    rows: Sequence[Any],
    validation: Sequence[Any],
    label_names: list[str] | None,
) -> Identity:
    """Return everything that determines the weights: settings, and digests of rows, labels and label names."""
    shapes = [(name, tuple(tensor.shape)) for name, tensor in network.weights().items()]
    words = {
        "rows": "other documents or labels",
        "validation": "other rows held out",
        "label_names": "labels with other names",
        "weights": "weights of other shapes",
    }
    return Identity.of(
        network.settings,
        settings,
        rows=content_of(rows),
        validation=content_of(validation),
        label_names=_digest(label_names),
        weights=_digest(shapes),
        words=words,
    )


def content_of(matrices: Iterable[Any], texts: Iterable[str] = ()) -> str:
    """Return a digest of texts, and of the shapes and values of matrices."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    pairs = ((each.features, each.texts) if isinstance(each, RowPairs) else (each,) for each in matrices)
    for rows in filter(lambda each: each is not None, chain.from_iterable(pairs)):
        matrix = rows
        if isinstance(rows, ScaledRows):
            matrix = rows.X
            digest.update(rows.scaling.kind.encode())
            for scale in rows.scaling.arrays.values():
                digest.update(scale.tobytes())
        if isinstance(matrix, MappedRows):
            digest.update(matrix.rows.tobytes())
            matrix = matrix.matrix
        digest.update(repr(matrix.shape).encode())
        sparse = (matrix.data, matrix.indices, matrix.indptr) if hasattr(matrix, "indptr") else (matrix,)
        for array in matrix.arrays if isinstance(matrix, TextRows) else sparse:
            numbers: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for block in blocks(len(numbers)):
                digest.update(numbers[block])
                release(matrix)
    return digest.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: dict[str, Tensor]) -> int:
    """Compute a checksum of the numbers, because safetensors checks only the header."""
    value = 0
    for name in sorted(tensors):
        numbers: Any = tensors[name].reshape(-1).view(torch.uint8).numpy()
        value = zlib.crc32(numbers, zlib.crc32(name.encode(), value))
    return value
