"""`config.json`: what a model is, and that the file says all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer
from circlet.errors import DataError
from circlet.folder.deflated import DEFLATED
from circlet.folder.layout import CHECKPOINT, CONFIG, RUN
from circlet.folder.precision import STORES
from circlet.version import __version__

__all__ = ["FORMAT", "SEVERAL", "read_config"]

#: Versions of the folder's layout: of a model of one network, and of several. Others are refused.
FORMAT, SEVERAL = 1, 2


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
        lambda value: isinstance(value, str) and value in (*STORES, DEFLATED),
        f"one of {', '.join((*STORES, DEFLATED))}",
    ),
    "training": (_is(dict), "settings by name"),
}
#: And what else, by format.
_WANTED_OF: dict[int, dict[str, tuple[Callable[[Any], bool], str]]] = {
    FORMAT: {"codebook": (_is(dict, None), "a codebook's state or null")},
    SEVERAL: {"members": (_members, "the seed, codebook and calibration of each of two or more networks")},
}
