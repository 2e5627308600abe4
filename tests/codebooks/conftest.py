"""What the tests of the codebooks share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from circlet.algebra import circular
from circlet.codebooks import Codebook, HolographicCodebook

#: Makes what a codebook is given of an array: with each, the results must be the same.
GIVEN = {"arrays": np.asarray, "tensors": torch.as_tensor}


@pytest.fixture(params=GIVEN)
def given_as(request: pytest.FixtureRequest) -> Callable[..., object]:
    return GIVEN[request.param]


def predictions(book: Codebook, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Make what a head puts out: packed phasors, or vectors of norm 1."""
    random = torch.randn(n, book.width, generator=torch.Generator().manual_seed(n), dtype=dtype)
    real = isinstance(book, HolographicCodebook)
    return normalize(random, dim=1) if real else circular.pack(circular.unpack(random))


@pytest.fixture(scope="session", name="predictions")
def _predictions() -> Callable[..., torch.Tensor]:
    return predictions


@pytest.fixture(scope="session")
def similarities() -> Callable[..., torch.Tensor]:
    """Compute scores by their definition: one inner product with each label's code."""

    def compute(book: Codebook, predicted: torch.Tensor) -> torch.Tensor:
        codes = book.codes(torch.arange(book.n_labels)).to(predicted.dtype)
        real = isinstance(book, HolographicCodebook)
        return predicted @ (normalize(codes, dim=1) if real else codes / book.dim).mT

    return compute
