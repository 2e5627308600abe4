"""Series with torch against their definition: the value at slot n is Σ_j Re(c_j e^{2πi f_j n / M})."""

from __future__ import annotations

import math

import pytest
import torch

from circlet.algebra import circular
from circlet.codebooks import fourier

FREQUENCIES = torch.tensor([1, 2, 5, 11])


def phasors(n: int, dim: int = len(FREQUENCIES)) -> torch.Tensor:
    angles = torch.rand(n, dim, generator=torch.Generator().manual_seed(n)) * 2 * math.pi
    return circular.pack(angles)


def defined(packed: torch.Tensor, frequencies: torch.Tensor, length: int) -> torch.Tensor:
    """Σ_j cos(2π f_j n / M − θ_j) at every slot, in float64."""
    turns = torch.arange(length)[:, None] * frequencies % length
    return (turns * (2 * math.pi / length) - circular.unpack(packed.double())[:, None]).cos().sum(dim=2)


def test_evaluate_by_hand():
    # One dimension of frequency 1 and angle 90° in 4 slots: cos(n · 90° − 90°). A transform counts both of a pair.
    spectrum = fourier.coefficients(circular.pack(torch.tensor([[math.pi / 2]])))
    values = fourier.evaluate(spectrum, torch.tensor([1]), 4) / 2
    torch.testing.assert_close(values, torch.tensor([[0.0, 1, 0, -1]]))


@pytest.mark.parametrize("length", [24, 30])
def test_evaluate_is_the_definition(length):
    packed = phasors(3)
    spectrum = fourier.coefficients(packed)
    expected = defined(packed, FREQUENCIES, length)
    room = torch.zeros(5, length // 2 + 1, dtype=spectrum.dtype)
    for rows, given in ((spectrum, []), (spectrum, [room]), (spectrum[:2], [room])):  # the room can be used again
        found = fourier.evaluate(rows, FREQUENCIES, length, *given) / 2
        torch.testing.assert_close(found.double(), expected[: len(rows)], rtol=0, atol=1e-5)


def test_project_is_the_transpose_of_evaluate():
    packed = phasors(3).double()
    weights = torch.randn(3, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = fourier.evaluate(fourier.coefficients(packed), FREQUENCIES, 24) / 2
    projected = fourier.project(weights, FREQUENCIES)
    torch.testing.assert_close((values * weights).sum(), (packed * projected).sum())
