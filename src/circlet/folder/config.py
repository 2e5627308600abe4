"""`config.json`: what a model is, and that the file says all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.errors import DataError
from circlet.folder.deflated import DEFLATED
from circlet.folder.layout import CHECKPOINT, CONFIG, RUN
from circlet.folder.manifest import check_manifest
from circlet.folder.precision import STORES
from circlet.settings import Decision
from circlet.version import __version__

__all__ = ["FORMAT", "MOST_LABELS", "read_config", "reading", "sealed"]

#: The version of the folder's layout.
FORMAT = 1
#: More labels than anybody has; the size of a folder says nothing about their number if they have no names.
MOST_LABELS = 100_000_000
#: No calibration needs numbers as large as this, which float32 still holds.
STEEPEST = 1e30
#: What the record of a decision has.
_DECISION = Decision("", None, "").as_dict().keys()
#: How often a model is read anew if it is replaced meanwhile.
ATTEMPTS = 50

T = TypeVar("T")


def reading(folder: Path, use: Callable[[dict[str, Any]], T]) -> T:
    """What `use` makes of a configuration and the files that it lists; all of them belong to one model.

    A file may be missing because another process has replaced the model. Then `use` is called again.
    """
    for _ in range(ATTEMPTS):
        before = _content(folder)
        try:
            return use(read_config(folder))
        except DataError:
            if _content(folder) == before:
                raise
    return use(read_config(folder))


def sealed(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the digest of all its values, so that none of them changes unnoticed."""
    values = {name: value for name, value in config.items() if name != "sha256"}
    described = json.dumps(values, sort_keys=True, allow_nan=False).encode()
    return {**values, "sha256": hashlib.sha256(described).hexdigest()}


def _content(folder: Path) -> bytes | None:
    try:
        return files.read_bytes(folder / CONFIG)
    except DataError:
        return None


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check `config.json`."""
    path = folder / CONFIG
    if not path.is_file():
        if (folder / CHECKPOINT).is_file():
            # `circlet train` keeps its options beside the checkpoint; if there are none, Python code was training.
            by_command = (folder / RUN).is_file()
            how = f"circlet train DATA --model {folder} --resume" if by_command else "the same `fit`, resume=True"
            raise DataError(
                f"{folder} is not a circlet model yet: found an interrupted run in it; to go on: {how}"
            )
        found = f"no {CONFIG} in it" if folder.exists() else "no folder there"
        raise DataError(
            f"{folder} is not a circlet model: found {found}; wanted a folder that circlet has written"
        )
    config = files.read_json(path)
    if not isinstance(config, dict) or "format" not in config or "circlet" not in config:
        raise DataError(f"{path}: found a configuration that is not circlet's; wanted a model that circlet saved")
    if config["format"] != FORMAT:
        raise DataError(
            f"{path}: found format {config['format']}, written by circlet {config['circlet']}; "
            f"this is circlet {__version__}, which reads format {FORMAT}"
        )
    if config != sealed(config):
        raise DataError(
            f"{path}: found other values than circlet has saved (another sha256); the model is damaged: "
            "copy it or train it again"
        )
    for name, (holds, wanted) in _WANTED.items():
        if name not in config and name == "threshold":  # which not every model has
            continue
        if name not in config or not holds(config[name]):
            found = repr(config[name])[:80] if name in config else "nothing"
            raise DataError(f"{path}: found {found} as `{name}`; wanted {wanted}")
    check_manifest(path, config)
    return config


def _count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _curve(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not all(map(is_real, value)):
        return False
    return bool(0 < value[0] < STEEPEST and abs(value[1]) < STEEPEST)


def _members(value: Any) -> bool:
    checks = {"seed": lambda seed: is_integer(seed, 0), "codebook": _is(dict, None), "calibration": _curve}
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and set(each) == set(checks) for each in value)
        and all(holds(each[name]) for each in value for name, holds in checks.items())
        # The only network's curve is that of the model.
        and (len(value) > 1 or value[0]["calibration"] == [1.0, 0.0])
    )


def _training(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("decided", []), list):
        return False
    counts = (value.get(name, 0) for name in ("documents", "held_out"))
    decided = all(isinstance(each, dict) and each.keys() == _DECISION for each in value.get("decided", []))
    return decided and all(is_integer(count, 0) for count in counts)


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    return lambda value: (None if value is None else type(value)) in kinds


#: What config.json may hold besides its format: a check, and what is wanted in words.
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "network": (_is(dict), "settings by name"),
    "n_features": (_count, "an integer >= 1"),
    "n_labels": (lambda value: _count(value) and value <= MOST_LABELS, f"an integer from 1 to {MOST_LABELS:,}"),
    "sparse": (_is(bool), "true or false"),
    "scaling": (_is(str), "a name"),
    "calibration": (_curve, f"two finite numbers below {STEEPEST:g}, the first above 0"),
    "named_labels": (_is(bool), "true or false"),
    "texts": (_is(bool), "true or false"),
    "store": (
        lambda value: isinstance(value, str) and value in (*STORES, DEFLATED),
        f"one of {', '.join((*STORES, DEFLATED))}",
    ),
    "training": (_training, "settings by name"),
    "members": (_members, "the seed, codebook and calibration of each network"),
    "threshold": (lambda value: is_real(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "generation": (lambda value: _count(value) and value < 10**17, "the number of the model, from 1"),
    "files": (_is(dict), "a list of files"),
}
