from __future__ import annotations

import math

import pytest
import torch

from circlet.algebra import holographic
from circlet.codebooks import HolographicCodebook

pytestmark = pytest.mark.usefixtures("one_thread")


class TestHolographic:
    @pytest.mark.parametrize("dim", [1, 2, 7, 64])
    def test_projected_codes_have_a_unit_spectrum(self, dim):
        codes = HolographicCodebook(100, dim).codes(torch.arange(100))
        magnitude = torch.fft.rfft(codes).abs()
        torch.testing.assert_close(magnitude, torch.ones_like(magnitude))
        torch.testing.assert_close(codes.norm(dim=1), torch.ones(100))

    @pytest.mark.parametrize("dim", [31, 32])
    def test_plain_codes_are_normal_with_variance_one_over_dim(self, dim):
        codes = HolographicCodebook(5000, dim, seed=1, projected=False).codes(torch.arange(5000)).double()
        scaled = codes * math.sqrt(dim)
        # 5,000 draws in each dimension: a standard error of 0.014 for the mean and 0.02 for the variance.
        assert scaled.mean(0).abs().max() < 0.06
        assert (scaled.var(0) - 1).abs().max() < 0.09
        for bound, probability in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
            assert (scaled.abs() < bound).double().mean().item() == pytest.approx(probability, abs=0.004)
        # The two numbers that Box and Muller make of one pair are independent.
        correlation = torch.corrcoef(scaled.T).fill_diagonal_(0)
        assert correlation.abs().max() < 0.07

    def test_box_and_muller_by_hand(self, pinned):
        first, second, third, fourth = (number * 2**-24 for number in pinned[0][0])
        radius = [math.sqrt(-2 * math.log(1 - number)) for number in (first, second)]
        angle = [2 * math.pi * number for number in (third, fourth)]
        expected = [radius[0] * math.cos(angle[0]), radius[1] * math.cos(angle[1]), radius[0] * math.sin(angle[0])]
        code = HolographicCodebook(5, 3, seed=0, projected=False).codes(torch.tensor([0]))[0]
        assert code.tolist() == pytest.approx([value / math.sqrt(3) for value in expected], abs=1e-6)

    @pytest.mark.parametrize("projected", [True, False])
    def test_scores_are_cosines(self, projected, predictions):
        book = HolographicCodebook(50, 16, projected=projected)
        predicted = predictions(book, 3)
        expected = holographic.similarity(predicted[:, None], book.codes(torch.arange(50)), cosine=True)
        torch.testing.assert_close(book.scores(predicted), expected)

    def test_projection_keeps_the_label(self):
        ids = torch.arange(20)
        plain = HolographicCodebook(20, 16, projected=False).codes(ids)
        torch.testing.assert_close(HolographicCodebook(20, 16).codes(ids), holographic.project(plain))

    def test_state_says_whether_codes_are_projected(self):
        for projected in (True, False):
            assert HolographicCodebook(20, 16, projected=projected).state()["projected"] is projected
