"""Weights on disk in fewer bits: bf16, or int8 with a scale per row.

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

__all__ = ["STORES", "Stored", "check_store", "packed", "stored"]

#: How weights may be stored, and what that means.
STORES = {
    "float32": "as they were learned",
    "bf16": "matrices in 16 bits, 8 of them significant",
    "int8": "matrices in 8 bits, with a scale per row",
}
#: The scales of a matrix have its name with this prefix.
SCALES = "scales."
#: The scale of rows of zeros, and of numbers so small that their scale would not be a normal float32.
LEAST_SCALE = float(np.finfo(np.float32).tiny)

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
        What the rows of an int8 matrix are multiplied by.
    rounded : bool
        Whether it is a float32 matrix that was rounded.
    """

    numbers: Array
    scales: Floats | None = None
    rounded: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.numbers.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers once they are read."""
        return np.dtype(np.float32) if self.rounded else self.numbers.dtype

    def read(self, rows: Any = ...) -> Array:
        """The tensor or, given an array or a slice, some of its rows, in the type that it has when it is used.

        A view if all of it is stored in that type.
        """
        whole = self.numbers.view(np.uint16) if self.rounded and self.scales is None else self.numbers
        numbers: Array = whole.take(rows, axis=0) if isinstance(rows, np.ndarray) else whole[rows]
        if not self.rounded:
            return numbers
        if self.scales is None:
            return _from_bf16(numbers)
        numbers = numbers.astype(np.float32)
        numbers *= self.scales[rows][:, None]
        return numbers


def check_store(store: str) -> None:
    """Raise `ParameterError` unless `store` is one of `STORES`."""
    if store not in STORES:
        raise ParameterError(f"`store` must be one of {', '.join(STORES)}, got {store!r}")


def packed(tensors: Mapping[str, Array], store: str) -> dict[str, Array]:
    """Tensors as they are stored; a matrix that is non-finite, or would become so, raises `DataError`."""
    check_store(store)
    out: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if store == "float32" or not _is_matrix(tensor, np.float32):
            out[name] = tensor
        elif store == "bf16":
            out[name] = _to_bf16(tensor)
            _check_finite(name, tensor, _from_bf16(out[name].view(np.uint16)), store)
        else:
            _check_finite(name, tensor, tensor, store)
            out[name], out[SCALES + name] = _to_int8(tensor)
    return out


def stored(path: Path, tensors: Mapping[str, Array], store: str) -> dict[str, Stored]:
    """The tensors of the file `path`; one that is not stored as `store` says raises `DataError`."""
    if store == "float32":
        return {name: Stored(tensor) for name, tensor in tensors.items()}
    own = {name for name in tensors if store == "bf16" or not name.startswith(SCALES)}
    out: dict[str, Stored] = {}
    for name in sorted(own):
        if _is_matrix(tensors[name], np.float32):
            raise DataError(f"{path}: found {name} in float32; wanted {store}, as config.json says")
        out[name] = Stored(tensors[name], rounded=store == "bf16" and _is_matrix(tensors[name], BFLOAT16))
    for name in sorted(tensors.keys() - own):
        weight = name.removeprefix(SCALES)
        if weight not in out:
            raise DataError(f"{path}: found {name} without {weight}; wanted both")
        _check_scales(path, weight, tensors[weight], tensors[name])
        out[weight] = Stored(tensors[weight], tensors[name], rounded=True)
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
    scales: Floats = np.abs(tensor).max(axis=1) / np.float32(127)
    # The last 7 bits of a scale are cleared, so that its products with −127…127 are exact. The largest number of a
    # row is then read back as exactly 127 scales, which gives the same scale again. Clearing rounds down, so 127
    # scales never overflow.
    scales = np.maximum((scales.view(np.int32) & ~0x7F).view(np.float32), np.float32(LEAST_SCALE))
    return np.rint(tensor / scales[:, None]).astype(np.int8), scales


def _check_scales(path: Path, name: str, numbers: Array, scales: Array) -> None:
    if not _is_matrix(numbers, np.int8):
        raise DataError(
            f"{path}: found scales for {name}, of shape {numbers.shape} in {type_name(numbers.dtype)}; "
            "wanted a matrix in int8"
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


def _check_finite(name: str, tensor: Floats, rounded: Floats, store: str) -> None:
    finite = np.isfinite(tensor) & np.isfinite(rounded)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise DataError(
            f"found {tensor[row, column].item()} at row {row}, column {column} of {name}; "
            f"wanted finite numbers that {store} can hold"
        )


def _is_matrix(tensor: Array, dtype: npt.DTypeLike) -> bool:
    return tensor.ndim == 2 and tensor.dtype == dtype
