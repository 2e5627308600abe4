"""The files in a model's folder, and their list in `config.json`.

The files of a model that replaces another have new names, so that a reader never mixes the two: the first model in
a folder has `weights.safetensors`, the second `weights-2.safetensors`, and so on. Code and messages use the first
name; `config.json` has the current one.

`config.json` also has the size and the digest of every file. Both are checked whenever a file is read, with one
exception: reading all of a large file takes longer than tagging a document, so only parts of it are checked before
tagging. This tells the weights of two models apart. `circlet info --verify` checks everything, and so does further
training or copying.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from circlet import files
from circlet.checks import is_integer, is_real
from circlet.encoders import FEATURES
from circlet.errors import DataError
from circlet.features.vectorizer import STATE_FILE, TENSOR_FILE
from circlet.files import GZIPPED
from circlet.settings import Decision
from circlet.storage.packed_weights import DEFLATED
from circlet.storage.tensors import STORES
from circlet.version import __version__

# The package's docstring says what the files contain.
CONFIG, WEIGHTS, HISTORY, LABELS = "config.json", "weights.safetensors", "history.json", "labels.txt"
#: The description for people. It has this name in every folder, and `config.json` does not list it.
CARD = "MODEL_CARD.md"
URIS, ESTIMATOR, INDEX = "uris.txt", "estimator.json", "index.safetensors"
SAMPLE, REMEMBERED = "sample.safetensors", "remembered.safetensors"
#: Settings of an encoder of texts and what it has learned, and its arrays, if it has any.
ENCODER, ENCODER_ARRAYS = "encoder.json", "encoder.safetensors"
#: All files that a model may have besides `config.json`, which lists them.
TEXT_FILES = (STATE_FILE, TENSOR_FILE, ENCODER, ENCODER_ARRAYS)
FILES = (WEIGHTS, HISTORY, LABELS, URIS, *TEXT_FILES, SAMPLE, REMEMBERED, INDEX, ESTIMATOR)
#: The checkpoint of a run's only or first network; it exists as long as the run can be resumed.
CHECKPOINT = "checkpoint.safetensors"
#: Of an unfinished run: the options of `circlet train`, and the decisions; and the process that is writing.
RUN, DECIDED, LOCK = "run.json", "decided.json", ".lock"


def name_in(generation: int, name: str, *, zipped: bool = False) -> str:
    """Return the name of a file of the n-th model in a folder."""
    stem, _, suffix = name.partition(".")
    return (name if generation == 1 else f"{stem}-{generation}.{suffix}") + (GZIPPED if zipped else "")


def model_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files in a folder that are named like a model's file, with the number of the model."""
    numbered = re.compile(r"(?P<stem>[A-Za-z_]+)(-(?P<number>[1-9][0-9]{0,17}))?(?P<suffix>\.[a-z]+)(\.gz)?")
    for path in folder.iterdir():
        found = numbered.fullmatch(path.name)
        if found and found["stem"] + found["suffix"] in FILES:
            yield path, int(found["number"] or 1)


def checkpoint_of(stage: int) -> str:
    """Return the checkpoint's name for a stage of a run; stages are numbered from 0, files from 1."""
    return f"checkpoint-{stage + 1}.safetensors" if stage else CHECKPOINT


def is_checkpoint(name: str) -> bool:
    """Whether `name` is the name of a checkpoint."""
    return re.fullmatch(r"checkpoint(-[0-9]+)?\.safetensors", name) is not None


# The list of files in `config.json`

#: Files above `LARGE` bytes may be checked only at `SPOTS` places of `SPOT` bytes each.
LARGE, SPOTS, SPOT = 1 << 23, 64, 1 << 12


def described(path: Path) -> dict[str, Any]:
    """Describe a file for the list."""
    size = path.stat().st_size
    about = {"file": path.name, "bytes": size, "sha256": files.sha256(path)}
    return {**about, "spots": _spots(path, size)} if size > LARGE else about


def encoder_of(config: dict[str, Any]) -> Any:
    """Return the name of a model's encoder; `FEATURES` if it has none of texts."""
    return config["network"].get("encoder", FEATURES)


def takes_features(config: dict[str, Any]) -> bool:
    """Whether a model's first layer takes features; see `NetworkSettings`."""
    return encoder_of(config) == FEATURES or bool(config["network"].get("bag_of_words"))


def located(folder: Path, config: dict[str, Any], name: str) -> Path:
    """Return the path of a file."""
    about: dict[str, Any] = config["files"].get(name, {"file": name})
    return folder / str(about["file"])


def checked(folder: Path, config: dict[str, Any], name: str, *, whole: bool = True) -> Path:
    """Return a file's path; raise `DataError` if the file differs from its description in the configuration.

    Unless `whole`, only parts of large files are checked.
    """
    path, about = located(folder, config, name), config["files"].get(name, {})
    size, found = files.check_regular(path, name), ""
    try:
        if size != about.get("bytes", size):
            found = f"{size:,} bytes; wanted {about['bytes']:,}"
        elif "spots" in about and not whole:
            found = "another digest" if _spots(path, size) != about["spots"] else ""
        elif "sha256" in about:
            found = "another digest" if files.sha256(path) != about["sha256"] else ""
    except OSError as error:
        raise DataError(f"{path}: found no readable {name} ({error.strerror})") from error
    if found:
        raise DataError(
            f"{path}: found other content than {CONFIG} describes ({found}); the model is damaged: copy it or "
            "train it again"
        )
    return path


def verify(folder: Path, config: dict[str, Any]) -> None:
    """Check all files completely; raise `DataError` if one differs from its description."""
    for name in config["files"]:
        checked(folder, config, name)


def _spots(path: Path, size: int) -> str:
    """Return a digest of evenly spaced parts of a file, including its start and end."""
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as stream:
        for spot in range(SPOTS):
            stream.seek((size - SPOT) * spot // (SPOTS - 1))
            digest.update(stream.read(SPOT))
    return digest.hexdigest()


# `config.json`: the description of a model, and its checks

#: The version of the folder's layout.
FORMAT = 1
#: Upper limit on labels; if labels have no names, the size of a folder does not limit their number.
MOST_LABELS = 100_000_000
#: Upper limit on the numbers of a calibration; it fits into float32.
STEEPEST = 1e30

T = TypeVar("T")


def reading(folder: Path, use: Callable[[dict[str, Any]], T]) -> T:
    """Return the result of `use`, called with a configuration whose files all belong to one model.

    If another process replaces the model meanwhile, files may be missing; then `use` is called again.
    """
    for _ in range(50):  # the model may be replaced this often meanwhile
        before = _content(folder)
        try:
            return use(read_config(folder))
        except DataError:
            if _content(folder) == before:
                raise
    return use(read_config(folder))


def sealed(config: dict[str, Any]) -> dict[str, Any]:
    """Add the digest of all values to a configuration, so that any change is detected."""
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
            # `circlet train` keeps its options beside the checkpoint; without them, Python code was training.
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
        if name not in config and name == "threshold":  # optional
            continue
        if name not in config or not holds(config[name]):
            found = repr(config[name])[:80] if name in config else "nothing"
            raise DataError(f"{path}: found {found} as `{name}`; wanted {wanted}")
    _check_files(path, config)
    return config


def _check_files(path: Path, config: dict[str, Any]) -> None:
    """Raise `DataError` unless a configuration lists exactly the files that its model needs."""
    listed, generation = config["files"], config["generation"]
    needed = {WEIGHTS, HISTORY}
    needed |= {LABELS} if config["named_labels"] else set()
    if config["texts"]:
        needed |= {STATE_FILE, TENSOR_FILE} if takes_features(config) else set()
        needed |= set() if encoder_of(config) == FEATURES else {ENCODER}
    if not needed <= set(listed) <= set(FILES):
        missing, unknown = sorted(needed - set(listed)), sorted(set(listed) - set(FILES))
        wanted = f"{missing[0]} among them" if missing else f"no {unknown[0][:80]}"
        raise DataError(f"{path}: found a list of {len(listed)} files; wanted {wanted}")
    for name, about in listed.items():
        names = [name_in(generation, name, zipped=zipped) for zipped in (False, True)]
        if not isinstance(about, dict) or about.get("file") not in names:
            raise DataError(f"{path}: found {str(about)[:80]} as the place of {name}; wanted {names[0]}")
        size, digests = about.get("bytes"), {"sha256", "spots"} & set(about)
        fits = type(size) is int and size >= 0 and "sha256" in digests and ("spots" in digests or size <= LARGE)
        if not fits or not all(re.fullmatch("[0-9a-f]{64}", str(about[each])) for each in digests):
            raise DataError(f"{path}: found {str(about)[:80]} for {name}; wanted its size and digests")


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
        # With only one network, the model has the curve, and the network (1, 0).
        and (len(value) > 1 or value[0]["calibration"] == [1.0, 0.0])
    )


def _training(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("decided", []), list):
        return False
    counts = (value.get(name, 0) for name in ("documents", "held_out"))
    names = Decision("", None, "").as_dict().keys()
    decided = all(isinstance(each, dict) and each.keys() == names for each in value.get("decided", []))
    return decided and all(is_integer(count, 0) for count in counts)


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    return lambda value: (None if value is None else type(value)) in kinds


#: The values of config.json besides the format: a check, and a description for error messages.
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
