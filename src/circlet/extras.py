"""What `pip install circlet` leaves out, and how code that needs it says so.

Using a model needs neither torch nor scikit-learn. Whatever needs them asks here, so that a user without them
gets one line that says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from circlet.errors import MissingExtraError

__all__ = ["for_training", "require"]

#: What the extra `train` installs, by the names that are imported.
TRAINING = {"torch": "torch", "sklearn": "scikit-learn"}


def require(module: str, *, extra: str, purpose: str) -> None:
    """Refuse work that needs a module which is not installed, before the work starts; nothing is imported.

    Raises
    ------
    MissingExtraError
    """
    if find_spec(module) is None:
        raise MissingExtraError(TRAINING.get(module, module), extra=extra, purpose=purpose)


@contextmanager
def for_training(purpose: str) -> Iterator[None]:
    """Around imports that need the extra `train`: if it is missing, the error says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in TRAINING:
            raise
        raise MissingExtraError(TRAINING[missing], extra="train", purpose=purpose) from error
