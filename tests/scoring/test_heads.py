from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.network.network import Head as Module
from circlet.scoring import arrays, tensors
from circlet.scoring.heads import HEADS


@pytest.mark.parametrize("name", HEADS)
def test_shapes_are_those_of_the_weights(name):
    module = Module(name, 12, 7, generator=None)
    weights = {f"{part}.weight": HEADS[name].shape(12, 7) for part in HEADS[name].parts}
    assert {key: each.shape for key, each in module.state_dict().items() if each.dim() > 1} == weights


def codes(name: str, outputs: list[list[float]], ops=arrays) -> np.ndarray:
    made = np.array(outputs, dtype=np.float32)
    return np.asarray(HEADS[name].code(ops, torch.from_numpy(made) if ops is tensors else made, made.shape[1]))


@pytest.mark.parametrize("ops", [arrays, tensors])
def test_by_hand(ops):
    # The pairs are (3, 4) and (0, 2).
    np.testing.assert_allclose(codes("chrr", [[3, 0, 4, 2]], ops), [[0.6, 0, 0.8, 1]], atol=1e-6)
    joint = np.array([[3, 0, 4, 2]]) / math.sqrt(29) * math.sqrt(2)
    np.testing.assert_allclose(codes("chrr-amplitude", [[3, 0, 4, 2]], ops), joint, atol=1e-6)
    np.testing.assert_allclose(codes("hrr", [[3, 0, 4, 2]], ops), joint / math.sqrt(2), atol=1e-6)
    assert codes("fc", [[3, 0, 4, 2]], ops).tolist() == [[3, 0, 4, 2]]
    half, quarter = math.asin(0.5), math.atanh(-0.25)
    np.testing.assert_allclose(codes("chrr-sin", [[half]], ops), [[0, 1]], atol=1e-6)
    np.testing.assert_allclose(codes("chrr-tanh", [[quarter]], ops), [[0.5**0.5, -(0.5**0.5)]], atol=1e-6)


@pytest.mark.parametrize("name", ["chrr", "chrr-amplitude", "hrr"])
@pytest.mark.parametrize("ops", [arrays, tensors])
def test_nothing_predicted_is_finite(name, ops):
    assert codes(name, [[0, 0]], ops).tolist() == [[0, 0]]


def made(head: str, seed: int, dim: int, n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random, row = np.random.default_rng(seed), HEADS[head]
    starts, ends = random.normal(size=(2, n, row.outputs * dim)) * random.choice([0.1, 1, 5])
    return starts, ends - starts, random.normal(size=(2, row.width * dim))


@pytest.mark.parametrize("head", HEADS)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 9))
def test_steps_along_lines_are_differences_of_scores(head, seed, dim):
    starts, differences, vectors = made(head, seed, dim)
    before, after = (HEADS[head].scores(each, vectors) for each in (starts, starts + differences))
    gradients = HEADS[head].gradients(starts, differences, vectors)
    assert gradients.shape == (2, *starts.shape)
    np.testing.assert_allclose((gradients * differences).sum(axis=2), after - before, atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-9, 0.0])
def test_mean_gradients_are_those_of_torch(head, length, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    starts, differences, vectors = made(head, 1, 5)
    differences *= length
    t = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for i in range(3):
        along = torch.from_numpy(starts[i]) + t[:, None] * torch.from_numpy(differences[i])
        along.requires_grad_()
        for label in range(2):
            code = HEADS[head].code(tensors, along, along.shape[1])
            total = (code @ torch.from_numpy(vectors[label])).mean()
            (wanted,) = torch.autograd.grad(total, along)
            found = HEADS[head].gradients(starts, differences, vectors)[label, i]
            np.testing.assert_allclose(found, wanted.sum(0).numpy(), atol=2e-6)


@pytest.mark.parametrize("head", ["chrr", "chrr-amplitude", "hrr"])
def test_through_the_origin_and_away_from_it(head):
    """Nothing is divided by zero, and differences of scores are still right."""
    ends = np.array([[3.0, 4.0], [1e-30, 0.0], [0.0, 0.0]])
    for starts in (np.zeros((3, 2)), -ends, ends / 2):
        vectors = np.eye(2)
        gradients = HEADS[head].gradients(starts, ends - starts, vectors)
        assert np.isfinite(gradients).all()
        risen = HEADS[head].scores(ends, vectors) - HEADS[head].scores(starts, vectors)
        np.testing.assert_allclose((gradients * (ends - starts)).sum(axis=2), risen, atol=1e-9)
