"""Whether the kernels of `circlet.kernels.triton` can be had."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec

import torch

__all__ = ["run_on"]

logger = logging.getLogger(__name__)


@lru_cache
def run_on(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device; where they do not, torch's own operations do."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    try:
        from circlet.kernels.triton import adadelta

        weight, gradient, squares, deltas, rate = (torch.ones(1, device=device) for _ in range(5))
        group = {"lr": rate, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}
        adadelta(weight, gradient, squares, deltas, group)
    except Exception as error:  # what is missing may be a compiler, a header, or a newer GPU
        logger.warning("Triton's kernels do not run on %s (%s); going on without them", device, error)
        return False
    return True
