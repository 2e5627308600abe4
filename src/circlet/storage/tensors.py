"""Tensors in files: memory-mapped as NumPy arrays, and weights in fewer bits.

**The file.** A safetensors file has the length of a header in eight bytes, the header in JSON, and the numbers of
all tensors. The safetensors library writes and checks files. This module maps the arrays, because the library
copies numbers, does not support bfloat16 with NumPy, and does not return a tensor's position in the file. Numbers
are read only when they are used.

**Fewer bits.** Weights may be stored in bf16, or as integers of 8 or 4 bits with a scale per row. Only float32
matrices are rounded; biases, scales and other tensors that are not matrices stay unchanged. A row of the sparse
first layer is a feature, a row of any other layer an output. Weights are read back as float32. Rounding these
again changes nothing, so loading and saving a model loses nothing more.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet import files
from circlet.errors import DataError, ParameterError

#: NumPy has no bfloat16 (the upper 16 bits of a float32). This type distinguishes it from integers.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])
#: Types by their names in a file.
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


class _Mapped(mmap.mmap):
    """A mapped file; it stays open where the system has `preadv`, so that it can also be read."""

    descriptor: int | None = None


def place_in_file(array: npt.NDArray[Any]) -> tuple[int, int] | None:
    """Return a descriptor of the file that a tensor is mapped from, and its offset there; None if not mapped."""
    content = _content_of(array)
    if content is None or content.descriptor is None:
        return None
    return content.descriptor, array.ctypes.data - np.frombuffer(content, np.uint8).ctypes.data


def release(array: npt.NDArray[Any]) -> None:
    """Release the pages of the file that a tensor is mapped from; they leave our memory until read again."""
    content = _content_of(array)
    if content is not None and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED)


def _content_of(array: npt.NDArray[Any]) -> _Mapped | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    content = getattr(base, "obj", base)  # there may be a memoryview in between
    return content if isinstance(content, _Mapped) else None


def map_tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Map the tensors of a file, read-only, by name; raise `DataError` if the file is damaged."""
    from safetensors import SafetensorError, safe_open

    files.check_regular(path, "tensors")
    arrays = {}
    try:
        with path.open("rb") as stream:
            with safe_open(path, framework="np"):  # checks the header, and that the file has all numbers
                pass
            content = _Mapped(stream.fileno(), 0, access=mmap.ACCESS_READ)
            if hasattr(os, "preadv"):
                content.descriptor = os.dup(stream.fileno())
                weakref.finalize(content, os.close, content.descriptor)
        start = 8 + int.from_bytes(content[:8], "little")
        for name, about in json.loads(content[8:start], object_pairs_hook=_distinct).items():
            if name != "__metadata__":
                kind, shape, place = about["dtype"], about["shape"], start + about["data_offsets"][0]
                if kind not in TYPES:
                    raise ValueError(f"{name} has the type {kind!r}")
                arrays[name] = np.frombuffer(content, TYPES[kind], math.prod(shape), place).reshape(shape)
    # The last: a name that occurs twice, a shape that NumPy can't have, or a file replaced while it was opened.
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path}: found no readable tensors ({files.reason_of(error)})") from error
    return arrays


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type for messages."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


# Weights in fewer bits

#: The ways to store weights, with their descriptions.
STORES = {
    "float32": "as they were learned",
    "bf16": "matrices in 16 bits, 8 of them significant",
    "int8": "matrices in 8 bits, with a scale per row",
    "int4": "matrices in 4 bits, with a scale per row",
}
#: Prefix of the name of a matrix's scales.
SCALES = "scales."
#: The least scale: for rows of zeros, and of numbers so small that their scale would not be a normal float32.
LEAST_SCALE = float(np.finfo(np.float32).tiny)
#: Scales that int4 tries for a row, as fractions of the scale that fits its largest number. If that number is an
#: outlier, clipping it reduces the error of the others.
CUTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
#: The two numbers in each byte; the lower half comes first. Each is stored as 1…15, for −7…7; a row of odd length
#: ends with a half byte of 0.
HALVES = np.stack([np.arange(256) % 16 - 8, np.arange(256) // 16 - 8], axis=1).astype(np.float32)

Array: TypeAlias = "npt.NDArray[Any]"
Floats: TypeAlias = "npt.NDArray[np.float32]"


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor as stored, possibly in fewer bits."""

    numbers: Array  # in the stored type
    scales: Floats | None = None  # factors of the rows of a matrix of integers
    rounded: bool = False  # whether the tensor is a rounded float32 matrix
    columns: int | None = None  # length of a row if each byte holds two integers

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.numbers.shape if self.columns is None else (len(self.numbers), self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers that `read` returns."""
        return np.dtype(np.float32) if self.rounded else self.numbers.dtype

    def read(self, rows: Any = ...) -> Array:
        """Return the tensor, or the rows in an array or slice, in the type `dtype`: a view if it is stored so."""
        if self.scales is not None:
            out = self.integers(rows)
            out *= self.scales[rows][:, None]
            return out
        if self.rounded:
            return _from_bf16(_chosen(self.numbers.view(np.uint16), rows))
        return _chosen(self.numbers, rows)

    def integers(self, rows: Any = ...) -> Floats:
        """Return a copy of the integers of a matrix with scales, as float32, before scaling."""
        numbers = _chosen(self.numbers, rows)
        if self.columns is None:
            return numbers.astype(np.float32)
        return HALVES.take(numbers, axis=0).reshape(len(numbers), 2 * numbers.shape[1])[:, : self.columns]


def check_store(store: str) -> None:
    """Raise `ParameterError` unless `store` is one of `STORES`."""
    if store not in STORES:
        raise ParameterError(f"`store`: found {store!r}; wanted one of {', '.join(STORES)}")


def packed(tensors: Mapping[str, Array], store: str) -> dict[str, Array]:
    """Convert tensors to their stored form; raise `DataError` for a matrix that is or becomes non-finite."""
    check_store(store)
    out: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if store == "float32" or not is_matrix(tensor, np.float32):
            out[name] = tensor
        elif store == "bf16":
            out[name] = _to_bf16(tensor)
            check_finite(name, tensor, _from_bf16(out[name].view(np.uint16)), store)
        else:
            check_finite(name, tensor, tensor, store)
            out[name], out[SCALES + name] = (_to_int8 if store == "int8" else _to_int4)(tensor)
    return out


def stored(path: Path, tensors: Mapping[str, Array], store: str) -> dict[str, Stored]:
    """Return the tensors of the file `path`; raise `DataError` if one is not stored as `store`."""
    if store == "float32":
        return {name: Stored(tensor) for name, tensor in tensors.items()}
    own = {name for name in tensors if store == "bf16" or not name.startswith(SCALES)}
    out: dict[str, Stored] = {}
    for name in sorted(own):
        if is_matrix(tensors[name], np.float32):
            raise DataError(f"{path}: found {name} in float32; wanted {store}, as config.json says")
        out[name] = Stored(tensors[name], rounded=store == "bf16" and is_matrix(tensors[name], BFLOAT16))
    for name in sorted(tensors.keys() - own):
        weight = name.removeprefix(SCALES)
        if weight not in out:
            raise DataError(f"{path}: found {name} without {weight}; wanted both")
        numbers, halves = tensors[weight], store == "int4"
        check_scales(path, weight, numbers, tensors[name], np.uint8 if halves else np.int8)
        odd = halves and numbers.size > 0 and bool((numbers[:, -1] < 16).all())
        out[weight] = Stored(numbers, tensors[name], True, 2 * int(numbers.shape[1]) - odd if halves else None)
    return out


def _to_bf16(tensor: Floats) -> Array:
    """Return the upper 16 bits of each number, rounded to nearest, ties to even."""
    bits = tensor.view(np.uint32)
    odd = (bits >> 16) & 1
    with np.errstate(over="ignore"):
        upper: Array = (bits + (odd + np.uint32(0x7FFF))) >> 16
    return upper.astype(np.uint16).view(BFLOAT16)


def _from_bf16(halves: npt.NDArray[np.uint16]) -> Floats:
    bits = halves.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _to_int8(tensor: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Round to integers −127…127 `(rows, columns)` with scales `(rows,)`; the error is at most half a scale."""
    scales = exact(np.abs(tensor).max(axis=1, initial=0) / np.float32(127))
    return np.rint(tensor / scales[:, None]).astype(np.int8), scales


def _to_int4(tensor: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Round to bytes of two integers `(rows, ⌈columns / 2⌉)` with scales `(rows,)`, the best of all `CUTS`."""
    fitting = np.abs(tensor).max(axis=1, initial=0) / np.float32(7)
    scales, numbers = np.empty_like(fitting), np.empty(tensor.shape, dtype=np.int8)
    least = np.full(len(tensor), np.inf)
    for cut in CUTS:
        tried = exact(fitting * np.float32(cut))
        found = np.clip(np.rint(tensor / tried[:, None]), -7, 7)
        # In units of the largest scale, so that the squares cannot overflow.
        off = (found * np.float32(cut) - tensor / exact(fitting)[:, None]).astype(np.float64)
        error = np.einsum("ij,ij->i", off, off)
        # For numbers that were rounded before, the first scale is exact, so they stay unchanged.
        better = error < least * (1 - 1e-6)
        least[better], scales[better], numbers[better] = error[better], tried[better], found[better]
    halves = (numbers + 8).astype(np.uint8)
    if tensor.shape[1] % 2:
        halves = np.pad(halves, ((0, 0), (0, 1)))
    pairs: npt.NDArray[np.uint8] = halves[:, ::2] | (halves[:, 1::2] << np.uint8(4))
    return pairs, scales


def exact(scales: Floats) -> Floats:
    """Clear the last 7 bits of scales, so that their products with −127…127 are exact.

    The largest number of a row is then read back as an exact multiple, which gives the same scale again. Clearing
    rounds down, so the multiple never overflows.
    """
    cleared = (scales.astype(np.float32).view(np.int32) & ~0x7F).view(np.float32)
    floats: Floats = np.maximum(cleared, np.float32(LEAST_SCALE))
    return floats


def _chosen(whole: Array, rows: Any) -> Array:
    return whole.take(rows, axis=0) if isinstance(rows, np.ndarray) else whole[rows]


def check_scales(path: Path, name: str, numbers: Array, scales: Array, wanted: npt.DTypeLike) -> None:
    """Raise `DataError` unless a matrix has the wanted type and a valid scale for each row."""
    if not is_matrix(numbers, wanted):
        raise DataError(
            f"{path}: found scales for {name}, of shape {numbers.shape} in {type_name(numbers.dtype)}; "
            f"wanted a matrix in {np.dtype(wanted).name}"
        )
    if scales.dtype != np.float32 or scales.shape != numbers.shape[:1]:
        raise DataError(
            f"{path}: found scales of shape {scales.shape} in {type_name(scales.dtype)} for {name}; "
            f"wanted one for each of {len(numbers)} rows in float32"
        )
    with np.errstate(over="ignore"):
        # Negated, so that NaN counts as wrong.
        wrong = np.flatnonzero(~((scales >= LEAST_SCALE) & np.isfinite(127 * scales)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}: found the scale {scales[row].item()} for row {row} of {name}; "
            f"wanted a finite number of at least {LEAST_SCALE:.3g}"
        )


def check_finite(name: str, tensor: Floats, rounded: Floats, store: str) -> None:
    """Raise `DataError` for a matrix with a number that is not finite, before or after rounding."""
    finite = np.isfinite(tensor) & np.isfinite(rounded)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise DataError(
            f"found {tensor[row, column].item()} at row {row}, column {column} of {name}; "
            f"wanted finite numbers that {store} can hold"
        )


def is_matrix(tensor: Array, dtype: npt.DTypeLike) -> bool:
    """Whether `tensor` is a matrix of this type."""
    return tensor.ndim == 2 and tensor.dtype == dtype
