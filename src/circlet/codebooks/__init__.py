"""Label ids to codes, and predicted codes to the scores of all labels or to the best of them."""

from collections.abc import Callable
from functools import partial

from circlet.codebooks.base import Codebook
from circlet.codebooks.holographic import HolographicCodebook
from circlet.codebooks.independent import IndependentCodebook
from circlet.codebooks.spectral import SpectralCodebook

__all__ = ["CODEBOOKS", "Codebook", "HolographicCodebook", "IndependentCodebook", "SpectralCodebook"]

#: By the names that `circlet.settings.network.CODEBOOKS` has.
CODEBOOKS: dict[str, Callable[..., Codebook]] = {
    "spectral": SpectralCodebook,
    "independent": IndependentCodebook,
    "four-phase": partial(IndependentCodebook, phases=4),
    "two-phase": partial(IndependentCodebook, phases=2),
    "holographic": HolographicCodebook,
}
