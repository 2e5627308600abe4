"""From label ids to codes, one vector per label; and from predicted codes to label scores and the best labels."""

from collections.abc import Callable
from functools import partial

from circlet.extras import for_training

with for_training(__name__):
    from circlet.codebooks.base import Codebook
    from circlet.codebooks.independent import HolographicCodebook, IndependentCodebook
    from circlet.codebooks.spectral import SpectralCodebook

__all__ = ["CODEBOOKS", "Codebook", "HolographicCodebook", "IndependentCodebook", "SpectralCodebook"]

#: By the names in `circlet.settings.network.CODEBOOKS`.
CODEBOOKS: dict[str, Callable[..., Codebook]] = {
    "spectral": SpectralCodebook,
    "independent": IndependentCodebook,
    "four-phase": partial(IndependentCodebook, phases=4),
    "two-phase": partial(IndependentCodebook, phases=2),
    "holographic": HolographicCodebook,
}
