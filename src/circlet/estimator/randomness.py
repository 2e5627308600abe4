"""A seed from whatever scikit-learn's users pass as `random_state`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from circlet.checks import is_integer
from circlet.errors import ParameterError

__all__ = ["seed_of"]


def seed_of(random_state: Any) -> int:
    """The int itself, or one drawn from a RandomState or a Generator; None draws from NumPy's global state."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if not is_integer(random_state):
        try:
            return int(check_random_state(random_state).randint(2**31 - 1))
        except ValueError as error:
            raise ParameterError(
                f"`random_state` must be an int, a RandomState, a Generator or None, got {random_state!r}"
            ) from error
    if random_state < 0:
        raise ParameterError(f"`random_state` must be at least 0, got {random_state}")
    return int(random_state)
