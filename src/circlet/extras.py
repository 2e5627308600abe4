"""Optional dependencies, and the error if one is missing.

Applying a model needs neither torch nor scikit-learn. Code that needs them checks here, so that a user without
them gets a one-line error that says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from circlet.errors import MissingExtraError

__all__ = ["for_training", "require"]

#: The distributions of the extra `train`, by import name.
TRAINING = {"torch": "torch", "sklearn": "scikit-learn"}


def require(module: str, *, extra: str, purpose: str) -> None:
    """Raise an error if a module is not installed, before work that needs it; nothing is imported.

    Raises
    ------
    MissingExtraError
    """
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
