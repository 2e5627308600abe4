"""Where training and prediction run."""

from __future__ import annotations

from typing import Any

import torch

from circlet.errors import ParameterError

__all__ = ["resolve_device"]


def resolve_device(name: Any) -> torch.device:
    """The device for a name; auto is a GPU if there is one."""
    if not isinstance(name, (str, torch.device)):
        raise ParameterError(f"`device` must be auto, cpu, cuda, ... got {name!r}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"`device` {name!r} is not available: {str(error).splitlines()[0]}") from error
    return device
