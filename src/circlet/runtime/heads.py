"""The last layer of a network, as `circlet.network.heads` has it: from hidden vectors to codes, or to scores."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from circlet.runtime.weights import Floats, Linear

__all__ = ["HEADS", "Head", "unit"]

#: Added to the squared length of a pair, as in training.
TINY = np.float32(1e-12)
#: The least norm that a vector is divided by, as in training.
LEAST_NORM = np.float32(1e-12)

#: From hidden vectors `(n, h)` to codes `(n, width)`.
Head = Callable[[Floats, dict[str, Linear]], Floats]


def _circular(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    pairs = layers["output"](hidden)
    return _phasors(pairs, pairs.shape[1] // 2)


def _amplitude(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    pairs = unit(layers["output"](hidden))
    pairs *= np.float32(math.sqrt(pairs.shape[1] / 2))
    return pairs


def _half_circular(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    half = hidden.shape[1] // 2
    pairs = np.concatenate([layers["output"](hidden[:, :half]), layers["second"](hidden[:, half:])], axis=1)
    return _phasors(pairs, pairs.shape[1] // 2)


def _sine(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    return _packed(np.sin(layers["output"](hidden)))


def _tanh(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    return _packed(np.tanh(layers["output"](hidden)))


def _real(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    return unit(layers["output"](hidden))


def _full(hidden: Floats, layers: dict[str, Linear]) -> Floats:
    return layers["output"](hidden)


#: By the names in `circlet.settings.network.HEADS`.
HEADS: dict[str, Head] = {
    "chrr": _circular,
    "chrr-amplitude": _amplitude,
    "chrr-half": _half_circular,
    "chrr-sin": _sine,
    "chrr-tanh": _tanh,
    "hrr": _real,
    "fc": _full,
}


def _phasors(pairs: Floats, dim: int) -> Floats:
    """Each pair divided by its norm, in place."""
    x, y = pairs[:, :dim], pairs[:, dim:]
    norms = np.sqrt(x * x + y * y + TINY)
    x /= norms
    y /= norms
    return pairs


def _packed(turns: Floats) -> Floats:
    """Packed phasors of angles, given as parts of π."""
    theta = turns * np.float32(math.pi)
    return np.concatenate([np.cos(theta), np.sin(theta)], axis=1)


def unit(rows: Floats) -> Floats:
    """Rows divided by their norm, in place."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.maximum(norms, LEAST_NORM)[:, None]
    return rows
