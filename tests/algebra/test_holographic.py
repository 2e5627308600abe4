from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.algebra import circular, holographic

seeds = st.integers(0, 2**32)
dims = st.integers(1, 33)


def vector(*components: float) -> torch.Tensor:
    return torch.tensor(components, dtype=torch.float64)


def draw(n: int, dim: int, seed: int, *, projected: bool) -> torch.Tensor:
    x = holographic.random(n, dim, generator=seed, dtype=torch.float64)
    return holographic.project(x) if projected else x


def test_binding_by_hand():
    # (1, 2, 3) ⊗ (4, 5, 6): each sum pairs indices that add up to 0, 1, 2 modulo 3.
    bound = holographic.bind(vector(1, 2, 3), vector(4, 5, 6))
    assert torch.allclose(bound, vector(1 * 4 + 2 * 6 + 3 * 5, 1 * 5 + 2 * 4 + 3 * 6, 1 * 6 + 2 * 5 + 3 * 4))
    # A shifted unit shifts, and its inverse shifts back.
    assert torch.allclose(holographic.bind(vector(1, 2, 3, 4), vector(0, 1, 0, 0)), vector(4, 1, 2, 3))
    assert torch.allclose(holographic.inverse(vector(0, 1, 0, 0)), vector(0, 0, 0, 1))
    # F(3, 1) = (4, 2); its reciprocal (1/4, 1/2) is F of (3/8, −1/8).
    assert torch.allclose(holographic.inverse(vector(3, 1)), vector(3 / 8, -1 / 8))


def test_projection_by_hand():
    # F(1, 3) = (4, −2), projected to (1, −1), which is F of (0, 1).
    assert torch.allclose(holographic.project(vector(1, 3)), vector(0, 1))
    # F(1, 1) = (2, 0): the zero becomes 1, and (1, 1) is F of (1, 0).
    x = vector(1, 1).requires_grad_()
    projected = holographic.project(x)
    assert torch.allclose(projected, vector(1, 0))
    projected.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_superposition_by_hand():
    x = torch.stack([vector(1, 2), vector(3, 4)])
    assert torch.allclose(holographic.superpose(x), vector(4, 6))
    assert torch.allclose(holographic.superpose(x, weights=vector(2, -1)), vector(-1, 0))
    assert torch.equal(holographic.superpose(torch.zeros(0, 2)), torch.zeros(2))


def test_similarity_by_hand():
    a, b = vector(3, 4), vector(4, 3)
    assert holographic.similarity(a, b).item() == 24
    assert holographic.similarity(a, b, cosine=True).item() == pytest.approx(24 / 25)
    assert holographic.similarity(a, 0 * b, cosine=True).item() == 0


@pytest.mark.parametrize("projected", [True, False])
@given(seed=seeds, dim=dims)
def test_unbinding_undoes_binding(projected, seed, dim):
    a, b = draw(2, dim, seed, projected=projected)
    # Plain vectors can have a small Fourier coefficient, and dividing by it costs digits.
    smallest = torch.fft.rfft(b).abs().min().item()
    tolerance = 1e-13 * dim / min(smallest, 1) ** 2
    bound = holographic.bind(a, b)
    assert torch.allclose(holographic.unbind(bound, b), a, atol=tolerance)
    assert torch.allclose(holographic.bind(bound, holographic.inverse(b)), a, atol=tolerance)


@pytest.mark.parametrize("projected", [True, False])
@given(seed=seeds, dim=dims)
def test_binding_commutes_and_associates(projected, seed, dim):
    a, b, c = draw(3, dim, seed, projected=projected)
    assert torch.allclose(holographic.bind(a, b), holographic.bind(b, a))
    left = holographic.bind(holographic.bind(a, b), c)
    assert torch.allclose(left, holographic.bind(a, holographic.bind(b, c)))


@given(seed=seeds, dim=dims)
def test_projected_vectors_have_unit_coefficients_and_are_closed_under_binding(seed, dim):
    a, b = x = draw(2, dim, seed, projected=True)
    assert torch.allclose(torch.fft.fft(x).abs(), torch.ones(dim, dtype=torch.float64))
    assert torch.allclose(x.norm(dim=-1), torch.ones(2, dtype=torch.float64))
    for each in (x, holographic.bind(a, b), holographic.unbind(a, b), holographic.inverse(a)):
        assert torch.allclose(holographic.project(each), each)


@given(seed=seeds, dim=st.integers(3, 33).filter(lambda dim: dim % 2))
def test_spectra_of_projected_vectors_are_circular_vectors(seed, dim):
    """Binding real vectors adds the angles of their spectra: HRR with projection is CHRR inside."""
    a, b = draw(2, dim, seed, projected=True)

    def angles(x):
        return torch.fft.rfft(x).angle()[1:]

    bound = angles(holographic.bind(a, b))
    assert torch.allclose(circular.pack(bound), circular.pack(circular.bind(angles(a), angles(b))))


def test_random_has_the_papers_distribution():
    x = holographic.random(2000, 50, generator=0, dtype=torch.float64)
    assert x.mean().item() == pytest.approx(0, abs=2e-3)
    assert x.var().item() == pytest.approx(1 / 50, rel=0.02)
    assert x.norm(dim=-1).square().mean().item() == pytest.approx(1, rel=0.02)


def test_projection_gradient():
    x = holographic.random(2, 5, generator=0, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(holographic.project, x)
    assert torch.autograd.gradcheck(lambda x: holographic.similarity(x[0], x[1], cosine=True), x)


@pytest.mark.parametrize("projected", [True, False])
def test_a_stored_vector_is_found_and_another_is_not(projected):
    p, *c, other = draw(7, 4096, 0, projected=projected)
    memory = holographic.superpose(holographic.bind(p, torch.stack(c)))
    decoded = holographic.unbind(memory, p)
    assert holographic.similarity(decoded, c[0]).item() == pytest.approx(1, abs=0.2)
    assert abs(holographic.similarity(decoded, other).item()) < 5 * math.sqrt(5 / 4096)


@given(seeds)
def test_agrees_with_torchhd_hrr(seed):
    torchhd = pytest.importorskip("torchhd")
    a, b = holographic.random((2, 3), 16, generator=seed, dtype=torch.float64)
    ha, hb = a.as_subclass(torchhd.HRRTensor), b.as_subclass(torchhd.HRRTensor)

    def plain(tensor):
        return tensor.as_subclass(torch.Tensor)

    assert torch.allclose(holographic.bind(a, b), plain(torchhd.bind(ha, hb)))
    assert torch.allclose(holographic.superpose(a), plain(torchhd.multiset(ha)))
    # theirs is named exact_inverse, and stays complex
    inverse = plain(ha.exact_inverse()).real
    assert torch.allclose(holographic.inverse(a), inverse)
    dot = torch.stack([plain(torchhd.dot_similarity(x, y)) for x, y in zip(ha, hb, strict=True)])
    assert torch.allclose(holographic.similarity(a, b), dot)
    cosine = torch.stack([plain(torchhd.cosine_similarity(x, y)) for x, y in zip(ha, hb, strict=True)])
    assert torch.allclose(holographic.similarity(a, b, cosine=True), cosine, atol=1e-7)
