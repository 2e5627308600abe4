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


class TestByHand:
    def test_bind_adds_and_unbind_subtracts(self):
        assert same_direction(circular.bind(radians(30, 170), radians(60, 20)), radians(90, -170))
        assert same_direction(circular.unbind(radians(30, -170), radians(60, 20)), radians(-30, 170))

    def test_inverse_negates(self):
        assert torch.equal(circular.inverse(radians(30, -45)), radians(-30, 45))

    def test_superposition_of_two_is_the_bisector(self):
        x = torch.stack([radians(0, 100), radians(90, 160)])
        assert torch.allclose(circular.superpose(x), radians(45, 130))

    def test_superposition_across_the_cut_at_pi(self):
        x = torch.stack([radians(170), radians(-170)])
        assert same_direction(circular.superpose(x), radians(180))

    def test_weighted_superposition(self):
        # 3 along x, √3 along y: the angle whose tangent is 1/√3.
        x = torch.stack([radians(0), radians(90)])
        weights = torch.tensor([3.0, math.sqrt(3)], dtype=torch.float64)
        assert torch.allclose(circular.superpose(x, weights), radians(30))

    def test_phasors_that_cancel_give_zero_and_a_finite_gradient(self):
        x = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
        angle = circular.superpose(x, weights=torch.tensor([1.0, -1.0], dtype=torch.float64))
        assert angle.item() == 0
        angle.backward()
        assert torch.isfinite(x.grad).all()

    def test_similarity(self):
        assert circular.similarity(radians(0, 0), radians(60, 180)).item() == pytest.approx(-0.25)

    def test_pack_and_unpack(self):
        packed = circular.pack(radians(0, 90, 180))
        assert torch.allclose(packed, torch.tensor([1.0, 0, -1, 0, 1, 0], dtype=torch.float64), atol=1e-12)
        assert torch.allclose(circular.unpack(5 * packed), radians(0, 90, 180))

    def test_unpack_gives_pi_for_a_negative_zero_sine(self):
        assert circular.unpack(torch.tensor([-1.0, -0.0])).item() == pytest.approx(PI)

    def test_wrap(self):
        wrapped = circular.wrap(radians(0, 180, -180, 190, 540, -3610))
        assert torch.allclose(wrapped, radians(0, 180, 180, -170, 180, -10))


class TestProperties:
    @given(angles(2))
    def test_unbinding_undoes_binding(self, x):
        a, b = x
        assert same_direction(circular.unbind(circular.bind(a, b), b), a)
        assert same_direction(circular.bind(circular.bind(a, b), circular.inverse(b)), a)

    @given(angles(3))
    def test_binding_commutes_and_associates(self, x):
        a, b, c = x
        assert same_direction(circular.bind(a, b), circular.bind(b, a))
        left, right = circular.bind(circular.bind(a, b), c), circular.bind(a, circular.bind(b, c))
        assert same_direction(left, right)

    @given(angles(3), st.integers(-3, 3))
    def test_whole_turns_change_nothing(self, x, turns):
        a, b = x[0], x[1]
        turned = a + 2 * PI * turns
        assert same_direction(circular.bind(turned, b), circular.bind(a, b))
        assert torch.allclose(circular.similarity(turned, b), circular.similarity(a, b), atol=1e-9)
        assert torch.allclose(circular.pack(turned), circular.pack(a), atol=1e-9)
        sums = [circular.pack(stack).sum(0) for stack in (x, x + 2 * PI * turns)]
        assert torch.allclose(*sums, atol=1e-9)

    @given(angles(3))
    def test_every_result_has_unit_modulus(self, x):
        a, b, _ = x
        for result in (
            circular.bind(a, b),
            circular.unbind(a, b),
            circular.inverse(a),
            circular.superpose(x),
        ):
            cos, sin = circular.pack(result).chunk(2, dim=-1)
            assert torch.allclose(cos**2 + sin**2, torch.ones_like(cos))

    @given(angles(2))
    def test_packed_similarity_is_angle_similarity(self, x):
        a, b = x
        packed = circular.pack(a) @ circular.pack(b) / a.shape[-1]
        assert torch.allclose(circular.similarity(a, b), packed, atol=1e-12)

    @given(angles(5), st.permutations(range(5)))
    def test_superposition_order_does_not_matter(self, x, order):
        # Compared as sums: where they nearly cancel, rounding decides the angle.
        assert torch.allclose(circular.pack(x).sum(0), circular.pack(x[list(order)]).sum(0), atol=1e-12)
        magnitude = circular.pack(x).sum(0).view(2, -1).norm(dim=0)
        a, b = circular.pack(circular.superpose(x)), circular.pack(circular.superpose(x[list(order)]))
        assert torch.allclose((a - b).view(2, -1) * magnitude, torch.zeros(1, dtype=a.dtype), atol=1e-9)

    @given(angles(1))
    def test_wrap_and_unpack_agree(self, x):
        wrapped = circular.wrap(x)
        assert ((wrapped > -PI - 1e-12) & (wrapped <= PI + 1e-12)).all()
        assert same_direction(wrapped, circular.unpack(circular.pack(x)))


class TestRandom:
    def test_uniform_in_the_half_open_interval(self):
        theta = circular.random(1000, 100, generator=0, dtype=torch.float64)
        assert theta.min() > -PI
        assert theta.max() <= PI
        counts = torch.histc(theta, bins=10, min=-PI, max=PI)
        # 10,000 expected per bin with standard deviation 95.
        assert (counts - 10_000).abs().max() < 500

    def test_bfloat16_is_drawn_finely_and_then_rounded(self):
        coarse = circular.random(2, 1000, generator=0, dtype=torch.bfloat16)
        assert torch.equal(coarse, circular.random(2, 1000, generator=0).bfloat16())


class TestAgainstTheory:
    """Mean similarity of a superposition of k random vectors to those in it."""

    @pytest.mark.parametrize(("k", "expected"), [(1, 1.0), (2, 2 / PI), (3, 1.5745972 / 3)])
    def test_small_k(self, k, expected):
        assert self.mean_similarity(k) == pytest.approx(expected, abs=2e-3)

    def test_large_k(self):
        assert self.mean_similarity(200) == pytest.approx(math.sqrt(PI) / (2 * math.sqrt(200)), rel=5e-3)

    @staticmethod
    def mean_similarity(k: int) -> float:
        x = circular.random((10, k), 20_000, generator=k, dtype=torch.float32)
        return circular.similarity(circular.superpose(x).unsqueeze(1), x).mean().item()


def test_unpack_needs_an_even_dimension():
    with pytest.raises(ShapeError, match="found last dimension 3; wanted an even one"):
        circular.unpack(torch.zeros(3))


def test_nothing_cannot_be_superposed():
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
