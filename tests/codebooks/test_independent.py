from __future__ import annotations

import math

import pytest
import torch

from circlet.algebra import circular, holographic
from circlet.codebooks import HolographicCodebook, IndependentCodebook, base
from circlet.errors import ParameterError


class TestIndependent:
    def test_pinned_angles(self, pinned):
        # Angles in units of 2π / 2²⁴, from −π. They must never change: models keep a seed, not the codes.
        book = IndependentCodebook(2**41, 4, seed=7)
        angles = circular.unpack(book.codes(torch.tensor([0, 2, 2**40])).double())
        expected = torch.tensor(pinned[7])[[0, 2, 3]].double() * 2**-24 * 2 * math.pi - math.pi
        torch.testing.assert_close(angles, expected, rtol=0, atol=1e-6)

    def test_each_dimension_is_uniform(self):
        codes = IndependentCodebook(20_000, 8, seed=1).codes(torch.arange(20_000))
        turns = (circular.unpack(codes) / (2 * math.pi) + 0.5).clamp(0, 1 - 1e-6)
        for column in turns.T:
            counts = torch.histc(column, bins=50, min=0, max=1)
            # 49 degrees of freedom: mean 49, standard deviation 9.9.
            assert 15 < ((counts - 400) ** 2 / 400).sum() < 95
        # Two dimensions suffice to tell all labels apart.
        assert len(codes[:, [0, 1, 8, 9]].unique(dim=0)) == 20_000

    def test_distinct_labels_are_unrelated(self):
        # A mean of dim cosines of uniform angles: mean 0, variance 1/2 / dim.
        codes = IndependentCodebook(1000, 64, seed=2).codes(torch.arange(1000))
        similarity = (codes @ codes.mT / 64)[tuple(torch.triu_indices(1000, 1000, offset=1))]
        assert abs(similarity.mean()) < 5e-4
        assert similarity.var().item() == pytest.approx(1 / 128, rel=0.02)

    def test_huge_ids(self):
        book = IndependentCodebook(2**62, 16)
        ids = torch.tensor([2**31, 2**32, 2**32 + 1, 2**40, 2**61 + 2**40, 0, 1])
        codes = book.codes(ids)
        gram = codes @ codes.mT / 16
        torch.testing.assert_close(gram.diagonal(), torch.ones(7))
        assert gram.fill_diagonal_(0).abs().max() < 0.8

    @pytest.fixture
    def generated(self, monkeypatch):
        """How many codes are generated at a time."""
        sizes, generate = [], IndependentCodebook._generate

        def record(self, ops, ids):
            sizes.append(len(ids))
            return generate(self, ops, ids)

        monkeypatch.setattr(IndependentCodebook, "_generate", record)
        return sizes

    def test_without_a_cache_no_table_is_built(self, generated, predictions):
        book = IndependentCodebook(200_000, 8)
        predicted = predictions(book, 2)
        scores = book.scores(predicted)
        assert book._table is None
        assert sum(generated) == 200_000
        most = max(generated)
        assert most * book.width <= base.BLOCK < 200_000 * book.width
        ids = torch.tensor([0, 99_999, most - 1, most, 199_999])
        torch.testing.assert_close(scores[:, ids], predicted @ book.codes(ids).mT / 8)

    def test_a_cache_is_generated_once_and_again_when_it_grows(self, generated, predictions):
        book = IndependentCodebook(50, 4, cache=True)
        assert book._table is None
        for _ in range(2):
            book.codes(torch.arange(50))
            book.scores(predictions(book, 2))
        assert generated == [50]
        book.grow(60)
        book.scores(predictions(book, 2))
        assert generated == [50, 60]


class TestPhases:
    @pytest.mark.parametrize("phases", [2, 4, 8])
    def test_angles_are_equidistant_and_all_occur(self, phases):
        book = IndependentCodebook(60, 30, seed=3, phases=phases)
        codes = book.codes(torch.arange(60))
        turns = circular.unpack(codes) / (2 * math.pi) * phases
        nearest = turns.round() - turns.round().min()
        torch.testing.assert_close(turns - turns.min(), nearest, atol=1e-5, rtol=0)
        assert torch.bincount(nearest.long().flatten() % phases).min() > 1800 / phases * 0.8

        assert book.state()["phases"] == phases
        assert torch.equal(IndependentCodebook(**book.state()).codes(torch.arange(60)), codes)

    def test_without_phases(self):
        assert "phases" not in IndependentCodebook(20, 6).state()
        with pytest.raises(ParameterError, match="`phases`: found 1; wanted an integer >= 2"):
            IndependentCodebook(20, 6, phases=1)


class TestHolographic:
    @pytest.mark.parametrize("dim", [1, 2, 7, 64])
    def test_projected_codes_have_a_unit_spectrum(self, dim):
        codes = HolographicCodebook(100, dim).codes(torch.arange(100))
        magnitude = torch.fft.rfft(codes).abs()
        torch.testing.assert_close(magnitude, torch.ones_like(magnitude))
        torch.testing.assert_close(codes.norm(dim=1), torch.ones(100))
        plain = HolographicCodebook(100, dim, projected=False).codes(torch.arange(100))
        torch.testing.assert_close(codes, holographic.project(plain))

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
