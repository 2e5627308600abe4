from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.runtime.explain import CHORDS, mean_slopes
from circlet.runtime.network import HEADS
from circlet.settings.network import HEADS as KINDS

pytestmark = pytest.mark.usefixtures("one_thread")


class Outputs:
    """A layer whose outputs are given."""

    def __call__(self, rows):
        return rows.copy()


def scored(head: str, outputs: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Scores as the runtime's own head gives them."""
    if head == "chrr-half":
        head = "chrr"  # the two differ only in their layers
    return vectors @ HEADS[head](outputs, {"output": Outputs()}).T


def made(head: str, seed: int, dim: int, n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    outputs = dim if head in ("chrr-sin", "chrr-tanh", "hrr", "fc") else 2 * dim
    width = dim if KINDS[head] in ("real", None) else 2 * dim
    starts, ends = random.normal(size=(2, n, outputs)) * random.choice([0.1, 1, 5])
    return starts, ends - starts, random.normal(size=(2, width))


def test_the_same_names_as_heads():
    assert list(CHORDS) == list(HEADS)


@pytest.mark.parametrize("head", CHORDS)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 9))
def test_steps_along_chords_are_differences_of_scores(head, seed, dim):
    starts, differences, vectors = made(head, seed, dim)
    before, after = (scored(head, each, vectors) for each in (starts, starts + differences))
    np.testing.assert_allclose(CHORDS[head].scores(starts, vectors), before, atol=1e-6)
    gradients = CHORDS[head].gradients(starts, differences, vectors)
    assert gradients.shape == (2, *starts.shape)
    np.testing.assert_allclose((gradients * differences).sum(axis=2), after - before, atol=1e-6)


@pytest.mark.parametrize("head", CHORDS)
@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-9, 0.0])
def test_mean_gradients_are_those_of_torch(head, length):
    starts, differences, vectors = made(head, 1, 5)
    differences *= length
    t = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for i in range(3):
        along = torch.from_numpy(starts[i]) + t[:, None] * torch.from_numpy(differences[i])
        along.requires_grad_()
        for label in range(2):
            code = code_in_torch(head, along)
            total = (code @ torch.from_numpy(vectors[label])).mean()
            (wanted,) = torch.autograd.grad(total, along)
            found = CHORDS[head].gradients(starts, differences, vectors)[label, i]
            np.testing.assert_allclose(found, wanted.sum(0).numpy(), atol=2e-6)


def code_in_torch(head: str, outputs: torch.Tensor) -> torch.Tensor:
    if head in ("chrr", "chrr-half"):
        x, y = outputs.chunk(2, dim=-1)
        scale = torch.rsqrt(x * x + y * y + 1e-12)
        return torch.cat([x * scale, y * scale], dim=-1)
    if head in ("chrr-sin", "chrr-tanh"):
        theta = math.pi * (outputs.sin() if head == "chrr-sin" else outputs.tanh())
        return torch.cat([theta.cos(), theta.sin()], dim=-1)
    if head == "fc":
        return outputs
    unit = torch.nn.functional.normalize(outputs, dim=-1)
    return unit * math.sqrt(outputs.shape[-1] / 2) if head == "chrr-amplitude" else unit


@pytest.mark.parametrize("head", ["chrr", "chrr-amplitude", "hrr"])
def test_through_the_origin_and_away_from_it(head):
    """Nothing is divided by zero, and differences of scores are still right."""
    ends = np.array([[3.0, 4.0], [1e-30, 0.0], [0.0, 0.0]])
    for starts in (np.zeros((3, 2)), -ends, ends / 2):
        vectors = np.eye(2)
        gradients = CHORDS[head].gradients(starts, ends - starts, vectors)
        assert np.isfinite(gradients).all()
        risen = CHORDS[head].scores(ends, vectors) - CHORDS[head].scores(starts, vectors)
        np.testing.assert_allclose((gradients * (ends - starts)).sum(axis=2), risen, atol=1e-9)


def test_mean_slopes_by_hand():
    starts, ends = np.array([1.0, -1.0, -1.0, 3.0, 0.0, 2.0, -2.0, 0.0]), np.array([2.0, -2, 3, -1, 0, 0, 0, -1])
    assert mean_slopes(starts, ends, 0.0).tolist() == [1, 0, 0.75, 0.75, 0, 1, 0, 0]
    np.testing.assert_allclose(mean_slopes(starts, ends, 0.2), [1, 0.2, 0.8, 0.8, 0.2, 1, 0.2, 0.2])
    # The slope of the absolute value.
    np.testing.assert_allclose(mean_slopes(starts, ends, -1.0), [1, -1, 0.5, 0.5, -1, 1, -1, -1])
