"""Dense features: computed from raw text by a sentence-transformers model in a local folder, or read from files.

This module downloads nothing, runs no code from a model's folder, and reads weights only from safetensors.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import is_integer
from circlet.data import matrices
from circlet.data.dataset import Dataset, Split
from circlet.errors import DataError, MissingExtraError, ParameterError, bad, shown
from circlet.features.rows import Scaling
from circlet.files import explained, followed, output, prepare_folder, sha256, write_json

logger = logging.getLogger(__name__)

MODES = {
    "dense": "the dense rows as they are in the files",
    "both": "bag of words and dense columns side by side, each part of a row scaled to norm 1",
}

#: The file that `embed_dataset` writes beside the features: their origin and the finished parts.
RECORD = "embed.json"
_PARTS = {"trn": "train", "tst": "test"}

#: Iterates over the steps of a run and shows its progress, as `rich.progress.track` does.
Track = Callable[[Sequence[int]], Iterable[int]]


def with_features(dataset: Dataset, folder: str | Path, mode: str = "dense") -> Dataset:
    """Replace a dataset's features by the dense features in a folder, or add these to them.

    Parameters
    ----------
    dataset : Dataset
        `(n, n_features)` per part; only mode "both" needs features in it.
    folder : str or Path
        Folder with `X.trn.npy` `(n, d)`, and `X.tst.npy` if there are test rows, from `circlet embed` or any other
        program; an `.npz` with one array also works.
    mode : str
        One of `MODES`. "dense" gives arrays `(n, d)`, "both" CSR `(n, n_features + d)`.
    """
    if mode not in MODES:
        raise ParameterError(f"`mode`: found {mode!r}; wanted one of {', '.join(MODES)}")
    folder = Path(folder)
    parts = {"trn": dataset.train} | ({} if dataset.test is None else {"tst": dataset.test})
    dense = {part: _read_dense(folder, part, split.n) for part, split in parts.items()}
    columns = [rows.shape[1] for rows in dense.values()]
    if columns[0] != columns[-1]:
        found = f"{columns[0]} columns in X.trn and {columns[-1]} in X.tst"
        raise bad(folder, None, found, "the same number")
    combined = {part: _combine(split, dense[part], mode, dataset) for part, split in parts.items()}
    words = "dense features" if mode == "dense" else f"{dataset.format}, with dense features beside them"
    return replace(dataset, train=combined["trn"], test=combined.get("tst"), format=words)


def _read_dense(folder: Path, part: str, n: int) -> npt.NDArray[np.float32]:
    path = matrices.feature_file(folder, part)
    if path is None:
        raise bad(folder, None, f"no X.{part}.npy", f"dense features of {n} rows")
    dense = matrices.read_features(path)
    if sp.issparse(dense):
        raise bad(path, None, "a sparse matrix", "dense features")
    if dense.shape[0] != n:
        raise bad(path, None, f"{dense.shape[0]} rows", f"one for each of the {n} rows of the dataset's part")
    return dense


def _combine(split: Split, dense: npt.NDArray[np.float32], mode: str, dataset: Dataset) -> Split:
    if mode == "dense":
        return replace(split, X=dense)
    if split.X is None:
        where = dataset.source or dataset.name
        raise DataError(f"{where}: found {dataset.format}, without features; wanted features to add dense ones to")
    scale = Scaling("l2")
    halves = [_as_csr(scale.transform(part)) for part in (split.X, dense)]
    X = sp.hstack(halves, format="csr", dtype=np.float32)
    X.eliminate_zeros()
    X.sort_indices()
    return replace(split, X=X)


def _as_csr(rows: Any) -> sp.csr_matrix:
    if sp.issparse(rows):
        return rows
    # SciPy's conversion takes three times the memory, since it makes coordinates first.
    n, d = rows.shape
    columns = np.tile(np.arange(d, dtype=np.int32), n)
    return sp.csr_matrix((rows.ravel(), columns, np.arange(0, n * d + 1, max(d, 1))[: n + 1]), shape=(n, d))


def embed(
    texts: Sequence[str],
    model_path: str | Path,
    *,
    batch_size: int = 64,
    device: str = "auto",
    progress: Track | None = None,
) -> npt.NDArray[np.float32]:
    """Embed texts with a model from a local folder; return `(n, d)` float32, rows of norm 1.

    sentence-transformers saved the folder; a model's name on a hub raises an error. With the device "auto",
    sentence-transformers chooses. `progress` iterates over the steps it is given and shows the progress.
    """
    return encode(load_model(model_path, device), texts, batch_size=batch_size, progress=progress)


def load_model(model_path: str | Path, device: str = "auto") -> Any:
    """Load the `SentenceTransformer` in a local folder."""
    folder = check_model_folder(model_path)
    try:
        # Not an import statement, because mypy would then need the package.
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", extra="embed", purpose="embedding texts") from error
    from safetensors import SafetensorError

    place = None if device == "auto" else device
    try:
        with _offline():
            return library.SentenceTransformer(str(folder), device=place, local_files_only=True)
    except (SafetensorError, OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
        what = f"a model that cannot be loaded on device {device} ({type(error).__name__}: {error})"
        raise bad(folder, None, what, "a folder as sentence-transformers saves it") from error


def encode(
    model: Any, texts: Sequence[str], *, batch_size: int = 64, progress: Track | None = None
) -> npt.NDArray[np.float32]:
    """Embed texts with a loaded model; see `embed`."""
    if not is_integer(batch_size, 1):
        raise ParameterError(f"`batch_size`: found {batch_size!r}; wanted an integer >= 1")
    if isinstance(texts, str):
        raise DataError("found one text; wanted a list of texts")
    for row, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise DataError(f"text {row}: found {type(text).__name__}; wanted a text")
    # A batch is padded to its longest text, so texts are sorted by length. The longest come first, so that a
    # shortage of memory shows at once.
    order = np.argsort([-len(text) for text in texts], kind="stable")
    steps = range(0, len(texts), batch_size)
    rows = np.empty((0, 0), dtype=np.float32)
    with _offline():
        for start in steps if progress is None else progress(steps):
            taken = order[start : start + batch_size]
            batch = _encode_batch(model, [texts[row] for row in taken.tolist()])
            if start == 0:
                rows = np.empty((len(texts), batch.shape[1]), dtype=np.float32)
            rows[taken] = batch
        if not texts:
            rows = _encode_batch(model, [""])[:0]  # no rows, but the right number of columns
    unit: npt.NDArray[np.float32] = Scaling("l2").transform(rows)
    return unit


def _encode_batch(model: Any, texts: list[str]) -> npt.NDArray[np.float32]:
    batch = model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
    rows: npt.NDArray[np.float32] = np.asarray(batch, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[0] != len(texts):
        raise DataError(f"found embeddings of shape {rows.shape}; wanted one row for each of {len(texts)} texts")
    if not np.isfinite(rows).all():
        wrong = texts[int(np.argwhere(~np.isfinite(rows))[0, 0])]
        raise DataError(f"found a non-finite embedding of {shown(wrong)}; wanted finite numbers")
    return rows


def check_model_folder(model_path: str | Path) -> Path:
    """Return the path of a model that is safe to load without trusting it; raise `DataError` otherwise."""
    folder = Path(model_path)
    if not folder.is_dir():
        wanted = "the folder of a sentence-transformers model (not a name: nothing is downloaded)"
        raise bad(folder, None, "a file" if folder.exists() else "no such folder", wanted)
    path = folder / "modules.json"
    if not path.is_file():
        raise bad(folder, None, "no modules.json", "a folder as sentence-transformers saves it")
    try:
        with explained(path):
            kinds = [module["type"] for module in json.loads(path.read_bytes())]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"no readable list of modules ({type(error).__name__})"
        raise bad(path, None, what, "modules with a type each") from error
    for kind in kinds:
        # Older versions of sentence-transformers import modules of any name, even from the model's folder.
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise bad(path, None, f"a module of type {kind!r}", "only those of sentence_transformers")
    if not any(folder.rglob("*.safetensors")):
        raise bad(folder, None, "no .safetensors file", "weights in that format (others may contain code)")
    return folder


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the hub's client offline, like HF_HUB_OFFLINE, which works only before the first import."""
    try:
        constants: Any = import_module("huggingface_hub.constants")
    except ImportError:  # no client is installed
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def embed_dataset(
    dataset: Dataset,
    model_path: str | Path,
    folder: str | Path,
    *,
    name: str | None = None,
    batch_size: int = 64,
    device: str = "auto",
    progress: Callable[[str, Sequence[int]], Iterable[int]] | None = None,
) -> dict[str, Any]:
    """Embed a dataset's raw texts; write `X.trn.npy`, `X.tst.npy` and the record `embed.json`.

    A part that an earlier run finished is kept if the texts and the model are the same. For the other parameters,
    see `embed`; `progress` also takes a description.

    `name` is the name of the model in the record, by default that of its folder. The record is returned.
    """
    from circlet.provenance import provenance  # imports torch

    source, folder = check_model_folder(model_path), Path(folder)
    texts = _raw_texts(dataset)
    digests = {part: _digest(rows) for part, rows in texts.items()}
    kinds = (".safetensors", ".json", ".txt", ".model")  # the weights and all else that determines embeddings
    paths = sorted(path for path in source.rglob("*") if path.suffix in kinds and path.is_file())
    files = {path.relative_to(source).as_posix(): sha256(path) for path in paths}
    before = _read_record(folder)

    def is_done(part: str) -> bool:
        entry, path = before["parts"].get(part), folder / f"X.{part}.npy"
        return (
            isinstance(entry, dict)
            and before["model"].get("files") == files
            and entry.get("texts_sha256") == digests[part]
            and path.is_file()
            and entry.get("sha256") == sha256(path)
        )

    done = {part: before["parts"][part] for part in texts if is_done(part)}
    if len(done) == len(texts) == len(before["parts"]):
        return before
    model = load_model(source, device)
    prepare_folder(folder)
    longest = getattr(model, "max_seq_length", None)  # infinite for some models, which JSON cannot express
    about = {
        "name": name or source.resolve().name,
        "max_seq_length": longest if isinstance(longest, int) else None,
        "files": files,
    }
    record = {
        "provenance": provenance(packages=("sentence-transformers", "transformers")),
        "data": {"name": dataset.name, "format": dataset.format},
        "model": about,
        "parts": done,
    }
    # The record comes first: it marks files of an interrupted run as ours and unfinished.
    write_json(followed(folder / RECORD), record)
    left = [part for part in _PARTS if part not in done]
    for part in left:
        if (stale := followed(folder / f"X.{part}.npy")).is_file():  # from other texts or another model
            stale.unlink()
    for part in left:
        if part not in texts:
            continue
        track = partial(progress, f"embedding {_PARTS[part]}") if progress else None
        started = time.perf_counter()
        rows = encode(model, texts[part], batch_size=batch_size, progress=track)
        seconds = time.perf_counter() - started
        path, speed = folder / f"X.{part}.npy", round(len(rows) / max(seconds, 1e-9), 1)
        with output(path) as out:
            # float16 takes half the disk space; its relative rounding error of 1/2000 changes no ranking.
            np.save(out, rows.astype(np.float16), allow_pickle=False)
        logger.info("%s: %d texts, %.1f per second", path, len(rows), speed)
        about_rows = {"rows": rows.shape[0], "dims": rows.shape[1], "sha256": sha256(path)}
        about_time = {"seconds": round(seconds, 1), "texts_per_second": speed}
        done[part] = {**about_rows, **about_time, "texts_sha256": digests[part]}
        record["parts"] = {part: done[part] for part in _PARTS if part in done}
        write_json(followed(folder / RECORD), record)
    return record


def _raw_texts(dataset: Dataset) -> dict[str, list[str]]:
    """Return the texts of each part of the dataset; raise `DataError` if a part has none."""
    texts = {}
    for part, split in (("trn", dataset.train), ("tst", dataset.test)):
        if split is None:
            continue
        if split.texts is None:
            found = f"{dataset.format}, without texts for its {_PARTS[part]} rows"
            wanted = (
                f"documents as text: JSONL, CSV or the like, or {_PARTS[part]}_raw_texts.txt beside the matrices"
            )
            raise DataError(f"{dataset.source or dataset.name}: found {found}; wanted {wanted}")
        texts[part] = split.texts
    return texts


def _digest(texts: list[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        # Texts from JSON may have lone surrogates. The byte 0xff occurs in no encoded text, so it ends each one.
        digest.update(text.encode("utf-8", "surrogatepass") + b"\xff")
    return digest.hexdigest()


def _read_record(folder: Path) -> dict[str, Any]:
    """Read an earlier run's record, or return an empty one; raise an error for features without a record."""
    path = folder / RECORD
    if not path.exists():
        for part in _PARTS:
            if foreign := matrices.feature_file(folder, part):
                raise ParameterError(f"{folder} holds {foreign.name}, but no {RECORD}: choose another folder")
        return {"parts": {}}
    try:
        with explained(path):
            record: dict[str, Any] = json.loads(path.read_bytes())
        if not all(isinstance(record[key], dict) for key in ("model", "parts")):
            raise TypeError("model and parts must be objects")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise bad(path, None, f"no readable record ({error})", "one that `circlet embed` wrote") from error
    return record
