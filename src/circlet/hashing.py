"""Random numbers that depend only on a seed and a position: the same on every device, in any order.

32-bit numbers are stored as int64. Their products may overflow, but only the low 32 bits are kept, and these are
always right. torch's own generators guarantee neither random access nor the same numbers on CPU and GPU.

NumPy arrays and torch tensors have the same operators, so one definition serves both. This module does not import
torch, because saved models are applied without torch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["permuted", "uniform"]

#: An int64 ndarray or an int64 torch.Tensor; results are of the same kind, and on the same device.
Numbers: TypeAlias = Any


def _mixed(x: Numbers) -> Numbers:
    """Hash 32-bit numbers in place; different numbers get different hashes (Wellons' lowbias32)."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> shift
        x *= factor
        x &= 0xFFFFFFFF
    x ^= x >> 16
    return x


@lru_cache(maxsize=1024)
def _word(*parts: int) -> int:
    """Combine integers into one 32-bit number."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _hashed(ids: Numbers, seed: int, stream: int) -> Numbers:
    """A 32-bit hash of 64-bit ids."""
    low = _mixed((ids & 0xFFFFFFFF) ^ _word(seed, stream, 0))
    return _mixed(low ^ ((ids >> 32) & 0xFFFFFFFF) ^ _word(seed, stream, 1))


def uniform(seed: int, ids: Numbers, n: int) -> Any:
    """Numbers in [0, 1), `(m, n)` in float32: entry (i, j) depends only on seed, ids[i] and j."""
    of_numpy = isinstance(ids, np.ndarray)
    columns = _hashed(np.arange(n) if of_numpy else ids.new_ones(n).cumsum(0) - 1, seed, stream=3)
    # Mixing in two 32-bit hashes of the label gives 64 bits, so that no two labels share a code.
    bits = _mixed(columns[None, :] ^ _hashed(ids, seed, stream=4)[:, None])
    bits = _mixed(bits ^ _hashed(ids, seed, stream=5)[:, None])
    # Only the upper 24 bits: a float32 has no more, and rounding could give 1.
    bits >>= 8
    return (bits.astype(np.float32) if of_numpy else bits.float()) * 2.0**-24


def permuted(x: Numbers, size: int, seed: int, *, stream: int) -> Numbers:
    """A pseudo-random permutation of 0…size−1 at the points x, without a table.

    A Feistel network permutes 0…4ʰ−1, which covers the range. Values outside the range are permuted again until
    they are inside, so the result is still a permutation.
    """
    half = max(1, math.ceil(math.log2(max(size, 2)) / 2))
    mask = (1 << half) - 1
    result = _feistel(x, half, mask, seed, stream)
    outside = result >= size
    while outside.any():
        result[outside] = _feistel(result[outside], half, mask, seed, stream)
        outside = result >= size
    return result


def _feistel(x: Numbers, half: int, mask: int, seed: int, stream: int) -> Numbers:
    left, right = x >> half, x & mask
    for turn in range(6):
        left, right = right, left ^ (_mixed(right ^ _word(seed, stream, 2 + turn)) & mask)
    return (left << half) | right
