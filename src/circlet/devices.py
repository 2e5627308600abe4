"""Devices for training and prediction."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from circlet.compat import has_bfloat16_instructions
from circlet.errors import ParameterError

__all__ = ["multiplies_bfloat16", "resolve_device"]


def resolve_device(name: Any) -> torch.device:
    """Return the device with this name; auto is a GPU if there is one."""
    if not isinstance(name, (str, torch.device)):
        raise ParameterError(f"`device` must be auto, cpu, cuda, ... got {name!r}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:  # whose message lists all that torch has ever run on
        raise ParameterError(f"`device` {name!r} is not available: wanted auto, cpu, cuda, cuda:1, …") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"`device` {name!r} is not available: {str(error).splitlines()[0]}") from error
    return device


@cache
def multiplies_bfloat16(device_type: str) -> bool:
    """Whether devices of this type multiply matrices of bfloat16 faster than those of float32.

    GPUs do, and CPUs that have instructions for it. Others would convert the numbers back and forth.
    """
    return has_bfloat16_instructions(torch.cpu) if device_type == "cpu" else device_type == "cuda"
