from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.algebra import circular
from circlet.errors import ShapeError

PI = math.pi


def radians(*degrees: float) -> torch.Tensor:
    return torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))


def same_direction(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(circular.pack(a), circular.pack(b), atol=1e-9)


@st.composite
def angles(draw: st.DrawFn, vectors: int) -> torch.Tensor:
    dim = draw(st.integers(1, 8))
    value = st.floats(-10, 10, allow_nan=False)
    rows = draw(st.lists(st.lists(value, min_size=dim, max_size=dim), min_size=vectors, max_size=vectors))
    return torch.tensor(rows, dtype=torch.float64)


def test_binding_by_hand():
    assert same_direction(circular.bind(radians(30, 170), radians(60, 20)), radians(90, -170))
    assert same_direction(circular.unbind(radians(30, -170), radians(60, 20)), radians(-30, 170))
    assert torch.equal(circular.inverse(radians(30, -45)), radians(-30, 45))
    assert circular.similarity(radians(0, 0), radians(60, 180)).item() == pytest.approx(-0.25)


def test_superposition_by_hand():
    bisector = circular.superpose(torch.stack([radians(0, 100), radians(90, 160)]))
    assert torch.allclose(bisector, radians(45, 130))
    across_the_cut = circular.superpose(torch.stack([radians(170), radians(-170)]))
    assert same_direction(across_the_cut, radians(180))
    # 3 along x, √3 along y: the angle whose tangent is 1/√3.
    weights = torch.tensor([3.0, math.sqrt(3)], dtype=torch.float64)
    assert torch.allclose(circular.superpose(torch.stack([radians(0), radians(90)]), weights), radians(30))


def test_phasors_that_cancel_give_zero_and_a_finite_gradient():
    x = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    angle = circular.superpose(x, weights=torch.tensor([1.0, -1.0], dtype=torch.float64))
    assert angle.item() == 0
    angle.backward()
    assert torch.isfinite(x.grad).all()


def test_forms_of_angles_by_hand():
    packed = circular.pack(radians(0, 90, 180))
    assert torch.allclose(packed, torch.tensor([1.0, 0, -1, 0, 1, 0], dtype=torch.float64), atol=1e-12)
    assert torch.allclose(circular.unpack(5 * packed), radians(0, 90, 180))
    assert circular.unpack(torch.tensor([-1.0, -0.0])).item() == pytest.approx(PI)  # a negative zero sine
    wrapped = circular.wrap(radians(0, 180, -180, 190, 540, -3610))
    assert torch.allclose(wrapped, radians(0, 180, 180, -170, 180, -10))


@given(angles(2))
def test_unbinding_undoes_binding(x):
    a, b = x
    assert same_direction(circular.unbind(circular.bind(a, b), b), a)
    assert same_direction(circular.bind(circular.bind(a, b), circular.inverse(b)), a)


@given(angles(3))
def test_binding_commutes_and_associates(x):
    a, b, c = x
    assert same_direction(circular.bind(a, b), circular.bind(b, a))
    left, right = circular.bind(circular.bind(a, b), c), circular.bind(a, circular.bind(b, c))
    assert same_direction(left, right)


@given(angles(3), st.integers(-3, 3))
def test_whole_turns_change_nothing(x, turns):
    a, b = x[0], x[1]
    turned = a + 2 * PI * turns
    assert same_direction(circular.bind(turned, b), circular.bind(a, b))
    assert torch.allclose(circular.similarity(turned, b), circular.similarity(a, b), atol=1e-9)
    assert torch.allclose(circular.pack(turned), circular.pack(a), atol=1e-9)


@given(angles(2))
def test_packed_similarity_is_angle_similarity(x):
    a, b = x
    packed = circular.pack(a) @ circular.pack(b) / a.shape[-1]
    assert torch.allclose(circular.similarity(a, b), packed, atol=1e-12)


@given(angles(5), st.permutations(range(5)))
def test_superposition_order_does_not_matter(x, order):
    # Compared by their size: where phasors nearly cancel, rounding decides the angle.
    magnitude = circular.pack(x).sum(0).view(2, -1).norm(dim=0)
    a, b = circular.pack(circular.superpose(x)), circular.pack(circular.superpose(x[list(order)]))
    assert torch.allclose((a - b).view(2, -1) * magnitude, torch.zeros(1, dtype=a.dtype), atol=1e-9)


@given(angles(1))
def test_wrap_and_unpack_agree(x):
    wrapped = circular.wrap(x)
    assert ((wrapped > -PI - 1e-12) & (wrapped <= PI + 1e-12)).all()
    assert same_direction(wrapped, circular.unpack(circular.pack(x)))


def test_random_is_uniform_in_the_half_open_interval():
    theta = circular.random(1000, 100, generator=0, dtype=torch.float64)
    assert theta.min() > -PI
    assert theta.max() <= PI
    counts = torch.histc(theta, bins=10, min=-PI, max=PI)
    # 10,000 expected per bin with standard deviation 95.
    assert (counts - 10_000).abs().max() < 500


def test_bfloat16_is_drawn_finely_and_then_rounded():
    coarse = circular.random(2, 1000, generator=0, dtype=torch.bfloat16)
    assert torch.equal(coarse, circular.random(2, 1000, generator=0).bfloat16())


@pytest.mark.parametrize(
    ("k", "expected", "tolerance"),
    [(1, 1.0, 2e-3), (2, 2 / PI, 2e-3), (3, 1.5745972 / 3, 2e-3), (200, math.sqrt(PI / 200) / 2, 3e-4)],
)
def test_mean_similarity_of_a_superposition_to_its_vectors_is_that_of_theory(k, expected, tolerance):
    x = circular.random((10, k), 20_000, generator=k, dtype=torch.float32)
    found = circular.similarity(circular.superpose(x).unsqueeze(1), x).mean().item()
    assert found == pytest.approx(expected, abs=tolerance)


def test_bad_shapes():
    with pytest.raises(ShapeError, match="found last dimension 3; wanted an even one"):
        circular.unpack(torch.zeros(3))
    with pytest.raises(ShapeError, match="at least one vector"):
        circular.superpose(torch.zeros(2, 0, 4))


@given(st.integers(0, 2**32))
def test_agrees_with_torchhd_fhrr(seed):
    torchhd = pytest.importorskip("torchhd")

    def phasors(theta):
        return torch.polar(torch.ones_like(theta), theta).as_subclass(torchhd.FHRRTensor)

    def plain(tensor):
        return tensor.as_subclass(torch.Tensor)

    a, b, c = circular.random((3, 2), 16, generator=seed, dtype=torch.float64)
    za, zb = phasors(a), phasors(b)
    assert torch.allclose(plain(phasors(circular.bind(a, b))), plain(torchhd.bind(za, zb)))
    assert torch.allclose(plain(phasors(circular.inverse(a))), plain(torchhd.inverse(za)))
    stacked = torch.stack([a, b, c], dim=-2)
    bundle = plain(torchhd.multiset(phasors(stacked)))
    assert torch.allclose(plain(phasors(circular.superpose(stacked))), bundle / bundle.abs())
    theirs = plain(torchhd.cosine_similarity(za[0], zb[0]))
    assert torch.allclose(circular.similarity(a[0], b[0]), theirs.to(torch.float64), atol=1e-7)
