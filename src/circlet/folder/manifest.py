"""Which files a model has: their names, sizes and digests, as `config.json` lists them.

Sizes are checked whenever a file is read, and digests too, with one exception: reading all of large weights takes
longer than tagging a document, so a model that is only used checks them at some places. That tells the weights of
two models apart. Damage to single numbers is found by `circlet info --verify`, and before a model is trained
further or copied.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError
from circlet.folder.layout import CONFIG, FILES, HISTORY, LABELS, STATE_FILE, TENSOR_FILE, WEIGHTS, name_in
from circlet.settings.network import FEATURES

__all__ = ["check_manifest", "checked", "described", "located", "reads_texts", "verify"]

#: Files of more bytes may be checked at some places only: so many, and so many bytes each.
LARGE, SPOTS, SPOT = 1 << 23, 64, 1 << 12

_DIGEST = re.compile("[0-9a-f]{64}")


def described(path: Path) -> dict[str, Any]:
    """What the list says about a file."""
    size = path.stat().st_size
    about = {"file": path.name, "bytes": size, "sha256": files.sha256(path)}
    return {**about, "spots": _spots(path, size)} if size > LARGE else about


def check_manifest(path: Path, config: dict[str, Any]) -> None:
    """Raise `DataError` unless a configuration lists exactly the files that its model needs."""
    listed, generation = config["files"], config["generation"]
    needed = {WEIGHTS, HISTORY}
    needed |= {LABELS} if config["named_labels"] else set()
    if config["texts"]:
        needed |= {STATE_FILE} if reads_texts(config) else {STATE_FILE, TENSOR_FILE}
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
        if not fits or not all(_DIGEST.fullmatch(str(about[each])) for each in digests):
            raise DataError(f"{path}: found {str(about)[:80]} for {name}; wanted its size and digests")


def reads_texts(config: dict[str, Any]) -> bool:
    """Whether a model's encoder reads texts word by word, as `NetworkSettings.reads_texts` says."""
    return bool(config["network"].get("encoder", FEATURES) != FEATURES)


def located(folder: Path, config: dict[str, Any], name: str) -> Path:
    """Where a file is."""
    about: dict[str, Any] = config["files"].get(name, {"file": name})
    return folder / str(about["file"])


def checked(folder: Path, config: dict[str, Any], name: str, *, whole: bool = True) -> Path:
    """Where a file is; a `DataError` if it is not the one that the configuration describes.

    Unless `whole`, large files are only checked at some places.
    """
    path, about = located(folder, config, name), config["files"].get(name, {})
    size = files.check_regular(path, name)
    if size != about.get("bytes", size):
        raise _other(path, f"{size:,} bytes; wanted {about['bytes']:,}")
    try:
        if "spots" in about and not whole:
            differs = _spots(path, size) != about["spots"]
        else:
            differs = "sha256" in about and files.sha256(path) != about["sha256"]
    except OSError as error:
        raise DataError(f"{path}: found no readable {name} ({error.strerror})") from error
    if differs:
        raise _other(path, "another digest")
    return path


def verify(folder: Path, config: dict[str, Any]) -> None:
    """Raise `DataError` unless all files are the ones that the configuration describes, completely."""
    for name in config["files"]:
        checked(folder, config, name)


def _other(path: Path, found: str) -> DataError:
    return DataError(
        f"{path}: found other content than {CONFIG} describes ({found}); the model is damaged: copy it or train "
        "it again"
    )


def _spots(path: Path, size: int) -> str:
    """A digest of parts of a file, evenly spaced, its start and end included."""
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as stream:
        for spot in range(SPOTS):
            stream.seek((size - SPOT) * spot // (SPOTS - 1))
            digest.update(stream.read(SPOT))
    return digest.hexdigest()
