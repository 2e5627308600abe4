"""Folders of `X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz`, as PECOS writes them.

Labels are scipy sparse matrices; features are too, or dense: an `.npy` file, or an `.npz` with one array.
Nothing a file claims about sizes is believed before the claims have been compared with the file's own size.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split, as_features, as_labels
from circlet.data.lines import bad, explained
from circlet.errors import DataError
from circlet.files import prepare_folder, replacing

_FREE = 1 << 26  # bytes any file may unpack to
_RATIO = 100  # times its size beyond that; real matrices pack some 2 to 10 times
_HEADER = 1 << 14  # bytes; numpy refuses longer headers itself
_SPARSE = {"data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"}
_MAX_COLUMNS = 2**31 - 1
# What zipfile and numpy.lib.format raise on damaged input.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    EOFError,
    KeyError,
    IndexError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def read_split(folder: Path, part: str) -> Split:
    """Read `X` and `Y` of one part, `trn` or `tst`."""
    x, y = feature_file(folder, part), folder / f"Y.{part}.npz"
    if x is None or not y.is_file():
        missing = f"X.{part}.npz" if x is None else y.name
        raise bad(folder, None, f"no {missing}, a folder with half of its files", f"{missing} as well")
    X, Y = read_features(x), read_labels(y)
    if X.shape[0] != Y.shape[0]:
        rows = f"{X.shape[0]} rows in {x.name} and {Y.shape[0]} in {y.name}"
        raise bad(folder, None, rows, "the same number")
    return Split(X, Y)


def feature_file(folder: Path, part: str) -> Path | None:
    """`X.trn.npz` or `X.trn.npy` (or of `tst`), whichever is there."""
    names = (folder / f"X.{part}.npz", folder / f"X.{part}.npy")
    return next((path for path in names if path.is_file()), None)


def read_features(path: Path) -> sp.csr_matrix | np.ndarray[Any, Any]:
    """Read a feature matrix, sparse or dense, as float32."""
    return as_features(_read(path), str(path))


def read_labels(path: Path) -> sp.csr_matrix:
    """Read a sparse label indicator as float32 ones."""
    Y = _read(path)
    if not sp.issparse(Y):
        raise bad(path, None, "a dense array", "labels as a scipy sparse matrix")
    return as_labels(Y, str(path))


def _read(path: Path) -> Any:
    with explained(path), path.open("rb") as stream:
        size = path.stat().st_size
        magic = stream.read(6)
        stream.seek(0)
        if not magic:
            raise bad(path, None, "an empty file", "a matrix")
        if magic == b"\x93NUMPY":
            with _damage_named(path):
                return _checked_array(path, "the array", stream, size)
        with _damage_named(path), zipfile.ZipFile(stream) as archive:
            return _read_archive(path, archive, size)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        # numpy warns about headers that need a second look, and compiling one may warn too.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except _DAMAGE as error:
        what = f"a damaged file ({type(error).__name__}: {error})"
        raise bad(path, None, what, "an .npz or .npy file written by scipy or numpy") from error


def _read_archive(path: Path, archive: zipfile.ZipFile, size: int) -> Any:
    members = {info.filename: info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise bad(path, None, "two members of one name", "each once")
    sparse = "format.npy" in members
    wanted = _SPARSE if sparse else set(members)
    if missing := sorted(wanted - set(members)):
        raise bad(path, None, f"no {missing[0]} inside", "a matrix saved by scipy.sparse.save_npz")
    if not sparse and len(members) != 1:
        found = ", ".join(sorted(members)[:8]) or "nothing"
        raise bad(path, None, f"{found} inside", "a scipy sparse matrix, or one dense array")
    claimed = sum(members[name].file_size for name in wanted)
    if claimed > _FREE + _RATIO * size:
        raise bad(path, None, f"{size} bytes that claim to unpack to {claimed}", f"at most {_RATIO} times as much")
    arrays = {}
    for name in sorted(wanted):
        info = members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise bad(path, None, f"{name} packed by method {info.compress_type}", "stored or deflated")
        with archive.open(info) as stream:
            letters = "SU" if name == "format.npy" else "biuf"
            arrays[name] = _checked_array(path, name, stream, info.file_size, letters)
    return _assemble(path, arrays, _FREE + _RATIO * size) if sparse else arrays[next(iter(wanted))]


def _checked_array(path: Path, name: str, stream: IO[bytes], size: int, kinds: str = "biuf") -> Any:
    """Read one array of `size` bytes, header included, whose header agrees with that size."""
    # Version 2 headers claim their own length in 32 bits, and read() would allocate it: hence a prefix.
    start = io.BytesIO(stream.read(_HEADER))
    version = np.lib.format.read_magic(start)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(start)
    if dtype.kind not in kinds:
        raise bad(path, None, f"{name} of type {dtype}", "numbers")
    length = math.prod(shape) * dtype.itemsize
    if start.tell() + length != size:
        raise bad(path, None, f"{name} with {size - start.tell()} bytes", f"{length} for shape {shape}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _assemble(path: Path, arrays: dict[str, Any], limit: int) -> Any:
    """A sparse matrix from its parts, after a check of everything that scipy would trust."""
    name = arrays["format.npy"]
    name = name.item() if name.ndim == 0 else None
    name = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    if name not in ("csr", "csc"):
        raise bad(path, None, f"a sparse matrix of format {name!r}", "csr or csc")
    shape = arrays["shape.npy"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape.tolist()) < 0:
        raise bad(path, None, f"the shape {shape.tolist()}", "two whole numbers")
    rows, columns = shape.tolist()
    if columns > _MAX_COLUMNS:
        raise bad(path, None, f"{columns} columns", f"at most {_MAX_COLUMNS}")
    data, indices, indptr = (arrays[f"{part}.npy"] for part in ("data", "indices", "indptr"))
    major, minor = (rows, columns) if name == "csr" else (columns, rows)
    if {data.ndim, indices.ndim, indptr.ndim} != {1} or {indices.dtype.kind, indptr.dtype.kind} - set("iu"):
        raise bad(path, None, "parts of the wrong type", "one-dimensional arrays, with whole numbers as indices")
    if len(indptr) != major + 1 or len(indices) != len(data):
        parts = f"{len(indptr) - 1} {name} pointers, {len(indices)} indices and {len(data)} values"
        raise bad(path, None, parts, f"{major} pointers, and as many indices as values")
    indptr = indptr.astype(np.int64)
    if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise bad(path, None, "row pointers out of order", f"pointers that rise from 0 to {len(data)}")
    if len(indices) and (indices.min() < 0 or indices.max() >= minor):
        wrong = int(indices[np.argmax((indices < 0) | (indices >= minor))])
        raise bad(path, None, f"index {wrong}", f"indices from 0 to {minor - 1}")
    if name == "csc" and 8 * rows > limit:
        raise bad(path, None, f"a claim of {rows} rows", "a number that fits the file's size")
    # scipy computes with neither half precision nor a foreign byte order.
    data = data.astype(np.float32 if data.dtype == np.float16 else data.dtype.newbyteorder("="), copy=False)
    indices = indices.astype(np.int32 if minor <= _MAX_COLUMNS else np.int64, copy=False)
    return (sp.csr_matrix if name == "csr" else sp.csc_matrix)((data, indices, indptr), shape=(rows, columns))


def write_matrices(folder: Path | str, dataset: Dataset) -> None:
    """Write `X.trn.npz Y.trn.npz`, and their `tst` twins if there are test rows; dense features as `.npy`."""
    folder = Path(folder)
    prepare_folder(folder)
    for part, split in (("trn", dataset.train), ("tst", dataset.test)):
        if split is None:
            continue
        if split.X is None:
            raise DataError(f"{dataset.name}: found raw text only; wanted features to write to {folder}")
        _save(folder / f"X.{part}.{'npz' if sp.issparse(split.X) else 'npy'}", split.X)
        _save(folder / f"Y.{part}.npz", split.Y)


def _save(path: Path, array: Any) -> None:
    # A file object, because numpy adds its own suffix to a name.
    with replacing(path) as temporary, temporary.open("wb") as out:
        if sp.issparse(array):
            sp.save_npz(out, array)
        else:
            np.save(out, array, allow_pickle=False)
