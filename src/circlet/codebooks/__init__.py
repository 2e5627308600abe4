"""Label ids to codes, and predicted codes to the scores of all labels."""

from circlet.codebooks.base import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook

__all__ = ["Codebook", "HolographicCodebook", "IndependentCodebook", "SpectralCodebook"]
