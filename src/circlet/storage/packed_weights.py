"""Weights on disk in as few bytes as possible: rounded to small integers, most of them 0, and deflated.

**Rounding.** All numbers of a row are multiples of one step. Steps of a few times a matrix's root mean square
round most numbers to 0 and nearly all others to ±1. The loss comes from the numbers that become 0, and hardly from
the rounded sizes of the others.

**Deflating.** A matrix of integers becomes one tensor of bytes. Deflate needs at least a bit per symbol, so the
matrix is stored in parts:

1. sizes: rows, columns, distinct rows, whether these are dense, bytes of part 4;
2. for each row, which of the distinct rows it equals;
3. the scale of each distinct row;
4. the positions of the non-zero numbers in the distinct rows: if sparse, the count of zeros before each; if dense,
   a flag for each number, eight per byte;
5. flags: which non-zero numbers have a size above 1;
6. the sizes of these;
7. the signs, which cannot be compressed.

The matrix is read as int8.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.storage.tensors import Array, Floats, Stored, check_finite, check_scales, exact, is_matrix, type_name


def steps_of(tensors: Mapping[str, Array], store: str) -> dict[str, Floats]:
    """Compute the rounding step of each row of the float32 matrices, `(rows,)`, for a coarseness of 1.

    In the largest matrix, the step is the root mean square of all numbers. In a matrix with a fraction s of that
    many numbers, it is √s times the root mean square: one bit less per number saves s times as much there, and the
    squared error is s times as large.

    Each of n equal rows has 1/√n of the step: a document with one of these features mostly has all of them, so
    their errors add up, although they are stored only once.

    Raises `DataError` for a matrix that is not finite; the message names `store`.
    """
    matrices = {name: tensor for name, tensor in tensors.items() if is_matrix(tensor, np.float32)}
    largest = max((matrix.size for matrix in matrices.values()), default=1)
    out: dict[str, Floats] = {}
    for name, matrix in matrices.items():
        check_finite(name, matrix, matrix, store)
        spread = float(np.linalg.norm(matrix.astype(np.float64))) / math.sqrt(max(1, matrix.size))
        first, which = alike(matrix)
        equal = np.bincount(which, minlength=len(first))[which]
        out[name] = (spread * math.sqrt(matrix.size / largest) / np.sqrt(equal)).astype(np.float32)
    return out


def rounded(tensors: Mapping[str, Array], steps: Mapping[str, Floats], coarseness: float) -> dict[str, Stored]:
    """Round matrices to integers −127…127; tensors without steps stay unchanged.

    The steps are those of `steps_of`, times the coarseness. A row with numbers above 127 steps gets a larger step.
    """
    return {
        name: Stored(tensor) if name not in steps else _rounded(tensor, np.float32(coarseness) * steps[name])
        for name, tensor in tensors.items()
    }


def alike(matrix: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first occurrence of each distinct row, ascending, and for each row its position among these."""
    seen: dict[bytes, int] = {}
    digests = (blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(matrix))
    which = np.fromiter((seen.setdefault(each, len(seen)) for each in digests), np.int64, len(matrix))
    return np.unique(which, return_index=True)[1].astype(np.int64), which


def _rounded(matrix: Floats, steps: Floats) -> Stored:
    numbers, scales = np.empty(matrix.shape, dtype=np.int8), np.empty(len(matrix), dtype=np.float32)
    rows = max(1, (1 << 22) // max(1, matrix.shape[1]))  # 16 MB in float32 at a time
    for start in range(0, len(matrix), rows):
        part = slice(start, start + rows)
        largest = np.abs(matrix[part]).max(axis=1, initial=0)
        scales[part] = exact(np.maximum(largest / np.float32(127), steps[part]))
        numbers[part] = np.rint(matrix[part] / scales[part, None])
    return Stored(numbers, scales, rounded=True)


#: The name of this store, and the prefix of the tensors' names.
DEFLATED, PREFIX = "deflated", "packed."
_SIZES = struct.Struct("<III?Q")
#: A byte for this many zeros, followed by a byte for more.
_MORE = 255


def packed(tensors: Mapping[str, Stored]) -> dict[str, Array]:
    """Encode the result of `rounded` as tensors for a file."""
    out: dict[str, Array] = {}
    for name, each in tensors.items():
        if each.scales is None:
            out[name] = each.numbers
        else:
            out[PREFIX + name] = np.frombuffer(_encoded(each.numbers, each.scales), dtype=np.uint8)
    return out


def stored(path: Path, tensors: Mapping[str, Array]) -> dict[str, Stored]:
    """Decode the tensors of the file `path`; raise `DataError` if one is damaged."""
    out: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        weight = name.removeprefix(PREFIX)
        if weight == name:
            if is_matrix(tensor, np.float32):
                raise DataError(f"{path}: found {name} in float32; wanted it deflated, as config.json says")
            out[name] = Stored(tensor)
            continue
        if tensor.dtype != np.uint8 or tensor.ndim != 1:
            raise DataError(
                f"{path}: found {name} of shape {tensor.shape} in {type_name(tensor.dtype)}; wanted bytes"
            )
        if weight in tensors:
            raise DataError(f"{path}: found both {weight} and {name}; wanted one of them")
        try:
            numbers, scales = _decoded(tensor.tobytes())
        except (ValueError, zlib.error) as error:
            raise DataError(f"{path}: found damaged bytes in {name} ({error})") from error
        check_scales(path, weight, numbers, scales, np.int8)
        out[weight] = Stored(numbers, scales, rounded=True)
    return out


def _encoded(numbers: npt.NDArray[np.int8], scales: Floats) -> bytes:
    first, which = alike(np.hstack((numbers.view(np.uint8), scales.astype("<f4")[:, None].view(np.uint8))))
    flat = numbers[first].reshape(-1)
    present = flat != 0
    values = flat[present]
    sizes = np.abs(values).view(np.uint8)
    large = sizes > 1
    dense = len(values) >= 0.4 * len(flat)  # flags then take fewer bytes than counts of zeros
    places = np.packbits(present) if dense else _zeros_before(np.flatnonzero(present))
    # Each row is 0 if it is new, or else how many distinct rows back its equal is, from 1.
    known = np.maximum.accumulate(np.append(-1, which))[:-1]  # the last distinct row before each row
    turns = np.where(which > known, 0, known - which + 1).astype("<u4")
    return b"".join(
        (
            _SIZES.pack(*numbers.shape, len(first), dense, len(places)),
            _deflated(turns, zlib.Z_DEFAULT_STRATEGY),
            _deflated(scales[first].astype("<f4"), zlib.Z_DEFAULT_STRATEGY),
            _deflated(places),
            _deflated(np.packbits(large)),
            _deflated(sizes[large]),
            np.packbits(values < 0).tobytes(),
        )
    )


def _decoded(content: bytes) -> tuple[npt.NDArray[np.int8], Floats]:
    if len(content) < _SIZES.size:
        raise ValueError(f"{len(content)} bytes")
    rows, columns, different, dense, n_places = _SIZES.unpack_from(content)
    if different > rows or n_places > different * columns:
        raise ValueError(f"{n_places} bytes for {different} of {rows} rows and {columns} columns")
    # Checked before allocation: a byte counts at most 255 zeros and takes at least one bit, so a bigger matrix is
    # damaged. Below a million numbers no check is made, since a few equal rows may pack even better.
    if rows * columns > 2048 * len(content) + (1 << 20):
        raise ValueError(f"{len(content)} bytes that claim {rows} × {columns} numbers")
    found, rest = _inflated(content[_SIZES.size :], 4 * rows)
    which = _rows_at(np.frombuffer(found, "<u4"), different)
    found, rest = _inflated(rest, 4 * different)
    scales: Floats = np.frombuffer(found, "<f4")
    found, rest = _inflated(rest, n_places)
    places = _places(np.frombuffer(found, np.uint8), different * columns, dense)
    numbers = np.zeros(different * columns, dtype=np.int8)
    numbers[places] = _values(rest, len(places))
    return numbers.reshape(different, columns)[which], scales[which]


def _values(content: bytes, count: int) -> npt.NDArray[np.int8]:
    """Decode the non-zero numbers from the flags for sizes above 1, these sizes, and the signs."""
    flags, rest = _inflated(content, -(-count // 8))
    large = np.unpackbits(np.frombuffer(flags, np.uint8), count=count).view(np.bool_)
    found, signs = _inflated(rest, int(np.count_nonzero(large)))
    if len(signs) != -(-count // 8):
        raise ValueError(f"{len(signs)} bytes of signs for {count} numbers")
    sizes = np.ones(count, dtype=np.uint8)
    sizes[large] = np.frombuffer(found, np.uint8)
    values = np.minimum(sizes, 127).view(np.int8)
    negative = np.unpackbits(np.frombuffer(signs, np.uint8), count=count).view(np.bool_)
    np.negative(values, out=values, where=negative)
    return values


def _rows_at(turns: npt.NDArray[np.uint32], different: int) -> npt.NDArray[np.int64]:
    """Decode which of the distinct rows each row equals; raise `ValueError` for another number of these."""
    known = np.cumsum(turns == 0)
    which = known - np.maximum(turns, 1).astype(np.int64)
    if len(turns) and (int(known[-1]) != different or int(which.min()) < 0):
        raise ValueError(f"{known[-1]} rows that are different; wanted {different}")
    return which


def _zeros_before(places: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
    """Encode the count of zeros before each non-zero number in bytes; counts above 254 take several."""
    zeros = np.diff(places, prepend=-1) - 1
    ends = np.cumsum(zeros // _MORE + 1)
    out = np.full(int(ends[-1]) if len(ends) else 0, _MORE, dtype=np.uint8)
    out[ends - 1] = zeros % _MORE
    return out


def _places(found: npt.NDArray[np.uint8], size: int, dense: bool) -> npt.NDArray[np.intp]:
    """Decode the positions of the non-zero numbers; raise `ValueError` for positions outside `size`."""
    if dense:
        if len(found) != -(-size // 8):
            raise ValueError(f"{len(found)} bytes of flags for {size} numbers")
        return np.flatnonzero(np.unpackbits(found, count=size))
    last = found != _MORE
    # Each byte skips its zeros; the last byte of a count also skips the non-zero number after them.
    places: npt.NDArray[np.intp] = np.cumsum(found.astype(np.int64) + last)[last] - 1
    if len(found) and (not last[-1] or places[-1] >= size):
        raise ValueError(f"positions beyond the {size} numbers")
    return places


def _deflated(array: Array, strategy: int = zlib.Z_HUFFMAN_ONLY) -> bytes:
    # Bytes of flags do not repeat, so some strategies skip the slow search for repetitions at no cost.
    coder = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return coder.compress(np.ascontiguousarray(array).data) + coder.flush()


def _inflated(content: bytes, size: int) -> tuple[bytes, bytes]:
    """Inflate `size` bytes, and return them and the bytes that follow; raise `ValueError` for other sizes."""
    coder = zlib.decompressobj(-zlib.MAX_WBITS)
    found = coder.decompress(content, size + 1)
    if len(found) != size or not coder.eof:
        raise ValueError(f"{len(found)} bytes, {'complete' if coder.eof else 'incomplete'}; wanted {size}")
    return found, coder.unused_data
