"""What the tests of the codebooks share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import normalize

from circlet.algebra import circular
from circlet.codebooks import Codebook, HolographicCodebook


@pytest.fixture(scope="session")
def predictions() -> Callable[..., torch.Tensor]:
    """Make what a head puts out: packed phasors, or vectors of norm 1."""

    def make(book: Codebook, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        random = torch.randn(n, book.width, generator=torch.Generator().manual_seed(n), dtype=dtype)
        real = isinstance(book, HolographicCodebook)
        return normalize(random, dim=1) if real else circular.pack(circular.unpack(random))

    return make


@pytest.fixture(scope="session")
def similarities() -> Callable[..., torch.Tensor]:
    """Compute scores by their definition: one inner product with each label's code."""

    def compute(book: Codebook, predicted: torch.Tensor) -> torch.Tensor:
        codes = book.codes(torch.arange(book.n_labels)).to(predicted.dtype)
        real = isinstance(book, HolographicCodebook)
        return predicted @ (normalize(codes, dim=1) if real else codes / book.dim).mT

    return compute


@pytest.fixture(scope="session")
def pinned() -> dict[int, list[list[int]]]:
    """Random numbers in units of 2⁻²⁴ by seed, of the rows 0, 1, 2 and 2⁴⁰; models depend on them."""
    return {
        0: [
            [14254383, 7111711, 1971737, 2782558],
            [11965807, 9230765, 1185127, 5687059],
            [8815382, 2381994, 12898954, 6578039],
            [1660735, 1378427, 2071765, 9165199],
        ],
        7: [
            [14088638, 776242, 3083917, 4412586],
            [1227477, 2244797, 2554225, 4228487],
            [14229219, 6584236, 9663232, 15587824],
            [2008284, 2708288, 9952916, 3119629],
        ],
    }
