"""Whether a value is a number, decided in one place: NumPy's numbers are, booleans are not."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

__all__ = ["is_integer", "is_real"]


def is_integer(value: Any, least: int | None = None) -> bool:
    """Whether `value` is an integer, Python's or NumPy's, that is at least `least`.

    >>> is_integer(3, 1), is_integer(0, 1), is_integer(True), is_integer(3.0)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return least is None or int(value) >= least


def is_real(value: Any) -> bool:
    """Whether `value` is a finite real number, Python's or NumPy's, integers included.

    >>> is_real(0.5), is_real(2), is_real(False), is_real(float("nan")), is_real("1")
    (True, True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    number: Any = value
    return bool(-math.inf < number < math.inf)  # math.isfinite fails on integers too large for a float
