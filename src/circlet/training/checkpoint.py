"""Checkpoints of a training run: one safetensors file, replaced whole."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from circlet.data.mapped import MappedRows, blocks, release
from circlet.errors import DataError, OutputError
from circlet.features.scaling import ScaledRows
from circlet.files import replacing

if TYPE_CHECKING:
    from circlet.training.loop import _Run

NAME = "checkpoint.safetensors"


def save(run: _Run, folder: Path) -> None:
    """Write where the run is."""
    tensors: dict[str, Tensor] = {f"network.{key}": value for key, value in run.network.state_dict().items()}
    tensors |= {f"best.{key}": value for key, value in run.best.items()}
    for index, state in run.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
    tensors["noise"] = run.network.noise.get_state()
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {
        "fingerprint": _fingerprint(run),
        "checksum": _checksum(contiguous),
        "epoch": run.epoch,
        "step": run.step,
        "total_loss": run.total_loss,
        "history": run.history,
        "best_value": run.best_value if run.best else None,
    }
    write_tensors(folder / NAME, contiguous, {"run": json.dumps(about)})


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        # safetensors writes a temporary file of its own, for its owner's eyes only, and a process that is killed
        # leaves it behind: in a folder of ours `remove` finds it.
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".part", dir=path.parent) as scratch:
            written = Path(scratch) / path.name
            try:
                save_file(tensors, written, metadata=metadata)
            except SafetensorError as error:  # how it reports a full disk
                raise OutputError(f"cannot write {path}: {error}") from error
            written.chmod(mode)
            written.replace(temporary)


def restore(run: _Run, folder: Path) -> bool:
    """Bring a fresh run to where the checkpoint is; False if there is none."""
    path = folder / NAME
    if not path.exists():
        return False
    try:
        with safe_open(path, framework="pt") as stored:
            about = json.loads((stored.metadata() or {}).get("run", "null"))
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 — no mapping
        if not isinstance(about, dict) or about.get("checksum") != _checksum(tensors):
            raise ValueError("its contents are not what was written")
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: found no intact checkpoint ({error}); remove it to start anew") from error
    if about["fingerprint"] != _fingerprint(run):
        raise DataError(
            f"{path}: found a checkpoint of another run; wanted one of the same data and settings. "
            "Train without resuming, or with the settings it was started with"
        )
    run.epoch, run.step, run.total_loss = about["epoch"], about["step"], about["total_loss"]
    run.history = about["history"]
    run.network.load_state_dict(_part(tensors, "network."))
    if about["best_value"] is not None:
        run.best, run.best_value = _part(tensors, "best."), about["best_value"]
    optimizer: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _part(tensors, "optimizer.").items():
        index, _, key = name.partition(".")
        optimizer.setdefault(int(index), {})[key] = tensor
    run.optimizer.load_state_dict({**run.optimizer.state_dict(), "state": optimizer})
    run.network.seed_noise(0)  # puts the generator on the right device
    run.network.noise.set_state(tensors["noise"])
    return True


def remove(folder: Path) -> None:
    """Remove the checkpoint, once the model is saved, and what killed runs left of theirs."""
    (folder / NAME).unlink(missing_ok=True)
    for leftover in folder.glob(".*.safetensors.*.part"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: dict[str, Tensor]) -> int:
    """Safetensors checks its header only."""
    value = 0
    for name in sorted(tensors):
        numbers: Any = tensors[name].reshape(-1).view(torch.uint8).numpy()
        value = zlib.crc32(numbers, zlib.crc32(name.encode(), value))
    return value


def _fingerprint(run: _Run) -> str:
    """Of everything that the weights follow from."""
    digest = hashlib.sha256()
    shapes = [(name, tuple(tensor.shape)) for name, tensor in run.network.state_dict().items()]
    parts: list[Any] = [run.network.settings, run.settings, shapes, run.validation is not None]
    digest.update(repr(parts).encode())
    for rows in (run.batches.X, run.batches.Y, *(run.validation or ())):
        matrix = rows
        if isinstance(rows, ScaledRows):
            matrix = rows.X
            digest.update(rows.features.scaling.encode())
            for scale in rows.features.arrays.values():
                digest.update(scale.tobytes())
        if isinstance(matrix, MappedRows):
            digest.update(matrix.rows.tobytes())
            matrix = matrix.matrix
        digest.update(repr(matrix.shape).encode())
        for array in (matrix.data, matrix.indices, matrix.indptr) if hasattr(matrix, "indptr") else (matrix,):
            numbers: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for block in blocks(len(numbers)):
                digest.update(numbers[block])
                release(matrix)
    return digest.hexdigest()
