"""Multi-label learning with circular vectors: an output layer that does not grow with the labels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circlet.codebooks.base import IndependentCodebook, SpectralCodebook
    from circlet.data import load_dataset
    from circlet.estimator.classifier import CircletClassifier

__version__ = "0.1.0"
__all__ = ["CircletClassifier", "IndependentCodebook", "SpectralCodebook", "__version__", "load_dataset"]

# Imported when first asked for: torch takes seconds, and many commands do without.
_HOMES = {
    "CircletClassifier": "circlet.estimator.classifier",
    "IndependentCodebook": "circlet.codebooks.base",
    "SpectralCodebook": "circlet.codebooks.base",
    "load_dataset": "circlet.data",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
