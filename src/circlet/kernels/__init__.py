"""Triton kernels for decoding and training on a GPU; where they can't run, torch's own operations do the work."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec

import torch

logger = logging.getLogger(__name__)


@lru_cache
def run_on(device: torch.device) -> bool:
    """Whether the kernels of `circlet.kernels.triton` run on a device; if not, callers use torch's operations."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    try:
        from circlet.kernels.triton import adadelta

        weight, gradient, squares, deltas, rate = (torch.ones(1, device=device) for _ in range(5))
        group = {"lr": rate, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}
        adadelta(weight, gradient, squares, deltas, group)
    except Exception as error:  # a compiler or a header may be missing, or the GPU may be too old
        logger.warning("Triton kernels do not run on %s (%s); using torch's operations instead", device, error)
        return False
    return True
