"""The primitives over NumPy arrays. They may overwrite what they are given: most of it is a temporary."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy import sin, tanh

__all__ = ["LEAST_NORM", "TINY", "concat", "packed", "sin", "split", "tanh", "unit", "unit_pairs"]

#: Single precision, except in explanations.
Floats: TypeAlias = "npt.NDArray[Any]"

#: Added to the squared norm of a pair, to keep its gradient finite at (0, 0). Its square is still a normal
#: float32, far below any pair's norm.
TINY = 1e-12
#: The least norm that a vector is divided by, as in torch.
LEAST_NORM = 1e-12


def split(rows: Floats, parts: int) -> list[Floats]:
    """The columns in so many equal parts."""
    return np.split(rows, parts, axis=1)


def concat(parts: list[Floats]) -> Floats:
    """Arrays side by side."""
    return np.concatenate(parts, axis=1)


def unit(rows: Floats, norm: float = 1.0) -> Floats:
    """Rows with this norm."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.maximum(norms, LEAST_NORM)[:, None]
    if norm != 1:
        rows *= norm
    return rows


def unit_pairs(rows: Floats) -> Floats:
    """Each pair, of a number in the first half of a row and one in the second, divided by its norm."""
    dim = rows.shape[1] // 2
    x, y = rows[:, :dim], rows[:, dim:]
    norms = np.sqrt(x * x + y * y + TINY)
    x /= norms
    y /= norms
    return rows


def packed(half_turns: Floats) -> Floats:
    """Packed phasors of angles, given as parts of π."""
    theta = half_turns * np.pi
    return concat([np.cos(theta), np.sin(theta)])
