"""Tensors of a safetensors file as NumPy arrays over the mapped file: nothing is read before it is used.

The format is eight bytes with the length of a header, the header in JSON, and the numbers of all tensors, one
after the other. safetensors' own reader for NumPy copies the numbers and does not know bfloat16; hence this one.
Whatever the header claims is checked against the size of the file before any array is made.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet import files
from circlet.errors import DataError

__all__ = ["BFLOAT16", "map_tensors", "place_in_file", "release", "type_name", "write_tensors"]

#: NumPy has no bfloat16: the upper 16 bits of a float32. A type of its own keeps them apart from integers.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])
#: Types by their names in a file. safetensors writes tensors of wider types first, and so do we.
TYPES: dict[str, np.dtype[Any]] = {
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
    "F32": np.dtype("<f4"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "BF16": BFLOAT16,
    "F16": np.dtype("<f2"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_ALIGNMENT = 8


class _Mapped(mmap.mmap):
    """A mapped file that stays open where systems can read at a place, so that it can also be read."""

    descriptor: int | None = None


def place_in_file(array: npt.NDArray[Any]) -> tuple[int, int] | None:
    """A descriptor of the file that a tensor is mapped from, and its first byte there; None if there is none."""
    content = _content_of(array)
    if content is None or content.descriptor is None:
        return None
    return content.descriptor, array.ctypes.data - np.frombuffer(content, np.uint8).ctypes.data


def release(array: npt.NDArray[Any]) -> None:
    """Let go of pages of the file that a tensor is mapped from: only what is read again counts as memory again."""
    content = _content_of(array)
    if content is not None and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED)


def _content_of(array: npt.NDArray[Any]) -> _Mapped | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    content = getattr(base, "obj", base)  # a memoryview's, in between
    return content if isinstance(content, _Mapped) else None


def map_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a file by name, read-only; a `DataError` names what is wrong with the file."""
    files.check_regular(path, "tensors")
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            # An empty file can't be mapped.
            content = _Mapped(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else None
            if content is not None and hasattr(os, "preadv"):
                content.descriptor = os.dup(stream.fileno())
                weakref.finalize(content, os.close, content.descriptor)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if content is None:
        raise _unreadable(path, "the file is empty")
    header, start = _header(path, content)
    described = {name: _described(path, name, about) for name, about in header.items()}
    arrays, end = {}, 0
    for name, (dtype, shape, (first, last)) in sorted(described.items(), key=lambda entry: entry[1][2]):
        if first != end or last > size - start:
            raise _unreadable(path, f"the numbers of {name} are at {first} to {last} of {size - start} bytes")
        if math.prod(shape) * dtype.itemsize != last - first:
            raise _unreadable(path, f"{name} has {last - first} bytes for {type_name(dtype)} of shape {shape}")
        arrays[name] = np.frombuffer(content, dtype, math.prod(shape), start + first).reshape(shape)
        end = last
    if end != size - start:
        raise _unreadable(path, f"the header describes {end} of {size - start} bytes")
    return arrays


def write_tensors(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to a safetensors file, completely or not at all; it has the bytes that safetensors writes."""
    order, names = list(TYPES), {dtype: name for name, dtype in TYPES.items()}
    unknown = [name for name, array in arrays.items() if array.dtype not in names]
    if unknown:
        found = arrays[unknown[0]].dtype
        raise DataError(f"found {unknown[0]} in {found}; wanted one of {', '.join(map(type_name, names))}")
    ordered = sorted(arrays, key=lambda name: (order.index(names[arrays[name].dtype]), name))
    header, end = {}, 0
    for name in ordered:
        array = arrays[name]
        offsets = [end, end + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with files.replacing(path) as temporary, temporary.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in ordered:
            stream.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def type_name(dtype: np.dtype[Any]) -> str:
    """What a type is called in messages."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def _header(path: Path, content: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The description of each tensor, and where the numbers start."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise _unreadable(path, f"a header of {length} bytes in a file of {len(content)}")
    try:
        header = json.loads(content[8 : 8 + length].decode(), object_pairs_hook=_distinct, parse_int=_place)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"the header is damaged: {error}") from error
    if not isinstance(header, dict):
        raise _unreadable(path, "the header is not an object")
    header.pop("__metadata__", None)
    return header, 8 + length


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _place(digits: str) -> int:
    """A number of bytes or of rows, which fits into 64 bits."""
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _described(path: Path, name: str, about: Any) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, int]]:
    """Type, shape and place of a tensor, as the header has them."""
    about = about if isinstance(about, dict) else {}
    kind, shape, offsets = (about.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in TYPES:
        raise _unreadable(path, f"{name} has the type {kind!r}")
    if not _counts(shape):
        raise _unreadable(path, f"{name} has the shape {shape!r}")
    if not _counts(offsets) or len(offsets) != 2:
        raise _unreadable(path, f"the numbers of {name} are at {offsets!r}")
    return TYPES[kind], tuple(shape), (offsets[0], offsets[1])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: found no readable tensors ({reason})")
