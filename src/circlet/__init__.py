"""Multi-label learning with circular vectors: an output layer that does not grow with the labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from circlet.threads import spin_briefly
from circlet.version import __version__

if TYPE_CHECKING:
    from circlet import algebra, data, errors, metrics
    from circlet.codebooks import IndependentCodebook, SpectralCodebook
    from circlet.data import load_dataset
    from circlet.estimator import CircletClassifier
    from circlet.runtime import load

__all__ = [
    "CircletClassifier",
    "IndependentCodebook",
    "SpectralCodebook",
    "__version__",
    "algebra",
    "data",
    "errors",
    "load",
    "load_dataset",
    "metrics",
]

spin_briefly()

# Imported on first use: torch takes seconds, and many commands do not need it.
_HOMES = {
    "CircletClassifier": "circlet.estimator",
    "IndependentCodebook": "circlet.codebooks",
    "SpectralCodebook": "circlet.codebooks",
    "load": "circlet.runtime",
    "load_dataset": "circlet.data",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
    if name in __all__:
        return import_module(f"circlet.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
