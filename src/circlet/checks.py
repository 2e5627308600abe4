"""Checks of numbers, fractions and sizes, and of optional dependencies.

NumPy's numbers count as numbers, booleans do not. Applying a model needs neither torch nor scikit-learn. Code that
needs them checks here, so that a user without them gets a one-line error that says what to install.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any

from circlet.errors import DTypeError, MissingExtraError, ParameterError, ShapeError


def is_integer(value: Any, least: int | None = None) -> bool:
    """Whether `value` is an integer, Python's or NumPy's, that is at least `least`.

    >>> is_integer(3, 1), is_integer(0, 1), is_integer(True), is_integer(3.0)
    (True, False, False, False)
    """
    # The first condition is the usual case, and takes a tenth of the time of the second.
    if type(value) is int or (not isinstance(value, bool) and isinstance(value, Integral)):
        return least is None or int(value) >= least
    return False


def is_real(value: Any) -> bool:
    """Whether `value` is a finite real number, Python's or NumPy's, integers included.

    >>> is_real(0.5), is_real(2), is_real(False), is_real(float("nan")), is_real("1")
    (True, True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    number: Any = value
    return bool(-math.inf < number < math.inf)  # math.isfinite fails on integers too large for a float


def check_share(name: str, value: Any, other: str = "") -> None:
    """Raise `ParameterError` unless a value is a number from 0 to 1; `other` names further valid values.

    >>> check_share("threshold", 0.5)
    """
    if not is_real(value) or not 0 <= value <= 1:
        raise ParameterError(f"`{name}`: found {value!r}; wanted {other}a number from 0 to 1")


def bytes_of(text: str, option: str) -> int:
    """Parse a size in bytes: kB, MB, GB and TB are powers of 1000; KiB, MiB, … powers of 1024.

    Upper and lower case mean the same, and the B may be left out of decimal units.

    >>> bytes_of("5MB", "--size"), bytes_of("5MiB", "--size"), bytes_of("2.3 k", "--size")
    (5000000, 5242880, 2300)
    """
    pattern = r"(\d{1,18}(?:\.\d{1,18})?)\s*(?:([kmgt])b?|([kmgt])ib|b)?"
    match = re.fullmatch(pattern, text.strip(), flags=re.IGNORECASE | re.ASCII)
    size = 0
    if match:
        decimal, binary = ("kmgt".find((match[group] or "-").lower()) + 1 for group in (2, 3))
        whole, _, part = match[1].partition(".")
        size = int(whole + part) * 1000**decimal * 1024**binary // 10 ** len(part)
    if size < 1:
        raise ParameterError(f"{option}: found {text!r}; wanted a size such as 500kB, 5MB, 2GiB, or bytes")
    return size


def check_ranking(n_labels: int, memory: Any, allowed: Any, threshold: Any) -> None:
    """Raise an error for invalid options of a ranking; `allowed` is an array or a tensor, or None."""
    if memory is not None and not is_integer(memory, 1):
        raise ParameterError(f"`memory`: found {memory!r}; wanted a number of bytes, at least 1")
    if threshold is not None and not is_real(threshold):
        raise ParameterError(f"`threshold`: found {threshold!r}; wanted a number")
    if allowed is None:
        return
    kind = str(getattr(allowed, "dtype", type(allowed).__name__))
    if kind.removeprefix("torch.") != "bool":
        raise DTypeError(f"`allowed`: found {kind}; wanted an array or tensor of bool")
    if tuple(allowed.shape) != (n_labels,):
        raise ShapeError(
            f"`allowed`: found shape {tuple(allowed.shape)}; wanted ({n_labels},), one for each label"
        )


#: The distributions of the extra `train`, by import name.
TRAINING = {"torch": "torch", "sklearn": "scikit-learn"}


def require(module: str, *, extra: str, purpose: str) -> None:
    """Raise `MissingExtraError` if a module is not installed, before work that needs it; nothing is imported."""
    if find_spec(module) is None:
        raise MissingExtraError(TRAINING.get(module, module), extra=extra, purpose=purpose)


@contextmanager
def for_training(purpose: str) -> Iterator[None]:
    """Wrap imports that need the extra `train`; if it is missing, raise `MissingExtraError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in TRAINING:
            raise
        raise MissingExtraError(TRAINING[missing], extra="train", purpose=purpose) from error
