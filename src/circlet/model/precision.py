"""Weights on disk in fewer bits: bf16, or int8 with a scale per row.

Only float32 matrices are rounded; biases, scales and other tensors that are not matrices stay as they are. A row
of the sparse first layer is a feature, a row of any other layer an output. Weights are read as float32 again.
Rounding those again changes nothing, so a model loses nothing more by being loaded and saved.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from circlet.errors import DataError, ParameterError

__all__ = ["STORES", "check_store", "packed", "unpacked"]

#: How weights may be stored, and what that means.
STORES = {
    "float32": "as they were learned",
    "bf16": "matrices in 16 bits, 8 of them significant",
    "int8": "matrices in 8 bits, with a scale per row",
}
#: The scales of a matrix have its name with this prefix.
SCALES = "scales."
#: The scale of rows of zeros, and of numbers so small that their scale would not be a normal float32.
LEAST_SCALE = torch.finfo(torch.float32).tiny


def check_store(store: str) -> None:
    """Raise `ParameterError` unless `store` is one of `STORES`."""
    if store not in STORES:
        raise ParameterError(f"`store` must be one of {', '.join(STORES)}, got {store!r}")


def packed(tensors: dict[str, Tensor], store: str) -> dict[str, Tensor]:
    """Tensors as they are stored; a matrix that is non-finite, or would become so, raises `DataError`."""
    check_store(store)
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if store == "float32" or not _is_matrix(tensor, torch.float32):
            out[name] = tensor
        elif store == "bf16":
            out[name] = tensor.to(torch.bfloat16)
            _check_finite(name, tensor, out[name], store)
        else:
            _check_finite(name, tensor, tensor, store)
            out[name], out[SCALES + name] = _to_int8(tensor)
    return out


def unpacked(path: Path, tensors: dict[str, Tensor], store: str) -> dict[str, Tensor]:
    """Tensors of the file `path`, in float32 again; one that is not stored as `store` says raises `DataError`."""
    if store == "float32":
        return tensors
    out = {name: tensor for name, tensor in tensors.items() if store == "bf16" or not name.startswith(SCALES)}
    for name in sorted(out):
        if _is_matrix(out[name], torch.float32):
            raise DataError(f"{path}: found {name} in float32; wanted {store}, as config.json says")
        if store == "bf16" and _is_matrix(out[name], torch.bfloat16):
            out[name] = out[name].float()
    for name in sorted(tensors.keys() - out.keys()):
        weight = name.removeprefix(SCALES)
        if weight not in out:
            raise DataError(f"{path}: found {name} without {weight}; wanted both")
        out[weight] = _from_int8(path, weight, out[weight], tensors[name])
    return out


def _to_int8(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Integers −127…127 `(rows, columns)` and scales `(rows,)`; the rounding error is at most half a scale."""
    scales = tensor.abs().amax(dim=1) / 127
    # The last 7 bits of a scale are cleared, so that its products with −127…127 are exact. The largest number of a
    # row is then read back as exactly 127 scales, which gives the same scale again. Clearing rounds down, so 127
    # scales never overflow.
    scales = (scales.view(torch.int32) & ~0x7F).view(torch.float32).clamp_(min=LEAST_SCALE)
    return (tensor / scales[:, None]).round_().to(torch.int8), scales


def _from_int8(path: Path, name: str, numbers: Tensor, scales: Tensor) -> Tensor:
    if not _is_matrix(numbers, torch.int8):
        raise DataError(
            f"{path}: found scales for {name}, of shape {tuple(numbers.shape)} in {_type(numbers)}; "
            "wanted a matrix in int8"
        )
    if scales.dtype != torch.float32 or scales.shape != numbers.shape[:1]:
        raise DataError(
            f"{path}: found scales of shape {tuple(scales.shape)} in {_type(scales)} for {name}; "
            f"wanted one for each of {len(numbers)} rows in float32"
        )
    # Negated, so that NaN counts as wrong.
    wrong = torch.nonzero(~((scales >= LEAST_SCALE) & (127 * scales).isfinite()))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}: found the scale {scales[row].item()} for row {row} of {name}; "
            f"wanted a finite number of at least {LEAST_SCALE:.3g}"
        )
    return numbers.float().mul_(scales[:, None])


def _check_finite(name: str, tensor: Tensor, stored: Tensor, store: str) -> None:
    finite = stored.isfinite()
    if not finite.all():
        row, column = torch.nonzero(~finite)[0].tolist()
        raise DataError(
            f"found {tensor[row, column].item()} at row {row}, column {column} of {name}; "
            f"wanted finite numbers that {store} can hold"
        )


def _is_matrix(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dim() == 2 and tensor.dtype == dtype


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
