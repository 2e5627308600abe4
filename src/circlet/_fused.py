"""Triton kernels; imported only where there is a GPU."""

# Without `from __future__ import annotations`: Triton reads the annotations of kernels.
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _adadelta(weights, gradients, squares, deltas, rate, n, rho, eps, decay, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    weight = tl.load(weights + place, mask=inside)
    gradient = tl.load(gradients + place, mask=inside) + decay * weight
    square = rho * tl.load(squares + place, mask=inside) + (1 - rho) * gradient * gradient
    before = tl.load(deltas + place, mask=inside)
    delta = tl.sqrt(before + eps) / tl.sqrt(square + eps) * gradient
    tl.store(squares + place, square, mask=inside)
    tl.store(deltas + place, rho * before + (1 - rho) * delta * delta, mask=inside)
    tl.store(weights + place, weight - tl.load(rate) * delta, mask=inside)


def adadelta(weight: Tensor, gradient: Tensor, squares: Tensor, deltas: Tensor, group: dict[str, Any]) -> None:
    """One step of Adadelta in place: torch's arithmetic in a single pass, the rate read from the device."""
    n = weight.numel()
    _adadelta[(triton.cdiv(n, BLOCK),)](
        weight, gradient.contiguous(), squares, deltas, group["lr"], n, group["rho"], group["eps"],
        group["weight_decay"], BLOCK=BLOCK,
    )  # fmt: skip
