"""Dense features from files beside a dataset: in place of its bag of words, or together with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data import matrices
from circlet.data.dataset import Dataset, Split
from circlet.data.lines import bad
from circlet.errors import DataError, ParameterError
from circlet.features.rows import Scaling

__all__ = ["MODES", "with_features"]

MODES = {
    "dense": "the dense rows as they are in the files",
    "both": "bag of words and dense columns side by side, each part of a row scaled to norm 1",
}


def with_features(dataset: Dataset, folder: str | Path, mode: str = "dense") -> Dataset:
    """A dataset whose features are, or include, the dense features in a folder.

    Parameters
    ----------
    dataset : Dataset
        `(n, n_features)` per part; mode "both" needs its features, mode "dense" only its rows.
    folder : str or Path
        Has `X.trn.npy` `(n, d)`, and `X.tst.npy` if there are test rows, written by `circlet embed` or by other
        programs; an `.npz` with one array also works.
    mode : str
        One of `MODES`. "dense" gives arrays `(n, d)`, "both" CSR `(n, n_features + d)`.
    """
    if mode not in MODES:
        raise ParameterError(f"`mode` must be one of {', '.join(MODES)}, got {mode!r}")
    folder = Path(folder)
    parts = {"trn": dataset.train} | ({} if dataset.test is None else {"tst": dataset.test})
    dense = {part: _read_dense(folder, part, split.n) for part, split in parts.items()}
    columns = [rows.shape[1] for rows in dense.values()]
    if columns[0] != columns[-1]:
        found = f"{columns[0]} columns in X.trn and {columns[-1]} in X.tst"
        raise bad(folder, None, found, "the same number")
    combined = {part: _combined(split, dense[part], mode, dataset) for part, split in parts.items()}
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


def _combined(split: Split, dense: npt.NDArray[np.float32], mode: str, dataset: Dataset) -> Split:
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
    # SciPy would convert through coordinates, which takes three times the memory.
    n, d = rows.shape
    columns = np.tile(np.arange(d, dtype=np.int32), n)
    return sp.csr_matrix((rows.ravel(), columns, np.arange(0, n * d + 1, max(d, 1))[: n + 1]), shape=(n, d))
