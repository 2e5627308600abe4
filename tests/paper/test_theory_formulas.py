from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.special import i0

from circlet_paper import theory_formulas as formulas
from circlet_paper.theory_formulas import Scores, angle_scores, sum_scores

CAPACITY = Path(__file__).parents[2] / "experiments/results/capacity.json"


def mean_exponential(t, order):
    """The mean of e^{t cos} over `order` evenly spaced angles."""
    return np.exp(np.outer(t, np.cos(2 * np.pi * np.arange(order) / order))).mean(1)


class TestBounds:
    def test_the_bessel_function_is_below_the_gaussian(self):
        t = np.linspace(-30, 30, 2001)
        assert (i0(t) <= np.exp(t**2 / 4)).all()

    @pytest.mark.parametrize("order", [4, 5, 6, 7, 9, 10, 15, 25, 125, 1000])
    def test_four_or_more_angles_are_below_the_same_gaussian(self, order):
        t = np.linspace(0, 30, 3001)
        assert (mean_exponential(t, order) <= np.exp(t**2 / 4) * (1 + 1e-12)).all()

    def test_two_and_three_angles_need_their_own_constants(self):
        t = np.linspace(0, 30, 3001)
        assert (mean_exponential(t, 2) <= np.exp(t**2 / 2)).all()
        assert (mean_exponential(t, 3) <= np.exp(9 * t**2 / 32)).all()
        assert (mean_exponential(t, 2) > np.exp(t**2 / 4)).any()
        assert (mean_exponential(t, 3) > np.exp(t**2 / 4)).any()

    @pytest.mark.parametrize("length", [12, 16, 18, 30])
    def test_leaving_out_frequencies_0_and_half_makes_it_smaller(self, length):
        t = np.linspace(0, 10, 101)
        for n in range(1, length // 2 + 1):
            values = np.cos(2 * np.pi * n * np.arange(1, length // 2) / length)
            assert (
                np.exp(np.outer(t, values)).mean(1) <= mean_exponential(t, length // math.gcd(n, length)) + 1e-9
            ).all()

    @pytest.mark.parametrize(("length", "dim"), [(16, 3), (18, 4), (20, 6), (24, 9)])
    def test_holds_for_every_difference_of_a_small_codebook(self, length, dim):
        """All choices of frequencies are listed, so that the probabilities are exact."""
        chosen = np.array(list(combinations(range(1, length // 2), dim)))
        for n in range(1, length // 2 + 1):
            kernel = np.cos(2 * np.pi * n * chosen / length).mean(1)
            for epsilon in np.linspace(0.05, 1, 20):
                bound = formulas.difference_tail(epsilon, dim, length, length // math.gcd(n, length))
                assert (kernel >= epsilon - 1e-12).mean() <= bound + 1e-12

    def test_by_hand(self):
        assert formulas.tail(0.1, 100) == pytest.approx(math.exp(-1))
        # Two labels are one pair.
        assert formulas.largest_independent(2, 100, math.exp(-4)) == pytest.approx(0.2)
        assert formulas.difference_tail(0.1, 100, 10**6, 2) == pytest.approx(math.exp(-0.5), rel=1e-3)
        # All frequencies but one: Serfling's bound is the smaller one.
        assert formulas.difference_tail(0.1, 100, 204, 204) == pytest.approx(math.exp(-1 / (2 * (1 - 99 / 101))))

    @pytest.mark.parametrize(("length", "dim", "delta"), [(1000, 256, 0.05), (10**6, 800, 0.01), (1080, 100, 0.1)])
    def test_the_largest_similarity_has_the_simple_form(self, length, dim, delta):
        """√(ln(M/δ)/d) is enough if δ ≥ 16/M."""
        found = formulas.largest_spectral(length, dim, delta)
        assert formulas.spectral_tail(found, dim, length) == pytest.approx(delta)
        assert found <= math.sqrt(math.log(length / delta) / dim)
        assert found < formulas.largest_independent(length, dim, delta)


class TestScores:
    def test_one_and_two_phasors(self):
        assert formulas.signal(1)[0] == pytest.approx(1)
        assert formulas.signal(2)[0] == pytest.approx(2 / math.pi)
        assert formulas.efficiency(2) == pytest.approx(8 / math.pi**2)
        # The sum of two bisects them: both have the same score.
        assert angle_scores(2, 100).correlation == pytest.approx(1, abs=1e-3)

    def test_the_limit_continues_the_integrals(self):
        last, first = formulas.signal(formulas.EXACT_K), formulas.signal(formulas.EXACT_K + 1)
        assert first[0] == pytest.approx(last[0] * math.sqrt(60 / 61), rel=1e-4)
        assert first[1] == pytest.approx(last[1], abs=3e-4)
        assert formulas.efficiency(10**6) == pytest.approx(math.pi / 4, rel=1e-5)

    @pytest.mark.parametrize(("length", "dim"), [(16, 3), (20, 9), (30, 7)])
    def test_sums_are_exact(self, length, dim):
        """Against all sets of three slots: the moments are those of a random set."""
        frequencies = 1 + np.random.default_rng(1).permutation(length // 2 - 1)[:dim]
        kernel = np.cos(2 * np.pi * np.outer(np.arange(length), frequencies) / length).mean(1)
        stored, absent = [], []
        for chosen in combinations(range(length), 3):
            scores = sum(kernel[(np.arange(length) - slot) % length] for slot in chosen)
            stored += list(scores[list(chosen)])
            absent += list(np.delete(scores, chosen))
        expected = sum_scores(3, dim, length)
        assert [np.mean(stored), np.var(stored)] == pytest.approx(expected[:2])
        assert [np.mean(absent), np.var(absent)] == pytest.approx(expected[2:4])

    def test_scores_of_angles_have_the_sum_and_the_mean_square_of_parseval(self):
        k, dim, length = 10, 128, 1000
        s = angle_scores(k, dim, length)
        assert k * s.stored_mean + (length - k) * s.absent_mean == pytest.approx(0, abs=1e-12)
        square = k * (s.stored_mean**2 + s.stored_variance) + (length - k) * (s.absent_mean**2 + s.absent_variance)
        assert square == pytest.approx(length / (2 * dim))
        # To first order in 1/M it is the factor of the page.
        factor = 1 - 2 * dim * formulas.efficiency(k) / length
        assert 2 * dim * s.absent_variance == pytest.approx(factor, abs=0.01)

    def test_distortion_of_spectral_codes_falls_on_other_slots(self):
        """Two stored slots: 3 s₁ − 2 s₂ has the mean score 2/5π, and 2 s₁ − s₂ has −2/3π."""
        random, length, dim, trials = np.random.default_rng(4), 4000, 200, 400
        found = []
        for _ in range(trials):
            frequencies = 1 + random.permutation(length // 2 - 1)[:dim]
            one, two = random.choice(length, size=2, replace=False)

            def code(slot, frequencies=frequencies):
                return np.exp(2j * np.pi * (slot * frequencies % length) / length)

            angles = np.exp(1j * np.angle(code(one) + code(two)))
            found.append([(angles.conj() * code(s)).real.mean() for s in (one, 3 * one - 2 * two, 2 * one - two)])
        expected = [2 / np.pi, 2 / (5 * np.pi), -2 / (3 * np.pi)]
        assert np.mean(found, axis=0) == pytest.approx(expected, abs=0.01)

    def test_long_codebooks_are_like_independent_codes(self):
        for scores in (angle_scores, sum_scores):
            assert scores(10, 100, 10**9) == pytest.approx(scores(10, 100), rel=1e-5, abs=1e-7)


class TestRetrieval:
    def test_one_label_against_one(self):
        """One stored and one absent label: P(failure) = Φ(−Δ/√(σ₁² + σ₂²))."""
        expected = 0.5 * math.erfc(0.9 / math.sqrt(0.25 + 0.36) / math.sqrt(2))
        scores = Scores(1.0, 0.25, 0.1, 0.36, 0.0)
        assert formulas.failure(scores, 1, 2) == pytest.approx(expected, rel=1e-4)
        assert formulas.retrieved(scores, 1, 2) == pytest.approx(1 - expected, rel=1e-4)

    @pytest.mark.parametrize("correlation", [0.0, 0.25, -0.06])
    def test_against_random_normal_numbers(self, correlation):
        random, k, n, trials = np.random.default_rng(3), 6, 40, 20_000
        scores = Scores(0.5, 0.04, 0.0, 0.05, correlation)
        covariance = 0.04 * (correlation + (1 - correlation) * np.eye(k))
        stored = random.multivariate_normal(np.full(k, 0.5), covariance, size=trials)
        absent = math.sqrt(0.05) * random.standard_normal((trials, n - k))
        both = np.concatenate([stored, absent], axis=1)
        hits = (np.argsort(-both, axis=1)[:, :k] < k).sum(1)
        assert formulas.retrieved(scores, k, n) == pytest.approx(hits.mean() / k, abs=0.005)
        assert formulas.failure(scores, k, n) == pytest.approx((hits < k).mean(), abs=0.015)

    def test_capacity_grows_with_dimensions_and_shrinks_with_labels(self):
        found = [formulas.capacity(dim, 1000, 0.05) for dim in (64, 128, 256, 512)]
        assert found == sorted(set(found))
        assert formulas.capacity(256, 10**6, 0.05) < formulas.capacity(256, 1000, 0.05)
        assert formulas.capacity(256, 1000, 0.05) < formulas.capacity(256, 1000, 0.05, angles=False)
        assert formulas.capacity(256, 1000, 0.05) < formulas.capacity(256, 1000, 0.05, 1000)

    @pytest.mark.parametrize("dim", [128, 512, 2048])
    def test_what_is_guaranteed_is_less_than_what_is_expected(self, dim):
        k = formulas.guaranteed(dim, 1000, 0.05)
        assert 0 < k <= formulas.capacity(dim, 1000, 0.05)
        assert formulas.failure(angle_scores(k, dim), k, 1000) < 0.05

    @pytest.mark.skipif(not CAPACITY.exists(), reason="not a source checkout")
    def test_predicts_the_committed_experiment(self):
        """The retrieval experiment: 5 repetitions each, so take the mean of 15 neighboring dimensions."""
        result = json.loads(CAPACITY.read_text(encoding="utf-8"))
        measured, dims = np.array(result["methods"]["chrr"]["mean"]), np.array(result["settings"]["dims"])
        gaps = []
        for dim in (64, 128, 256, 512):
            near = np.abs(dims - dim) <= 7
            for k in (5, 10, 20, 30, 40, 50):
                expected = 100 * formulas.retrieved(angle_scores(k, dim), k, result["settings"]["n_vectors"])
                gaps.append(measured[near, k - 1].mean() - expected)
        assert np.abs(gaps).max() < 2
        assert np.sqrt(np.mean(np.square(gaps))) < 0.8
