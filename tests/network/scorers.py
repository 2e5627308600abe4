"""Scorers of every loss and codebook that make sense together."""

from __future__ import annotations

import torch

from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.network import Scorer
from circlet.network.losses import LOSSES
from circlet.settings.network import COSINES

N, DIM = 9, 6
BOOKS = {"independent": IndependentCodebook, "spectral": SpectralCodebook, "holographic": HolographicCodebook}
SENSIBLE = [(name, book) for name in LOSSES for book in (*BOOKS, None) if not (name in COSINES and book is None)]


def scorer_for(name: str, codes: Codebook | None) -> Scorer:
    """The scorer of a loss, as it starts."""
    loss = LOSSES[name]
    return Scorer(codes, N if codes is None else codes.n_labels, scaled=loss.scaled, biased=loss.biased)


def make(name: str, book: str | None) -> tuple[Scorer, Codebook | None]:
    """The scorer of a loss, with random numbers added to what it learns, and its codebook."""
    codes = None if book is None else BOOKS[book](N, DIM, seed=1)
    scorer = scorer_for(name, codes)
    with torch.no_grad():
        for position, parameter in enumerate(scorer.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(position)))
    return scorer, codes
