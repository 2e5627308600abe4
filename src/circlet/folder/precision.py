"""Weights on disk in fewer bits: bf16, or integers of 8 or 4 bits with a scale per row.

Only float32 matrices are rounded; biases, scales and other tensors that are not matrices stay as they are. A row
of the sparse first layer is a feature, a row of any other layer an output. Weights are read as float32 again.
Rounding those again changes nothing, so a model loses nothing more by being loaded and saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError, ParameterError
from circlet.folder.tensors import BFLOAT16, type_name

__all__ = [
    "STORES",
    "Stored",
    "check_finite",
    "check_scales",
    "check_store",
    "exact",
    "is_matrix",
    "packed",
    "stored",
]

#: How weights may be stored, and what that means.
STORES = {
    "float32": "as they were learned",
    "bf16": "matrices in 16 bits, 8 of them significant",
    "int8": "matrices in 8 bits, with a scale per row",
    "int4": "matrices in 4 bits, with a scale per row",
}
#: The scales of a matrix have its name with this prefix.
SCALES = "scales."
#: The scale of rows of zeros, and of numbers so small that their scale would not be a normal float32.
LEAST_SCALE = float(np.finfo(np.float32).tiny)
#: What int4 tries as the scale of a row, in parts of the one that its largest number fits. If that is an outlier,
#: the others lose less if it is cut off.
CUTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
#: The two numbers in a byte: the one in its lower half comes first. Each is stored as 1…15, for −7…7; a row of odd
#: length ends with a half of 0.
HALVES = np.stack([np.arange(256) % 16 - 8, np.arange(256) // 16 - 8], axis=1).astype(np.float32)

Array: TypeAlias = "npt.NDArray[Any]"
Floats: TypeAlias = "npt.NDArray[np.float32]"


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor as it is stored, which may be in fewer bits.

    Parameters
    ----------
    numbers : ndarray
        In the type that it is stored in.
    scales : ndarray of shape (rows,) or None
        What the rows of a matrix of integers are multiplied by.
    rounded : bool
        Whether it is a float32 matrix that was rounded.
    columns : int or None
        The length of a row of which each byte holds two integers.
    """

    numbers: Array
    scales: Floats | None = None
    rounded: bool = False
    columns: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.numbers.shape if self.columns is None else (len(self.numbers), self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers once they are read."""
        return np.dtype(np.float32) if self.rounded else self.numbers.dtype

    def read(self, rows: Any = ...) -> Array:
        """The tensor or, given an array or a slice, some of its rows, in the type that it has when it is used.

        A view if all of it is stored in that type.
        """
        if self.scales is not None:
            out = self.integers(rows)
            out *= self.scales[rows][:, None]
            return out
        if self.rounded:
            return _from_bf16(_chosen(self.numbers.view(np.uint16), rows))
        return _chosen(self.numbers, rows)

    def integers(self, rows: Any = ...) -> Floats:
        """What `read` returns for a matrix that has scales, but without them; in memory of its own."""
        numbers = _chosen(self.numbers, rows)
        if self.columns is None:
            return numbers.astype(np.float32)
        return HALVES.take(numbers, axis=0).reshape(len(numbers), 2 * numbers.shape[1])[:, : self.columns]


def check_store(store: str) -> None:
    """Raise `ParameterError` unless `store` is one of `STORES`."""
    if store not in STORES:
        raise ParameterError(f"`store` must be one of {', '.join(STORES)}, got {store!r}")


def packed(tensors: Mapping[str, Array], store: str) -> dict[str, Array]:
    """Tensors as they are stored; a matrix that is non-finite, or would become so, raises `DataError`."""
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
    """The tensors of the file `path`; one that is not stored as `store` says raises `DataError`."""
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
        out[weight] = Stored(numbers, tensors[name], True, _row_length(numbers) if halves else None)
    return out


def _to_bf16(tensor: Floats) -> Array:
    """The upper 16 bits of each number, rounded to the nearest and, between two, to the even one."""
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
    """Integers −127…127 `(rows, columns)` and scales `(rows,)`; the rounding error is at most half a scale."""
    scales = exact(np.abs(tensor).max(axis=1, initial=0) / np.float32(127))
    return np.rint(tensor / scales[:, None]).astype(np.int8), scales


def _to_int4(tensor: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Bytes of two integers `(rows, ⌈columns / 2⌉)` and scales `(rows,)`, of all `CUTS` with the least error."""
    fitting = np.abs(tensor).max(axis=1, initial=0) / np.float32(7)
    scales, numbers = np.empty_like(fitting), np.empty(tensor.shape, dtype=np.int8)
    least = np.full(len(tensor), np.inf)
    for cut in CUTS:
        tried = exact(fitting * np.float32(cut))
        found = np.clip(np.rint(tensor / tried[:, None]), -7, 7)
        # In units of the largest scale, whose square can't overflow.
        off = (found * np.float32(cut) - tensor / exact(fitting)[:, None]).astype(np.float64)
        error = np.einsum("ij,ij->i", off, off)
        # The first one is never worse for numbers that were rounded before, which therefore stay as they are.
        better = error < least * (1 - 1e-6)
        least[better], scales[better], numbers[better] = error[better], tried[better], found[better]
    halves = (numbers + 8).astype(np.uint8)
    if tensor.shape[1] % 2:
        halves = np.pad(halves, ((0, 0), (0, 1)))
    pairs: npt.NDArray[np.uint8] = halves[:, ::2] | (halves[:, 1::2] << np.uint8(4))
    return pairs, scales


def exact(scales: Floats) -> Floats:
    """Scales whose products with −127…127 are exact: the last 7 bits are cleared.

    The largest number of a row is then read back as an exact multiple, which gives the same scale again. Clearing
    rounds down, so the multiple never overflows.
    """
    cleared = (scales.astype(np.float32).view(np.int32) & ~0x7F).view(np.float32)
    floats: Floats = np.maximum(cleared, np.float32(LEAST_SCALE))
    return floats


def _row_length(halves: npt.NDArray[np.uint8]) -> int:
    """The number of columns of a matrix with two of them in each byte."""
    odd = halves.size > 0 and bool((halves[:, -1] < 16).all())
    return 2 * int(halves.shape[1]) - odd


def _chosen(whole: Array, rows: Any) -> Array:
    return whole.take(rows, axis=0) if isinstance(rows, np.ndarray) else whole[rows]


def check_scales(path: Path, name: str, numbers: Array, scales: Array, wanted: npt.DTypeLike) -> None:
    """Raise `DataError` unless a matrix is stored in the type that is wanted, with a valid scale for each row."""
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
    """Whether it is a matrix of this type."""
    return tensor.ndim == 2 and tensor.dtype == dtype
