from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.network.ensemble import mean_log_odds as torch_mean_log_odds
from circlet.runtime.codebooks import CODEBOOKS
from circlet.runtime.scorers import Ensemble, Gain, Scorer, mean_log_odds, top_k_by_gain


def scorer(bias: bool = True) -> Scorer:
    book = CODEBOOKS["spectral"](7, 4, length=10)
    return Scorer(book, 7, 3.0, np.arange(7, dtype=np.float32) if bias else None)


def output(n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 8)).astype(np.float32)


class TestScorer:
    @pytest.mark.parametrize("bias", [True, False])
    def test_scale_and_bias(self, bias):
        own = scorer(bias)
        expected = 3 * own.codebook.scores(output()) + (np.arange(7) if bias else 0)
        np.testing.assert_allclose(own.logits(output()), expected, atol=1e-5)
        ids, scores = own.top_k(output(), 7)
        np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), atol=1e-5)

    def test_offsets_are_added_and_do_not_stay(self):
        own, offsets = scorer(), np.array([99, 0, 0, 0, 0, 0, 0], dtype=np.float32)
        plain = own.top_k(output(), 3)
        assert (own.top_k(output(), 1, offsets=offsets)[0] == 0).all()
        assert (own.top_k(output(), 1, offsets=offsets[::-1].copy())[0] == 6).all()
        np.testing.assert_array_equal(own.top_k(output(), 3)[0], plain[0])

    def test_no_codes(self):
        own = Scorer(None, 3, 1.0, None)
        logits = np.array([[1, 3, 2]], dtype=np.float32)
        assert own.logits(logits) is logits
        ids, scores = own.top_k(logits, 2, allowed=np.array([True, False, True]), threshold=1.5)
        assert ids.tolist() == [[2, -1]]
        assert scores.tolist() == [[2, -math.inf]]
        assert own.top_k(logits, 1, offsets=np.array([9, 0, 0], dtype=np.float32))[0].tolist() == [[0]]

    @pytest.mark.parametrize(("n", "k", "shape"), [(0, 3, (0, 3)), (3, 0, (3, 0)), (2, 99, (2, 7))])
    def test_shapes(self, n, k, shape):
        ids, scores = scorer().top_k(output(n), k)
        assert ids.shape == scores.shape == shape

    def test_memory_changes_nothing(self):
        wanted, found = scorer().top_k(output(9), 3), scorer().top_k(output(9), 3, memory=1)
        np.testing.assert_array_equal(found[0], wanted[0])
        # One row is transformed by NumPy and many by SciPy, whose last digits may differ.
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)


class TestEnsemble:
    def test_by_hand(self):
        # Probabilities of 0.2 and 0.6 have the mean 0.4.
        given_logits = [np.array([[math.log(p / (1 - p))]], dtype=np.float32) for p in (0.2, 0.6)]
        assert mean_log_odds(given_logits)[0, 0] == pytest.approx(math.log(0.4 / 0.6))

    @given(
        st.lists(
            arrays.arrays(np.float32, (2, 5), elements=st.floats(-200, 200, width=32)), min_size=1, max_size=4
        )
    )
    def test_like_torch(self, logits):
        expected = torch_mean_log_odds(torch.from_numpy(each) for each in logits).numpy()
        np.testing.assert_allclose(mean_log_odds(logits), expected, rtol=1e-5, atol=1e-5)

    def test_a_single_network_is_used_as_it_is(self):
        one, own = Ensemble([scorer()], [(2.0, 1.0)]), scorer()
        np.testing.assert_array_equal(one.logits([output()]), own.logits(output()))
        for found, wanted in zip(one.top_k([output()], 3), own.top_k(output(), 3), strict=True):
            np.testing.assert_array_equal(found, wanted)

    def test_curves(self):
        both = Ensemble([Scorer(None, 2, 1.0, None)] * 2, [(2.0, 1.0), (0.5, 0.0)])
        outputs = [np.array([[1.0, -1.0]], dtype=np.float32), np.array([[4.0, 2.0]], dtype=np.float32)]
        chances = [
            1 / (1 + np.exp(-(a * each + b))) for each, (a, b) in zip(outputs, both.calibrations, strict=True)
        ]
        mean = sum(chances) / 2
        np.testing.assert_allclose(both.logits(outputs), np.log(mean / (1 - mean)), rtol=1e-5)
        ids, scores = both.top_k(outputs, 2, allowed=np.array([False, True]))
        assert ids.tolist() == [[1, -1]]
        assert scores[0, 0] == pytest.approx(math.log(mean[0, 1] / (1 - mean[0, 1])), rel=1e-5)
        assert both.top_k([each[:0] for each in outputs], 1)[0].shape == (0, 1)


def by_sorting(scores, gain, k, allowed=None, threshold=None):
    """All gains, sorted."""
    gains = gain.log_probabilities(scores.astype(np.float64)) + gain.log_weights
    if allowed is not None:
        gains = np.where(allowed, gains, -np.inf)
    if threshold is not None:
        gains = np.where(scores < threshold, -np.inf, gains)
    order = np.argsort(-gains, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(gains, order, axis=1)
    return np.where(best == -np.inf, -1, order), best


def test_by_hand():
    # Probabilities 0.8, 0.5 and 0.2 with the weights 1, 1 and 5: gains of 0.8, 0.5 and 1.
    scores = np.array([[math.log(4), 0, -math.log(4)]], dtype=np.float32)
    gain = Gain(1.0, 0.0, np.log([1.0, 1.0, 5.0]))
    np.testing.assert_allclose(gain.weights, [1, 1, 5])
    ids, found = top_k_by_gain(Ensemble([Scorer(None, 3, 1.0, None)], [(1.0, 0.0)]), [scores], 2, gain)
    assert ids.tolist() == [[2, 0]]
    np.testing.assert_allclose(found, [[-math.log(4), math.log(4)]], rtol=1e-6)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(0, 4),
    m=st.integers(1, 300),
    k=st.integers(1, 12),
    slope=st.floats(0.1, 5),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
    masked=st.booleans(),
    threshold=st.none() | st.floats(-2, 2),
    memory=st.sampled_from([None, 1, 20_000]),
)
def test_like_sorting(seed, n, m, k, slope, spread, masked, threshold, memory):
    random = np.random.default_rng(seed)
    scores = random.standard_normal((n, m)).astype(np.float32)
    gain = Gain(slope, 0.3, spread * random.random(m))
    allowed = random.random(m) < 0.5 if masked else None
    options = {"allowed": allowed, "threshold": threshold}
    ids, found = top_k_by_gain(
        Ensemble([Scorer(None, m, 1.0, None)], [(1.0, 0.0)]), [scores], k, gain, memory=memory, **options
    )
    wanted, gains = by_sorting(scores, gain, min(k, m), **options)
    np.testing.assert_array_equal(ids < 0, wanted < 0)
    own = gain.log_probabilities(found.astype(np.float64)) + np.where(ids < 0, 0, gain.log_weights[ids])
    np.testing.assert_allclose(np.where(ids < 0, -np.inf, own), gains, atol=1e-4)


@pytest.mark.parametrize("k", [0, 3])
def test_nothing(k):
    ids, scores = top_k_by_gain(
        Ensemble([Scorer(None, 5, 1.0, None)], [(1.0, 0.0)]),
        [np.zeros((0, 5), dtype=np.float32)],
        k,
        Gain(1.0, 0.0, np.zeros(5)),
    )
    assert ids.shape == scores.shape == (0, k)
