"""How a model is written to its folder, and how tensors become arrays and back; see `circlet.folder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet import files
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer
from circlet.folder import tensors
from circlet.folder.card import model_card
from circlet.folder.contents import Contents, labels_text
from circlet.folder.index import write_index
from circlet.folder.layout import (
    ESTIMATOR,
    FORMAT,
    HISTORY,
    INDEX,
    LABELS,
    REMEMBERED,
    SAMPLE,
    STATE_FILE,
    TENSOR_FILE,
    URIS,
    WEIGHTS,
)
from circlet.folder.publish import Publication, publishing
from circlet.folder.sample import write_sample
from circlet.folder.tensors import BFLOAT16, Stored, write_tensors
from circlet.version import __version__

__all__ = ["as_arrays", "as_tensors", "write"]


def write(folder: Path, model: Contents[npt.NDArray[Any]], store: str) -> None:
    """Write a model, in place of any that is there; whoever reads the folder finds one of them, complete.

    The files of an interrupted run are removed.

    Parameters
    ----------
    folder : Path
    model : Contents
        Its configuration lacks what describes the files themselves.
    store : str
        One of `tensors.STORES`.
    """
    packed = tensors.packed(model.tensors, store)
    labels = uris = None
    if model.label_uris is not None:
        uris = labels_text(model.label_uris, model.config["n_labels"], "label_uris")
    if model.label_names is not None:
        labels = labels_text(model.label_names, model.config["n_labels"])
    with publishing(folder) as new:
        write_tensors(new.path(WEIGHTS), packed)
        files.write_json(new.path(HISTORY), model.history)
        if labels is not None:
            files.write_text(new.path(LABELS), labels)
        if uris is not None:
            files.write_text(new.path(URIS), uris)
        if model.vectorizer is not None:
            _write_vectorizer(model.vectorizer, new)
        if model.sample is not None:
            write_sample(new.path(SAMPLE), model.sample)
        if model.index is not None:
            write_index(new.path(INDEX), model.index)
        if model.remembered is not None:
            write_sample(new.path(REMEMBERED), model.remembered)
        if model.estimator is not None:
            files.write_json(new.path(ESTIMATOR), model.estimator)
        has = {"named_labels": labels is not None, "texts": model.vectorizer is not None}
        config = {"format": FORMAT, "circlet": __version__, **model.config, **has, "store": store}
        new.commit(config, model_card(config, model.history, model.label_names))


def _write_vectorizer(vectorizer: TextVectorizer | Tokenizer, new: Publication) -> None:
    if isinstance(vectorizer, Tokenizer):
        vectorizer.write(new.path(STATE_FILE))
    else:
        vectorizer.write(new.path(STATE_FILE), new.path(TENSOR_FILE))


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
