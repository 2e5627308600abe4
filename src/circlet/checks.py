"""Whether a value is a number, decided in one place: NumPy's numbers are, booleans are not; checks of options."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from circlet.errors import DTypeError, ParameterError, ShapeError

__all__ = ["check_ranking", "is_integer", "is_real"]


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


def check_ranking(n_labels: int, memory: Any, allowed: Any, threshold: Any) -> None:
    """Raise an error for invalid options of a ranking; `allowed` is an array or a tensor, or None."""
    if memory is not None and not is_integer(memory, 1):
        raise ParameterError(f"`memory` must be a number of bytes, at least 1, got {memory!r}")
    if threshold is not None and not is_real(threshold):
        raise ParameterError(f"`threshold` must be a number, got {threshold!r}")
    if allowed is None:
        return
    kind = str(getattr(allowed, "dtype", type(allowed).__name__))
    if kind.removeprefix("torch.") != "bool":
        raise DTypeError(f"`allowed` must be an array or tensor of bool, got {kind}")
    if tuple(allowed.shape) != (n_labels,):
        raise ShapeError(
            f"`allowed` must have shape ({n_labels},), one for each label, got {tuple(allowed.shape)}"
        )
