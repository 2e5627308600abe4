"""Encode labels as vectors (codes), and decode predicted codes to label scores and the best labels."""

from collections.abc import Callable
from functools import partial

from circlet.codebooks.base import Codebook
from circlet.codebooks.independent import HolographicCodebook, IndependentCodebook
from circlet.codebooks.spectral import SpectralCodebook

__all__ = ["CODEBOOKS", "Codebook", "HolographicCodebook", "IndependentCodebook", "SpectralCodebook"]

#: The codebooks by name; the names are those of `circlet.settings.network.CODEBOOKS`.
CODEBOOKS: dict[str, Callable[..., Codebook]] = {
    "spectral": SpectralCodebook,
    "independent": IndependentCodebook,
    "four-phase": partial(IndependentCodebook, phases=4),
    "two-phase": partial(IndependentCodebook, phases=2),
    "holographic": HolographicCodebook,
}
