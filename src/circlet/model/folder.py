"""A model's folder: how each of its files is written, read and checked.

| file | what it holds |
|---|---|
| `config.json` | settings, sizes, calibration, and the digest of the weights; written last |
| `weights.safetensors` | the weights of all networks and the arrays of the scaling, see `precision` |
| `history.json` | a record per epoch |
| `labels.txt` | the names of the labels, if they have names |
| `vectorizer.json`, `vectorizer.safetensors` | the text vectorizer's state, if documents are texts |
| `estimator.json` | what only `CircletClassifier` knows, if it saved the model |
| `checkpoint.safetensors`, `run.json`, `decided.json` | an interrupted run; each network has a checkpoint |

If anything is wrong with a file, a `DataError` names it. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from circlet import files
from circlet.checks import is_integer
from circlet.errors import DataError
from circlet.features.vectorizer import TextVectorizer, load_vectorizer
from circlet.features.vectorizer_state import STATE_FILE, TENSOR_FILE
from circlet.model import precision
from circlet.training import checkpoint
from circlet.version import __version__

__all__ = ["FORMAT", "SEVERAL", "Contents", "read", "read_config", "read_weights", "write"]

#: Versions of the folder's layout: of a model of one network, and of several. Others are refused.
FORMAT, SEVERAL = 1, 2
CONFIG, WEIGHTS, HISTORY, LABELS = "config.json", "weights.safetensors", "history.json", "labels.txt"
ESTIMATOR = "estimator.json"
#: The options of a run of `circlet train`, kept beside its checkpoint.
RUN = "run.json"
#: What was decided for an unfinished run.
DECIDED = "decided.json"


@dataclass
class Contents:
    """What a model's folder holds.

    Parameters
    ----------
    config : dict
        Everything in `config.json`, except what describes the files themselves.
    tensors : dict of Tensor
        Weights and arrays by name.
    history : list of dict
    label_names : list of str or None
    vectorizer : TextVectorizer or None
    """

    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    history: list[dict[str, Any]]
    label_names: list[str] | None
    vectorizer: TextVectorizer | None


def write(folder: Path, contents: Contents, store: str) -> None:
    """Write a model, in place of any that is there; `store` is one of `precision.STORES`."""
    tensors = precision.packed(contents.tensors, store)
    files.prepare_folder(folder)
    files.write_tensors(folder / WEIGHTS, tensors)
    files.write_json(folder / HISTORY, contents.history)
    if contents.label_names is not None:
        files.write_text(folder / LABELS, "".join(f"{name}\n" for name in contents.label_names))
    if contents.vectorizer is not None:
        contents.vectorizer.save(folder)
    own = {
        "named_labels": contents.label_names is not None,
        "texts": contents.vectorizer is not None,
        "weights_sha256": files.sha256(folder / WEIGHTS),
        "store": store,
    }
    layout = SEVERAL if "members" in contents.config else FORMAT
    files.write_json(folder / CONFIG, {"format": layout, "circlet": __version__, **contents.config, **own})
    checkpoint.remove(folder)
    (folder / DECIDED).unlink(missing_ok=True)
    # Files that an earlier model here had and this one does not.
    stale = [ESTIMATOR]
    stale += [LABELS] if contents.label_names is None else []
    stale += [STATE_FILE, TENSOR_FILE] if contents.vectorizer is None else []
    for name in stale:
        (folder / name).unlink(missing_ok=True)


def read(folder: Path) -> Contents:
    """Read and check a model."""
    config = read_config(folder)
    return Contents(
        config,
        read_weights(folder / WEIGHTS, config["weights_sha256"], config["store"]),
        _read_history(folder / HISTORY),
        _read_labels(folder / LABELS, config["n_labels"]) if config["named_labels"] else None,
        load_vectorizer(folder) if config["texts"] else None,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check `config.json`."""
    path = folder / CONFIG
    if not path.is_file():
        if (folder / checkpoint.NAME).is_file():
            # `circlet train` keeps its options beside the checkpoint; if there are none, Python code was training.
            by_command = (folder / RUN).is_file()
            how = f"circlet train DATA --model {folder} --resume" if by_command else "the same `fit`, resume=True"
            raise DataError(
                f"{folder} is not a circlet model yet: found an interrupted run in it; to go on: {how}"
            )
        raise DataError(
            f"{folder} is not a circlet model: found no {CONFIG} in it; wanted a folder that circlet has written"
        )
    config = files.read_json(path)
    if not isinstance(config, dict) or "format" not in config or "circlet" not in config:
        raise DataError(f"{path}: found a configuration that is not circlet's; wanted a model that circlet saved")
    if config["format"] not in (FORMAT, SEVERAL):
        raise DataError(
            f"{path}: found format {config['format']}, written by circlet {config['circlet']}; "
            f"this is circlet {__version__}, which reads formats {FORMAT} and {SEVERAL}"
        )
    config.setdefault("store", "float32")  # older folders do not say, since there was no choice
    for name, (holds, wanted) in (_WANTED | _WANTED_OF[config["format"]]).items():
        if name not in config or not holds(config[name]):
            found = repr(config[name])[:80] if name in config else "nothing"
            raise DataError(f"{path}: found {found} as `{name}`; wanted {wanted}")
    return config


def _count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _pair(value: Any) -> bool:
    return isinstance(value, list) and [type(part) in (int, float) for part in value] == [True, True]


def _members(value: Any) -> bool:
    checks = {"seed": lambda seed: is_integer(seed, 0), "codebook": _is(dict, None), "calibration": _pair}
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(each, dict) and set(each) == set(checks) for each in value)
        and all(holds(each[name]) for each in value for name, holds in checks.items())
    )


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    return lambda value: (None if value is None else type(value)) in kinds


#: What config.json must hold besides its format: a check, and what is wanted in words.
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "network": (_is(dict), "settings by name"),
    "n_features": (_count, "an integer >= 1"),
    "n_labels": (_count, "an integer >= 1"),
    "sparse": (_is(bool), "true or false"),
    "scaling": (_is(str), "a name"),
    "calibration": (_pair, "two numbers"),
    "named_labels": (_is(bool), "true or false"),
    "texts": (_is(bool), "true or false"),
    "weights_sha256": (_is(str), "a digest"),
    "store": (
        lambda value: isinstance(value, str) and value in precision.STORES,
        f"one of {', '.join(precision.STORES)}",
    ),
    "training": (_is(dict), "settings by name"),
}
#: And what else, by format.
_WANTED_OF: dict[int, dict[str, tuple[Callable[[Any], bool], str]]] = {
    FORMAT: {"codebook": (_is(dict, None), "a codebook's state or null")},
    SEVERAL: {"members": (_members, "the seed, codebook and calibration of each of two or more networks")},
}


def read_weights(path: Path, digest: str, store: str) -> dict[str, torch.Tensor]:
    """Read the tensors of a file, as float32 whatever their storage format."""
    try:
        damaged = files.sha256(path) != digest
    except OSError as error:
        raise DataError(f"{path}: found no readable tensors ({error.strerror or error})") from error
    if damaged:
        raise DataError(
            f"{path}: found other weights than {CONFIG} describes; the model is damaged: copy it or train it again"
        )
    tensors, _ = files.read_tensors(path, "torch")
    return precision.unpacked(path, tensors, store)


def _read_history(path: Path) -> list[dict[str, Any]]:
    history = files.read_json(path)
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise DataError(f"{path}: found no history; wanted a list with a record per epoch")
    return history


def _read_labels(path: Path, n_labels: int) -> list[str]:
    try:
        names = path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: found no readable label names ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(names) != n_labels:
        raise DataError(f"{path}: found {len(names)} label names; wanted {n_labels}")
    return names
