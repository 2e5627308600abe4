"""Read and write features and labels as matrices: PECOS's folders, the Repository's text, svmlight.

**Folders** of `X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz`, as PECOS writes them. Labels are SciPy sparse matrices.
Features are sparse too, or dense: an `.npy` file, or an `.npz` with one array. Every size that a file claims is
compared with the size of the file before memory is allocated.

Matrices larger than memory are memory-mapped: instead of `X.trn.npz` there is a folder `X.trn` with the arrays of
the matrix, `data.npy indices.npy indptr.npy shape.npy`; likewise for `Y.trn` and the test rows. Such a matrix
is a `csr_matrix` of mapped arrays, and training reads only the rows of a batch.

**Text** of the Extreme Classification Repository, and svmlight multilabel files. One row is `l1,l2 f:v f:v`; if
it has no labels, it starts with a space. The first line may be a header `n_points n_features n_labels`. An empty
line is a row with neither labels nor features, except at the end of the file. The newer form has two files, for
features and labels, of rows `i:v i:v` under a header `rows columns`. Rows are parsed in blocks, so that loops over
numbers run in the C code of Python and NumPy.
"""

from __future__ import annotations

import io
import math
import re
import struct
import tokenize
import warnings
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data.dataset import (
    Dataset,
    Split,
    as_features,
    as_labels,
    blocks,
    check_indices,
    check_pointers,
    mark_checked,
    release,
)
from circlet.errors import DataError, ParameterError, bad, shown
from circlet.files import (
    check_unpacked,
    explained,
    iter_lines,
    most_unpacked,
    plain_or_packed,
    prepare_folder,
    refuse_pipe,
    replacing,
    writing,
)

MAX_INDEX = 2**31 - 1  # the largest int32
# Errors of zipfile and numpy.lib.format for damaged input.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, EOFError, LookupError, MemoryError),
    *(OverflowError, RuntimeError, SyntaxError, TypeError, ValueError),
)


def read_split(folder: Path, part: str, *, text: bool = False) -> Split:
    """Read `X` and `Y` of one part, `trn` or `tst`, from arrays or from the Repository's newer text."""
    x, y = _files_of(folder, part, text)
    if x is None or y is None:
        names = (f"{part}_X_Xf.txt", f"{part}_X_Y.txt") if text else (f"X.{part}.npz", f"Y.{part}.npz")
        missing = names[0 if x is None else 1]
        raise bad(folder, None, f"no {missing}, a folder with only half of its files", f"{missing} as well")
    if text:
        X, Y = read_sparse_text(x), as_labels(read_sparse_text(y), str(y))
    else:
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


def has_part(folder: Path, part: str, *, text: bool = False) -> bool:
    """Whether any file of a part, `trn` or `tst`, exists."""
    return any(_files_of(folder, part, text))


def _files_of(folder: Path, part: str, text: bool) -> tuple[Path | None, Path | None]:
    """Return the file, or folder of mapped arrays, of features and that of labels; None where there is none."""
    if text:
        return plain_or_packed(folder, f"{part}_X_Xf.txt"), plain_or_packed(folder, f"{part}_X_Y.txt")
    x, y, packed = folder / f"X.{part}", folder / f"Y.{part}", folder / f"Y.{part}.npz"
    return (
        x if x.is_dir() else feature_file(folder, part),
        y if y.is_dir() else packed if packed.is_file() else None,
    )


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
        with explained(file), _explain_damage(file), file.open("rb") as stream:
            if (size := file.stat().st_size) < 1024:  # an empty array cannot be mapped
                arrays[name] = _read_array(file, "the array", stream, size)
            else:
                arrays[name] = np.lib.format.open_memmap(file, mode="r")
    data, indices, indptr, shape = arrays.values()
    rows, columns = _check_shape(path / "shape.npy", shape)
    kind = _index_type(len(data), columns) if data.ndim == 1 else None
    for name, wanted in (("data", np.dtype(np.float32)), ("indices", kind), ("indptr", kind)):
        if arrays[name].ndim != 1 or arrays[name].dtype != wanted:
            found = f"{arrays[name].ndim} dimensions of type {arrays[name].dtype}"
            raise bad(path / f"{name}.npy", None, found, f"one dimension of type {wanted}")
    _check_parts(path, data, indices, indptr, rows)
    X = sp.csr_matrix((data, indices, indptr), shape=(rows, columns), copy=False)
    _check_mapped(path, X, labels)
    X.has_sorted_indices = X.has_canonical_format = True
    mark_checked(X)
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


def _check_shape(path: Path, shape: npt.NDArray[Any]) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 <= min(shape) <= max(shape) < 2**62:
        raise bad(path, None, f"the shape {shape.tolist()}", "two integers")
    return int(shape[0]), int(shape[1])


def _check_parts(path: Path, data: Any, indices: Any, indptr: Any, n_pointers: int) -> None:
    if len(indptr) != n_pointers + 1 or len(indices) != len(data):
        parts = f"{len(indptr) - 1} pointers, {len(indices)} indices and {len(data)} values"
        raise bad(path, None, parts, f"{n_pointers} pointers, and as many indices as values")
    check_pointers(indptr, len(data), str(path))


def _index_type(n: int, columns: int) -> np.dtype[Any]:
    # With another type, SciPy would copy all indices into memory.
    return np.dtype(np.int32 if max(n, columns) <= MAX_INDEX else np.int64)


def _read(path: Path) -> Any:
    refuse_pipe(path)
    with explained(path), path.open("rb") as stream:
        size = path.stat().st_size
        magic = stream.read(6)
        stream.seek(0)
        if not magic:
            raise bad(path, None, "an empty file", "a matrix")
        if magic == b"\x93NUMPY":
            with _explain_damage(path):
                return _read_array(path, "the array", stream, size)
        with _explain_damage(path), zipfile.ZipFile(stream) as archive:
            return _read_archive(path, archive, size)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
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
            arrays[name] = _read_array(path, name, stream, info.file_size, letters)
    return _assemble(path, arrays, size) if sparse else arrays[next(iter(wanted))]


def _read_array(path: Path, name: str, stream: IO[bytes], size: int, kinds: str = "biuf") -> Any:
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
    rows, columns = _check_shape(path, arrays["shape.npy"])
    if columns > MAX_INDEX:
        raise bad(path, None, f"{columns} columns", f"at most {MAX_INDEX}")
    data, indices, indptr = (arrays[f"{part}.npy"] for part in ("data", "indices", "indptr"))
    major, minor = (rows, columns) if name == "csr" else (columns, rows)
    if {data.ndim, indices.ndim, indptr.ndim} != {1} or {indices.dtype.kind, indptr.dtype.kind} - set("iu"):
        raise bad(path, None, "parts of the wrong type", "one-dimensional arrays, with integers as indices")
    indptr = indptr.astype(np.int64)
    _check_parts(path, data, indices, indptr, major)
    check_indices(indices, minor, str(path))
    if name == "csc" and 8 * rows > most_unpacked(size):
        raise bad(path, None, f"a claim of {rows} rows", "a number that fits the file's size")
    # SciPy supports neither half precision nor a foreign byte order.
    data = data.astype(np.float32 if data.dtype == np.float16 else data.dtype.newbyteorder("="), copy=False)
    indices = indices.astype(np.int32 if minor <= MAX_INDEX else np.int64, copy=False)
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


_BLOCK_BYTES, _BLOCK_ROWS = 1 << 20, 8192  # bounds memory: the numbers of a block are Python objects at first
_ROW = b"0123456789.,:eE+- \t\r\n"
_INTEGER = re.compile(rb"[0-9]{1,18}")
_EMPTY_ROW = b"\n"


def read_xmc(path: Path | str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Read X and Y, both float32, of the Repository's text format, or of an svmlight multilabel file.

    Without a header, the numbers of features and labels are the largest index plus one, and `#` starts a
    comment.
    """
    shape, (labels, label_counts, indices, data, counts) = _read_rows(Path(path), labeled=True)
    n_features, n_labels = shape[1:] if shape else (part.max(initial=-1) + 1 for part in (indices, labels))
    ones = np.ones(len(labels), np.float32)
    return _csr(data, indices, counts, n_features), _csr(ones, labels, label_counts, n_labels)


def read_sparse_text(path: Path | str) -> sp.csr_matrix:
    """Read one matrix of the newer form: a header `rows columns`, then rows `i:v i:v`."""
    shape, (_, _, indices, data, counts) = _read_rows(Path(path), labeled=False)
    if shape is None:
        raise bad(path, 1, "no header", "two integers, rows and columns")
    return _csr(data, indices, counts, shape[1])


def _csr(data: Any, indices: Any, counts: Any, width: int) -> sp.csr_matrix:
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    X = sp.csr_matrix((data, indices, starts), shape=(len(counts), int(width)))
    if not X.data.all():
        X.eliminate_zeros()
    return X


def read_split_rows(path: Path | str, split: int, n_rows: int) -> npt.NDArray[np.int64]:
    """Read row numbers from column `split` of a Repository split file; returned from 0, in the file from 1."""
    path = Path(path)
    rows: list[int] = []
    columns = 0
    for number, line in iter_lines(path):
        if line.translate(None, b"0123456789 \t\r\n"):
            raise bad(path, number, shown(line.strip()), "row numbers")
        fields = line.split()
        if not fields:
            continue
        columns = columns or len(fields)
        if len(fields) != columns:
            raise bad(path, number, f"{len(fields)} columns", f"{columns}, as above")
        if not 0 <= split < columns:
            raise ParameterError(f"found split {split}; wanted 0 to {columns - 1}, the splits in {path}")
        if not _INTEGER.fullmatch(fields[split]):
            raise bad(path, number, shown(fields[split]), "row numbers")
        rows.append(int(fields[split]) - 1)
        if not 0 <= rows[-1] < n_rows:
            raise bad(path, number, f"row number {rows[-1] + 1}", f"one from 1 to {n_rows}")
    if not rows:
        raise bad(path, None, "no row numbers", "a column of row numbers for each split")
    if len(set(rows)) != len(rows):
        raise bad(path, None, f"a row number twice in split {split}", "each row at most once")
    return np.array(rows, dtype=np.int64)


def _read_rows(path: Path, labeled: bool) -> tuple[tuple[int, ...] | None, list[npt.NDArray[Any]]]:
    """Return the numbers of the header line, or None if there is no header, and the parts of `_parse_rows`."""
    lines = iter_lines(path)
    first = next(lines)
    fields, shape = first[1].split(), None
    if len(fields) == (3 if labeled else 2) and all(_INTEGER.fullmatch(one) for one in fields):
        shape = tuple(int(one) for one in fields)
        if max(shape[1:]) > MAX_INDEX:
            raise bad(path, 1, f"a header that claims {max(shape[1:])} columns", f"at most {MAX_INDEX}")
    else:
        lines = chain([first], lines)
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    rows: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for number, row in _rows(path, lines, shape):
        rows.append(row)
        numbers.append(number)
        size += len(row)
        if size > _BLOCK_BYTES or len(rows) == _BLOCK_ROWS:
            parts.append(_parse_block(path, rows, numbers, shape, labeled))
            rows, numbers, size = [], [], 0
    if rows:
        parts.append(_parse_block(path, rows, numbers, shape, labeled))
    n_rows = sum(len(part[1]) for part in parts)
    if shape and n_rows != shape[0]:
        raise bad(path, None, f"{n_rows} rows", f"{shape[0]}, as its header says")
    if not n_rows:
        raise bad(path, None, "no rows", "at least one")
    return shape, [np.concatenate(part) for part in zip(*parts, strict=True)]


def _parse_block(
    path: Path, rows: list[bytes], numbers: list[int], shape: tuple[int, ...] | None, labeled: bool
) -> tuple[npt.NDArray[Any], ...]:
    """Parse and check some rows; `numbers` are those of their lines."""
    for number, row in zip(numbers, rows, strict=True):
        _check_row(path, number, row, labeled)
    try:
        labels, label_counts, indices, data, counts = _parse_rows(rows)
    except (ValueError, OverflowError):
        # Either a row is broken, and `_sorted_row` reports it, or features are only out of order.
        pairs = zip(numbers, rows, strict=True)
        labels, label_counts, indices, data, counts = _parse_rows([_sorted_row(path, *pair) for pair in pairs])
    what = "feature" if labeled else "column"
    n_features, n_labels = shape[1] if shape else MAX_INDEX, shape[2] if shape and labeled else MAX_INDEX
    row_of = np.repeat(np.arange(len(rows)), label_counts)
    twice = np.zeros(len(labels), bool)  # each row's labels are sorted
    twice[1:] = (labels[1:] == labels[:-1]) & (row_of[1:] == row_of[:-1])
    for wrong, values, per_row, found, wanted in (
        (~np.isfinite(data), data, counts, "feature value {}", "a finite float32 number"),
        (indices >= n_features, indices, counts, f"{what} {{}}", f"a {what} below {n_features}"),
        (labels >= n_labels, labels, label_counts, "label {:.0f}", f"a label below {n_labels}"),
        (twice, labels, label_counts, "label {:.0f} twice", "each label once per row"),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise bad(path, int(np.repeat(numbers, per_row)[at]), found.format(values[at]), wanted)
    return labels.astype(np.int32), label_counts, indices.astype(np.int32), data, counts


def _parse_rows(rows: list[bytes]) -> tuple[npt.NDArray[Any], ...]:
    """Parse the numbers of rows that `_check_row` has accepted.

    Returns all labels, sorted within each row; the number of labels of each row; feature indices and values of all
    rows; the number of features of each row. Raises `ValueError` or `OverflowError` if a number cannot be parsed,
    or if the features of a row are not in order.
    """
    labels: list[list[float]] = []
    features: list[bytes] = []
    for row in rows:
        head, *rest = row.split(None, 1) or (b"",)
        if not head or b":" in head:
            labels.append([])
            features.append(row)
        else:
            labels.append(sorted(map(float, head.split(b","))))
            features.append(rest[0] if rest else b"\n")
    text = b"".join(features)
    # Every three parts must be an index, a colon and a value; the pattern rules out colons beside spaces.
    parts = text.replace(b":", b" : ").split()
    n = len(parts) // 3
    if len(parts) != 3 * n or parts[1::3].count(b":") != n or re.search(rb"\s:|:\s", text):
        raise ValueError("found features that are not index:value")
    indices = np.fromiter(map(int, parts[::3]), np.int64, n)
    if n and not 0 <= indices.min() <= indices.max() <= MAX_INDEX:
        raise OverflowError(f"found an index that is not between 0 and {MAX_INDEX}")
    with np.errstate(over="ignore"):  # `_add` refuses infinity and names its line
        data = np.fromiter(map(float, parts[2::3]), np.float64, n).astype(np.float32)
    counts = np.fromiter((row.count(b":") for row in features), np.int32, len(rows))
    in_order = np.diff(indices) > 0
    ends = np.cumsum(counts)[:-1]
    in_order[ends[(ends > 0) & (ends < n)] - 1] = True  # the next feature is in another row
    if not in_order.all():
        raise ValueError("found features that are not in order")
    label_counts = np.fromiter(map(len, labels), np.int32, len(rows))
    flat = np.fromiter(chain.from_iterable(labels), np.float64, int(label_counts.sum()))
    return flat, label_counts, indices, data, counts


def _rows(
    path: Path, lines: Iterator[tuple[int, bytes]], shape: tuple[int, ...] | None
) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines that are rows, without comments and without blank lines at the end."""
    n_rows = 0
    blank = array("q")  # without a header: blank lines, which are rows only if another row follows
    for number, line in lines:
        row = line
        if shape is None and b"#" in line:
            row = line.partition(b"#")[0] + b"\n"
            if row.isspace():
                continue
        if row.isspace() and shape is None and not row.strip(b"\r\n"):
            blank.append(number)
            continue
        if row.isspace() and shape and n_rows == shape[0]:
            continue  # blank lines at the end
        n_rows += 1
        if shape and n_rows > shape[0]:
            raise bad(path, number, f"row {n_rows}", f"{shape[0]} rows, as the header says")
        yield from ((one, _EMPTY_ROW) for one in blank)
        del blank[:]
        # A lone space is an empty label field, and thus a row, even at the end of a file without a header.
        yield number, _EMPTY_ROW if row.isspace() else row if row.endswith(b"\n") else row + b"\n"


def _check_row(path: Path, number: int, row: bytes, labeled: bool) -> None:
    """Raise `DataError` for a malformed row that `_parse_rows` would accept or misread."""
    if row is _EMPTY_ROW:
        return
    if row.translate(None, _ROW):
        token = next((one for one in row.split() if one.translate(None, _ROW)), row)
        if re.search(rb":[+-]?(nan|inf)", token, re.IGNORECASE):
            raise bad(path, number, f"feature value {shown(token)}", "a finite number")
        raise bad(path, number, shown(token), f"a row such as '{'3,17 ' * labeled}0:0.5 8:1'")
    head = row.split(None, 1)[0]
    if b":" in head:
        return
    if not labeled or row[:1] in b" \t":
        raise bad(path, number, shown(head), "index:value")
    if head.translate(None, b"0123456789,"):
        raise bad(path, number, f"label field {shown(head)}", "integers >= 0, separated by commas")


def _sorted_row(path: Path, number: int, row: bytes) -> bytes:
    """Sort the features of a row; raise `DataError` if the row is malformed."""
    if row is _EMPTY_ROW:
        return row
    fields = row.split()
    head = b"" if b":" in fields[0] else fields.pop(0)
    if head and not all(_INTEGER.fullmatch(one) for one in head.split(b",")):
        raise bad(path, number, f"label field {shown(head)}", "integers >= 0, separated by commas")
    features: dict[int, bytes] = {}
    for one in fields:
        index, colon, value = one.partition(b":")
        if not colon:
            raise bad(path, number, shown(one), "index:value")
        if not _INTEGER.fullmatch(index) or int(index) >= MAX_INDEX:
            raise bad(path, number, f"feature index {shown(index)}", f"an integer from 0 to {MAX_INDEX - 1}")
        try:
            float(value)
        except ValueError as error:
            raise bad(path, number, f"feature value {shown(value)}", "a number") from error
        if int(index) in features:
            raise bad(path, number, f"feature {int(index)} twice", "each feature once per row")
        features[int(index)] = value
    return head + b" " + b" ".join(b"%d:%s" % pair for pair in sorted(features.items())) + b"\n"


def write_xmc(path: Path | str, X: Any, Y: Any, *, header: bool = True) -> None:
    """Write features and labels in the Repository's text format; compressed if the name ends in `.gz`."""
    path = Path(path)
    X, Y = sp.csr_matrix(as_features(X, "X")), as_labels(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"found {X.shape[0]} rows in X and {Y.shape[0]} in Y; wanted the same number")
    with writing(path) as out:
        if header:
            out.write(b"%d %d %d\n" % (*X.shape, Y.shape[1]))
        for row, features in enumerate(_feature_rows(X)):
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()))
            out.write(f"{labels} {features}\n".encode())


def write_sparse_text(path: Path | str, M: Any) -> None:
    """Write one matrix in the newer form: a header `rows columns`, then rows `i:v i:v`."""
    M = sp.csr_matrix(as_features(M, "the matrix"))
    with writing(Path(path)) as out:
        out.write(b"%d %d\n" % M.shape)
        for features in _feature_rows(M):
            out.write(f"{features}\n".encode())


def _feature_rows(M: sp.csr_matrix) -> Iterator[str]:
    pattern = "%d:%.9g"  # nine digits restore every float32 exactly
    for start, stop in zip(M.indptr[:-1].tolist(), M.indptr[1:].tolist(), strict=True):
        pairs = zip(M.indices[start:stop].tolist(), M.data[start:stop].tolist(), strict=True)
        yield " ".join([pattern % pair for pair in pairs])
