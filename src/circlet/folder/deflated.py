"""Weights on disk in as few bytes as possible: small integers, split into bit planes and deflated.

All numbers of a matrix are multiples of one step. With a step of about the matrix's root mean square, most are 0
and nearly all others ±1, so they take 1 to 2 bits each. Deflate needs at least a bit for each symbol, so it gets
bytes of eight flags: which numbers are not 0, and which of these are larger than 1. Then come the sizes of the
larger ones, and the signs, which can't be deflated.

A matrix is one tensor of bytes: its numbers of rows and columns; deflated scales, one for each row, which differ
from the step only where a row has numbers above 127 steps; the planes. It is read as an int8 matrix.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.folder.precision import Array, Floats, Stored, check_finite, check_scales, exact, is_matrix
from circlet.folder.tensors import type_name

__all__ = ["DEFLATED", "packed", "rounded", "stored"]

#: The name of this way to store weights, and the prefix of the tensors' names.
DEFLATED = "deflated"
PREFIX = f"{DEFLATED}."
_SIZES = struct.Struct("<II")
#: Numbers that are rounded at a time: 16 MB in float32.
_BLOCK = 1 << 22


def rounded(tensors: Mapping[str, Array], coarseness: float) -> dict[str, Stored]:
    """Round float32 matrices to integers −127…127; a matrix that is not finite raises `DataError`.

    Parameters
    ----------
    tensors : mapping of str to ndarray
    coarseness : float
        The step of the largest matrix, in parts of the root mean square of its numbers. A matrix with a share s of
        that many numbers has √s of it: a bit less for every number then saves s times as much, and the squared
        error is s times as large.
    """
    matrices = {name: tensor for name, tensor in tensors.items() if is_matrix(tensor, np.float32)}
    largest = max((matrix.size for matrix in matrices.values()), default=1)
    out = {name: Stored(tensor) for name, tensor in tensors.items() if name not in matrices}
    for name, matrix in matrices.items():
        check_finite(name, matrix, matrix, DEFLATED)
        spread = float(np.linalg.norm(matrix.astype(np.float64))) / math.sqrt(max(1, matrix.size))
        out[name] = _rounded(matrix, coarseness * spread * math.sqrt(matrix.size / largest))
    return out


def packed(tensors: Mapping[str, Stored]) -> dict[str, Array]:
    """Tensors as they are written to a file, from what `rounded` returned."""
    out: dict[str, Array] = {}
    for name, each in tensors.items():
        if each.scales is None:
            out[name] = each.numbers
        else:
            out[PREFIX + name] = np.frombuffer(_encoded(each.numbers, each.scales), dtype=np.uint8)
    return out


def stored(path: Path, tensors: Mapping[str, Array]) -> dict[str, Stored]:
    """The tensors of the file `path`; one that is damaged raises `DataError`."""
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


def _rounded(matrix: Floats, step: float) -> Stored:
    largest = np.abs(matrix).max(axis=1, initial=0)
    scales = exact(np.maximum(largest / np.float32(127), np.float32(step)))
    numbers = np.empty(matrix.shape, dtype=np.int8)
    rows = max(1, _BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), rows):
        part = slice(start, start + rows)
        numbers[part] = np.rint(matrix[part] / scales[part, None])
    return Stored(numbers, scales, rounded=True)


def _encoded(numbers: npt.NDArray[np.int8], scales: Floats) -> bytes:
    flat = numbers.reshape(-1)
    present = flat != 0
    values = flat[present]
    sizes = np.abs(values).view(np.uint8)
    large = sizes > 1
    return b"".join(
        (
            _SIZES.pack(*numbers.shape),
            _deflated(scales.astype("<f4"), zlib.Z_DEFAULT_STRATEGY),
            _deflated(np.packbits(present)),
            _deflated(np.packbits(large)),
            _deflated(sizes[large]),
            np.packbits(values < 0).tobytes(),
        )
    )


def _decoded(content: bytes) -> tuple[npt.NDArray[np.int8], Floats]:
    if len(content) < _SIZES.size:
        raise ValueError(f"{len(content)} bytes")
    rows, columns = _SIZES.unpack_from(content)
    # A bit for each of the bytes that have the flags of eight numbers is the least that Huffman's codes can do.
    if rows * columns > 64 * len(content):
        raise ValueError(f"{len(content)} bytes that claim {rows} × {columns} numbers")
    scales, rest = _inflated(content[_SIZES.size :], 4 * rows)
    flags, rest = _inflated(rest, -(-rows * columns // 8))
    present = np.unpackbits(np.frombuffer(flags, np.uint8), count=rows * columns)
    count = int(np.count_nonzero(present))
    flags, rest = _inflated(rest, -(-count // 8))
    large = np.unpackbits(np.frombuffer(flags, np.uint8), count=count).view(np.bool_)
    found, signs = _inflated(rest, int(np.count_nonzero(large)))
    if len(signs) != -(-count // 8):
        raise ValueError(f"{len(signs)} bytes of signs for {count} numbers")
    sizes = np.ones(count, dtype=np.uint8)
    sizes[large] = np.frombuffer(found, np.uint8)
    values = np.minimum(sizes, 127).view(np.int8)
    negative = np.unpackbits(np.frombuffer(signs, np.uint8), count=count).view(np.bool_)
    np.negative(values, out=values, where=negative)
    numbers = present.view(np.int8)  # 0 and 1: the zeros are in their places already
    numbers[present.view(np.bool_)] = values
    return numbers.reshape(rows, columns), np.frombuffer(scales, "<f4")


def _deflated(array: Array, strategy: int = zlib.Z_HUFFMAN_ONLY) -> bytes:
    # Nothing repeats in bytes of flags, so nothing is lost by not looking for repetitions, which takes long.
    coder = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    return coder.compress(np.ascontiguousarray(array).data) + coder.flush()


def _inflated(content: bytes, size: int) -> tuple[bytes, bytes]:
    """The first `size` bytes of what was deflated, and the bytes that follow it; `ValueError` for other sizes."""
    coder = zlib.decompressobj(-zlib.MAX_WBITS)
    found = coder.decompress(content, size + 1)
    if len(found) != size or not coder.eof:
        raise ValueError(f"{len(found)} bytes, {'complete' if coder.eof else 'incomplete'}; wanted {size}")
    return found, coder.unused_data
