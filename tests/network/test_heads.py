from __future__ import annotations

import math

import pytest
import torch

from circlet.algebra import circular
from circlet.network.network import Head
from circlet.scoring.heads import HEADS

CIRCULAR = ["chrr", "chrr-half", "chrr-sin", "chrr-tanh"]
# EURLex-4K as the paper trains it: hidden width, labels, dimension.
H, L, D = 768, 3993, 800


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hidden(n: int = 7, width: int = 8) -> torch.Tensor:
    return torch.relu(torch.randn(n, width, generator=seeded(5)))


def modulus(phasors: torch.Tensor) -> torch.Tensor:
    return torch.hypot(*phasors.chunk(2, dim=-1))


class TestEveryHead:
    @pytest.mark.parametrize("name", CIRCULAR)
    def test_circular_heads_put_every_pair_on_the_unit_circle(self, name):
        out = Head(name, 8, 5, generator=seeded())(hidden())
        torch.testing.assert_close(modulus(out), torch.ones(7, 5))

    def test_amplitudes_are_chrr_up_to_each_pairs_length(self):
        made = [Head(name, 8, 5, generator=seeded())(hidden()) for name in ("chrr", "chrr-amplitude")]
        phasors, pairs = made
        torch.testing.assert_close(pairs / modulus(pairs).repeat(1, 2), phasors)

    @pytest.mark.parametrize("name", HEADS)
    @pytest.mark.parametrize("what", ["weights", "hidden"])
    def test_at_zero_the_gradient_is_finite(self, name, what):
        head, x = Head(name, 8, 5, generator=seeded()), hidden()
        if what == "weights":
            for parameter in head.parameters():
                parameter.detach().zero_()
        else:
            x = torch.zeros_like(x)
        x.requires_grad_()
        out = head(x)
        assert torch.isfinite(out).all()
        (out * torch.randn(out.shape, generator=seeded(2))).sum().backward()
        assert torch.isfinite(x.grad).all()
        for parameter in head.parameters():
            assert torch.isfinite(parameter.grad).all()

    @pytest.mark.parametrize("name", HEADS)
    @pytest.mark.parametrize("scale", [1e-15, 1e-3, 1e3, 1e15])
    def test_outputs_of_any_size_stay_finite(self, name, scale):
        head, x = Head(name, 8, 5, generator=seeded()), (hidden() * scale).requires_grad_()
        out = head(x)
        out.sum().backward()
        assert torch.isfinite(out).all()
        assert torch.isfinite(x.grad).all()

    @pytest.mark.parametrize("name", HEADS)
    def test_gradient_by_finite_differences(self, name, monkeypatch):
        # Heads compute norms in float32, too coarse for differences: here in doubles.
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        head = Head(name, 8, 3, generator=seeded()).double()
        x = torch.randn(2, 8, generator=seeded(1), dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(head, (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HEADS)
class TestReducedPrecision:
    def test_is_finite_and_normalized_exactly(self, name, dtype):
        head, x = Head(name, 64, 50, generator=seeded()), hidden(5, 64).requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            out = head(x)
        assert out.dtype == torch.float32
        out.pow(3).mean().backward()
        assert torch.isfinite(out).all()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())
        # The product is rounded, the normalization is not.
        if name in CIRCULAR:
            torch.testing.assert_close(modulus(out), torch.ones(5, 50))
        elif name == "hrr":
            torch.testing.assert_close(out.norm(dim=1), torch.ones(5))
        torch.testing.assert_close(out, head(x), atol=0.15, rtol=0.1)

    def test_small_numbers_do_not_vanish(self, name, dtype):
        # In float16 the squares of such numbers have one or two digits left, or none.
        head, x = Head(name, 64, 50, generator=seeded()), hidden(5, 64) * 3e-4
        with torch.autocast("cpu", dtype=dtype):
            out = head(x)
        if name in CIRCULAR:
            torch.testing.assert_close(modulus(out), torch.ones(5, 50), atol=1e-2, rtol=0)
        elif name == "hrr":
            torch.testing.assert_close(out.norm(dim=1), torch.ones(5))


class TestEachHead:
    """Against the paper's formulas, from the head's own weights."""

    def raw(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        head = Head(name, 8, 5, generator=seeded())
        return hidden() @ head.output.weight.mT + head.output.bias, head(hidden())

    def test_chrr_is_the_angle_of_each_pair(self):
        raw, out = self.raw("chrr")
        theta = torch.atan2(raw[:, 5:], raw[:, :5])
        torch.testing.assert_close(circular.unpack(out), theta)

    def test_chrr_half_sees_half_the_hidden_units_in_each_coordinate(self):
        head = Head("chrr-half", 8, 5, generator=seeded())
        x = hidden()
        theta = torch.atan2(head.second(x[:, 4:]), head.output(x[:, :4]))
        torch.testing.assert_close(circular.unpack(head(x)), theta)

    @pytest.mark.parametrize(("name", "function"), [("chrr-sin", torch.sin), ("chrr-tanh", torch.tanh)])
    def test_chrr_sin_and_tanh_are_angles_up_to_pi(self, name, function):
        raw, out = self.raw(name)
        torch.testing.assert_close(circular.unpack(out), circular.wrap(math.pi * function(raw)))


class TestParameterCounts:
    """The paper's arithmetic: weights without biases."""

    @pytest.mark.parametrize(
        ("name", "weights"),
        [
            ("fc", H * L),
            ("chrr", H * 2 * D),
            *((name, H * D) for name in ("hrr", "chrr-half", "chrr-sin", "chrr-tanh")),
        ],
    )
    def test_of_the_head(self, name, weights):
        head = Head(name, H, L if name == "fc" else D, generator=seeded())
        biases = {"fc": L, "chrr": 2 * D, "chrr-half": 2 * D}.get(name, D)
        assert sum(p.numel() for p in head.parameters() if p.dim() > 1) == weights
        assert sum(p.numel() for p in head.parameters()) == weights + biases
