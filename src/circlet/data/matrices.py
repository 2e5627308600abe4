"""Folders of `X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz`, as PECOS writes them.

Labels are SciPy sparse matrices. Features are sparse too, or dense: an `.npy` file, or an `.npz` with one array.
Every size that a file claims is compared with the size of the file before memory is allocated.

Matrices larger than memory are memory-mapped: instead of `X.trn.npz` there is a folder `X.trn` with the arrays of
the matrix, `data.npy indices.npy indptr.npy shape.npy`; likewise for `Y.trn` and the test rows. Such a matrix
is a `csr_matrix` of mapped arrays, and training reads only the rows of a batch.
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
from circlet.data.sparse import blocks, check_indices, check_pointers, mark_known_good, release
from circlet.errors import DataError, bad
from circlet.files import check_unpacked, explained, most_unpacked, prepare_folder, refuse_pipe, replacing

_MAX_COLUMNS = 2**31 - 1
# Errors of zipfile and numpy.lib.format for damaged input.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, EOFError, LookupError, MemoryError),
    *(OverflowError, RuntimeError, SyntaxError, TypeError, ValueError),
)


def read_split(folder: Path, part: str) -> Split:
    """Read `X` and `Y` of one part, `trn` or `tst`."""
    x, y = _mapped_folder(folder, "X", part) or feature_file(folder, part), label_file(folder, part)
    if x is None or y is None:
        missing = f"{'X' if x is None else 'Y'}.{part}.npz"
        raise bad(folder, None, f"no {missing}, a folder with only half of its files", f"{missing} as well")
    X = read_mapped(x) if x.is_dir() else read_features(x)
    Y = read_mapped(y, labels=True) if y.is_dir() else read_labels(y)
    if X.shape[0] != Y.shape[0]:
        rows = f"{X.shape[0]} rows in {x.name} and {Y.shape[0]} in {y.name}"
        raise bad(folder, None, rows, "the same number")
    return Split(X, Y)


def feature_file(folder: Path, part: str) -> Path | None:
    """Return `X.trn.npz` or `X.trn.npy` (or `X.tst…`), whichever exists, or None."""
    names = (folder / f"X.{part}.npz", folder / f"X.{part}.npy")
    return next((path for path in names if path.is_file()), None)


def label_file(folder: Path, part: str) -> Path | None:
    """Return the folder `Y.trn` or `Y.trn.npz` (or `Y.tst…`), whichever exists, or None."""
    path = folder / f"Y.{part}.npz"
    return _mapped_folder(folder, "Y", part) or (path if path.is_file() else None)


def has_part(folder: Path, part: str) -> bool:
    """Whether any file of a part, `trn` or `tst`, exists."""
    found = (_mapped_folder(folder, "X", part), feature_file(folder, part), label_file(folder, part))
    return any(path is not None for path in found)


def _mapped_folder(folder: Path, what: str, part: str) -> Path | None:
    path = folder / f"{what}.{part}"
    return path if path.is_dir() else None


def read_features(path: Path) -> sp.csr_matrix | np.ndarray[Any, Any]:
    """Read a feature matrix, sparse or dense, as float32."""
    return as_features(_read(path), str(path))


def read_labels(path: Path) -> sp.csr_matrix:
    """Read a sparse label indicator as float32 ones."""
    Y = _read(path)
    if not sp.issparse(Y):
        raise bad(path, None, "a dense array", "labels as a SciPy sparse matrix")
    return as_labels(Y, str(path))


def read_mapped(path: Path, *, labels: bool = False) -> sp.csr_matrix:
    """Map the arrays in a folder that `write_matrices` made, check them in blocks, and return the matrix."""
    arrays = {}
    for name in ("data", "indices", "indptr", "shape"):
        file = path / f"{name}.npy"
        refuse_pipe(file)
        with explained(file), _damage_named(file), file.open("rb") as stream:
            if (size := file.stat().st_size) < 1024:  # an empty array cannot be mapped
                arrays[name] = _checked_array(file, "the array", stream, size)
            else:
                arrays[name] = np.lib.format.open_memmap(file, mode="r")
    data, indices, indptr, shape = arrays.values()
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 <= min(shape) <= max(shape) < 2**62:
        raise bad(path / "shape.npy", None, f"the shape {shape.tolist()}", "two integers")
    rows, columns = shape.tolist()
    kind = _index_type(len(data), columns) if data.ndim == 1 else None
    for name, wanted in (("data", np.dtype(np.float32)), ("indices", kind), ("indptr", kind)):
        if arrays[name].ndim != 1 or arrays[name].dtype != wanted:
            found = f"{arrays[name].ndim} dimensions of type {arrays[name].dtype}"
            raise bad(path / f"{name}.npy", None, found, f"one dimension of type {wanted}")
    if len(indptr) != rows + 1 or len(indices) != len(data):
        parts = f"{len(indptr) - 1} row pointers, {len(indices)} indices and {len(data)} values"
        raise bad(path, None, parts, f"{rows} pointers, and as many indices as values")
    check_pointers(indptr, len(data), str(path))
    X = sp.csr_matrix((data, indices, indptr), shape=(rows, columns), copy=False)
    _check_mapped(path, X, labels)
    X.has_sorted_indices = X.has_canonical_format = True
    mark_known_good(X)
    return X


def _check_mapped(path: Path, X: sp.csr_matrix, labels: bool) -> None:
    """Make the checks of `as_features` and `as_labels` in blocks; raise an error where they would repair."""
    data, indices, indptr = X.data, X.indices, X.indptr
    for block in blocks(len(data)):
        check_indices(indices[block], X.shape[1], str(path))
        values = data[block]
        right = values == 1 if labels else np.isfinite(values) & (values != 0)
        if not right.all():
            at = block.start + int(np.argmin(right))
            row = int(np.searchsorted(indptr, indptr.dtype.type(at), side="right"))
            wanted = "1" if labels else "finite numbers other than 0"
            raise bad(path, None, f"{data[at]} at row {row}, column {indices[at]}", wanted)
        # Includes the entry before the block: where columns do not increase, a new row must begin.
        before = max(block.start - 1, 0)
        falls = before + 1 + np.flatnonzero(np.diff(indices[before : block.stop]) <= 0)
        starts = np.searchsorted(indptr, falls.astype(indptr.dtype))
        if (inside := indptr[starts] != falls).any():
            row, column = int(starts[inside][0]), int(indices[falls[inside][0]])
            raise bad(path, None, f"column {column} of row {row} out of order", "columns that increase")
        release(X)


def _index_type(n: int, columns: int) -> np.dtype[Any]:
    # With another type, SciPy would copy all indices into memory.
    return np.dtype(np.int32 if max(n, columns) <= _MAX_COLUMNS else np.int64)


def _read(path: Path) -> Any:
    refuse_pipe(path)
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
        # NumPy warns about unusual headers, and compiling one may warn too.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except _DAMAGE as error:
        what = f"a damaged file ({type(error).__name__}: {error})"
        raise bad(path, None, what, "an .npz or .npy file written by SciPy or NumPy") from error


def _read_archive(path: Path, archive: zipfile.ZipFile, size: int) -> Any:
    members = {info.filename: info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise bad(path, None, "two members of the same name", "different names")
    sparse = "format.npy" in members
    wanted = (
        {f"{name}.npy" for name in ("data", "indices", "indptr", "shape", "format")} if sparse else set(members)
    )
    if missing := sorted(wanted - set(members)):
        raise bad(path, None, f"no {missing[0]} inside", "a matrix saved by scipy.sparse.save_npz")
    if not sparse and len(members) != 1:
        found = ", ".join(sorted(members)[:8]) or "nothing"
        raise bad(path, None, f"{found} inside", "a SciPy sparse matrix, or one dense array")
    check_unpacked(path, size, sum(members[name].file_size for name in wanted))
    arrays = {}
    for name in sorted(wanted):
        info = members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise bad(path, None, f"{name} compressed by method {info.compress_type}", "stored or deflated")
        with archive.open(info) as stream:
            letters = "SU" if name == "format.npy" else "biuf"
            arrays[name] = _checked_array(path, name, stream, info.file_size, letters)
    return _assemble(path, arrays, size) if sparse else arrays[next(iter(wanted))]


def _checked_array(path: Path, name: str, stream: IO[bytes], size: int, kinds: str = "biuf") -> Any:
    """Read one array, after checking that its header agrees with its `size` in bytes, header included."""
    # Version 2 headers state their own length in 32 bits, and read() would allocate it, so only a prefix is read.
    start = io.BytesIO(stream.read(1 << 14))  # NumPy itself refuses longer headers
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


def _assemble(path: Path, arrays: dict[str, Any], size: int) -> Any:
    """Build a sparse matrix from its parts, after checking everything that SciPy would trust."""
    name = arrays["format.npy"]
    name = name.item() if name.ndim == 0 else None
    name = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    if name not in ("csr", "csc"):
        raise bad(path, None, f"a sparse matrix of format {name!r}", "csr or csc")
    shape = arrays["shape.npy"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape.tolist()) < 0:
        raise bad(path, None, f"the shape {shape.tolist()}", "two integers")
    rows, columns = shape.tolist()
    if columns > _MAX_COLUMNS:
        raise bad(path, None, f"{columns} columns", f"at most {_MAX_COLUMNS}")
    data, indices, indptr = (arrays[f"{part}.npy"] for part in ("data", "indices", "indptr"))
    major, minor = (rows, columns) if name == "csr" else (columns, rows)
    if {data.ndim, indices.ndim, indptr.ndim} != {1} or {indices.dtype.kind, indptr.dtype.kind} - set("iu"):
        raise bad(path, None, "parts of the wrong type", "one-dimensional arrays, with integers as indices")
    if len(indptr) != major + 1 or len(indices) != len(data):
        parts = f"{len(indptr) - 1} {name} pointers, {len(indices)} indices and {len(data)} values"
        raise bad(path, None, parts, f"{major} pointers, and as many indices as values")
    indptr = indptr.astype(np.int64)
    check_pointers(indptr, len(data), str(path))
    check_indices(indices, minor, str(path))
    if name == "csc" and 8 * rows > most_unpacked(size):
        raise bad(path, None, f"a claim of {rows} rows", "a number that fits the file's size")
    # SciPy supports neither half precision nor a foreign byte order.
    data = data.astype(np.float32 if data.dtype == np.float16 else data.dtype.newbyteorder("="), copy=False)
    indices = indices.astype(np.int32 if minor <= _MAX_COLUMNS else np.int64, copy=False)
    return (sp.csr_matrix if name == "csr" else sp.csc_matrix)((data, indices, indptr), shape=(rows, columns))


def write_matrices(folder: Path | str, dataset: Dataset, *, mapped: bool = False) -> None:
    """Write `X.trn.npz Y.trn.npz`, and `tst` files if there are test rows; dense features become `.npy` files.

    With `mapped`, sparse matrices become folders of arrays that can be memory-mapped.
    """
    folder = Path(folder)
    prepare_folder(folder)
    for part, split in (("trn", dataset.train), ("tst", dataset.test)):
        if split is None:
            continue
        if split.X is None:
            raise DataError(f"{dataset.name}: found raw text only; wanted features to write to {folder}")
        parts: tuple[tuple[str, Any], ...] = ("X", split.X), ("Y", split.Y)
        for what, matrix in parts:
            path = folder / f"{what}.{part}"
            if not mapped or not sp.issparse(matrix):
                _save(path.with_name(f"{path.name}.{'npz' if sp.issparse(matrix) else 'npy'}"), matrix)
                continue
            prepare_folder(path)
            kind = _index_type(matrix.nnz, matrix.shape[1])
            _save(path / "data.npy", matrix.data)
            _save(path / "indices.npy", matrix.indices.astype(kind, copy=False))
            _save(path / "indptr.npy", matrix.indptr.astype(kind, copy=False))
            _save(path / "shape.npy", np.array(matrix.shape, dtype=np.int64))


def _save(path: Path, array: Any) -> None:
    # A file object, because NumPy adds a suffix to file names.
    with replacing(path) as temporary, temporary.open("wb") as out:
        if sp.issparse(array):
            sp.save_npz(out, array)
        else:
            np.save(out, array, allow_pickle=False)
