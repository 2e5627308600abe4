"""The files of a saved vectorizer: `vectorizer.json` and `vectorizer.safetensors`; a tokenizer has only the first.

Whatever can be wrong with a damaged, foreign or newer file is found here and raised as a DataError.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.features.terms import Vocabulary
from circlet.files import read_bytes, read_json, read_tensors, write_text

KIND = "tfidf"
FORMAT = 1
STATE_FILE = "vectorizer.json"
TENSOR_FILE = "vectorizer.safetensors"


def write_state(
    path: Path,
    kind: str,
    parameters: dict[str, Any],
    terms: dict[str, list[str]],
    idf: npt.NDArray[np.float64] | None = None,
) -> None:
    """Write the state with a digest of it and, if there are any, of the numbers in the other file."""
    state = {"kind": kind, "format": FORMAT, "parameters": parameters, "terms": terms}
    # It is ASCII only, so that no reader, editor or line ending changes a term.
    described = json.dumps(state)
    write_text(path, described[:-1] + _ending(_digest(described.encode(), idf)))


def read_state(path: Path, kind: str) -> dict[str, Any]:
    """Read `vectorizer.json`; its kind, format and keys are the ones that `write_state` writes."""
    state = read_json(path)
    if not isinstance(state, dict):
        raise DataError(f"{path}: a saved vectorizer is a JSON object, found {type(state).__name__}")
    if state.get("kind") != kind:
        raise DataError(f"{path}: `kind` must be {kind!r}, found {state.get('kind')!r}")
    version = state.get("format")
    if type(version) is int and version > FORMAT:
        raise DataError(f"{path}: saved by a newer circlet (format {version}); this one reads up to {FORMAT}")
    if type(version) is not int or version != FORMAT:
        raise DataError(f"{path}: `format` must be {FORMAT}, found {version!r}")
    wanted = {"kind", "format", "parameters", "terms", "sha256"}
    if set(state) != wanted:
        raise DataError(f"{path}: the keys must be {sorted(wanted)}, found {sorted(state)}")
    return state


def checked_terms(path: Path, terms: Any, kinds: list[str]) -> dict[str, Vocabulary]:
    """Return the terms in the order of `kinds`: different strings, not all of the lists empty."""
    if not isinstance(terms, dict) or sorted(terms) != sorted(kinds):
        found = sorted(terms) if isinstance(terms, dict) else type(terms).__name__
        raise DataError(f"{path}: `terms` must have a list for each of {kinds}, found {found}")
    vocabularies = {}
    for kind in kinds:
        if not isinstance(terms[kind], list) or not set(map(type, terms[kind])) <= {str}:
            raise DataError(f"{path}: the terms of {kind!r} must be a list of strings")
        vocabularies[kind] = Vocabulary(terms[kind])
        if not vocabularies[kind].all_different:
            raise DataError(f"{path}: the terms of {kind!r} are not all different")
    if not any(terms.values()):
        raise DataError(f"{path}: there are no terms")
    return vocabularies


def read_idf(path: Path, size: int) -> npt.NDArray[np.float64]:
    """Read `size` finite numbers from `vectorizer.safetensors`."""
    tensors, _ = read_tensors(path, "numpy")
    if list(tensors) != ["idf"]:
        raise DataError(f"{path}: must hold one tensor, 'idf', found {list(tensors)}")
    idf: npt.NDArray[np.float64] = tensors["idf"]
    if idf.dtype != np.float64 or idf.shape != (size,):
        found = f"{idf.dtype} of shape {idf.shape}"
        raise DataError(f"{path}: 'idf' must be float64 of shape ({size},), one per term, found {found}")
    if not np.isfinite(idf).all():
        raise DataError(f"{path}: 'idf' has non-finite numbers")
    return idf


def check_digest(
    path: Path, state: dict[str, Any], idf: npt.NDArray[np.float64] | None = None, beside: str | None = None
) -> None:
    """Make sure that state and numbers are unchanged, and written by the same save."""
    ending, content = _ending(state["sha256"]).encode(), read_bytes(path)
    if content.endswith(ending):
        described = content[: -len(ending)] + b"}"
    else:  # somebody has formatted the file anew
        described = json.dumps({name: value for name, value in state.items() if name != "sha256"}).encode()
    if state["sha256"] != _digest(described, idf):
        other = "" if beside is None else f", or saved at another time than {beside}"
        raise DataError(f"{path}: damaged{other}: the sha256 differs")


def _digest(described: bytes, idf: npt.NDArray[np.float64] | None) -> str:
    digest = hashlib.sha256(described)
    if idf is not None:
        digest.update(idf.astype("<f8").tobytes())
    return digest.hexdigest()


def _ending(digest: Any) -> str:
    """How the file ends, after everything that the digest is of."""
    return f', "sha256": {json.dumps(digest)}}}\n'
