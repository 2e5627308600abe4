"""How a model is written to its folder, and how tensors become arrays and back; see `circlet.folder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet import files
from circlet.features.vectorizer_state import STATE_FILE, TENSOR_FILE
from circlet.folder import precision
from circlet.folder.config import FORMAT, SEVERAL
from circlet.folder.contents import Contents
from circlet.folder.layout import CONFIG, DECIDED, ESTIMATOR, HISTORY, LABELS, SAMPLE, WEIGHTS
from circlet.folder.precision import Stored
from circlet.folder.sample import write_sample
from circlet.folder.tensors import BFLOAT16, write_tensors
from circlet.training import checkpoint
from circlet.version import __version__

__all__ = ["as_arrays", "as_tensors", "write"]


def write(folder: Path, model: Contents[npt.NDArray[Any]], store: str) -> None:
    """Write a model, in place of any that is there.

    Parameters
    ----------
    folder : Path
    model : Contents
        Its configuration lacks what describes the files themselves.
    store : str
        One of `precision.STORES`.
    """
    packed = precision.packed(model.tensors, store)
    files.prepare_folder(folder)
    write_tensors(folder / WEIGHTS, packed)
    files.write_json(folder / HISTORY, model.history)
    if model.label_names is not None:
        files.write_text(folder / LABELS, "".join(f"{name}\n" for name in model.label_names))
    if model.vectorizer is not None:
        model.vectorizer.save(folder)
    if model.sample is not None:
        write_sample(folder, model.sample)
    own = {
        "named_labels": model.label_names is not None,
        "texts": model.vectorizer is not None,
        "weights_sha256": files.sha256(folder / WEIGHTS),
        "store": store,
    }
    layout = SEVERAL if "members" in model.config else FORMAT
    files.write_json(folder / CONFIG, {"format": layout, "circlet": __version__, **model.config, **own})
    checkpoint.remove(folder)
    (folder / DECIDED).unlink(missing_ok=True)
    # Files that an earlier model here had and this one does not.
    stale = [ESTIMATOR]
    stale += [LABELS] if model.label_names is None else []
    stale += [STATE_FILE, TENSOR_FILE] if model.vectorizer is None else []
    stale += [SAMPLE] if model.sample is None else []
    stale += [name + files.GZIPPED for name in (LABELS, STATE_FILE, TENSOR_FILE)]
    for name in stale:
        (folder / name).unlink(missing_ok=True)


def as_arrays(tensors: dict[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Tensors as contiguous arrays, which share their memory where they can."""
    return {name: _as_array(tensor.detach().cpu().contiguous()) for name, tensor in tensors.items()}


def as_tensors(stored: dict[str, Stored]) -> dict[str, Tensor]:
    """The tensors of a folder for torch, in memory of their own."""
    return {name: _as_tensor(each.read()) for name, each in stored.items()}


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    own = array if array.flags.writeable else array.copy()  # a view of the mapped file, which is read-only
    if own.dtype == BFLOAT16:
        return torch.from_numpy(own.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(own)


def _as_array(tensor: Tensor) -> npt.NDArray[Any]:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(BFLOAT16)
    return tensor.numpy()
