from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.runtime.scorers import Ensemble, Gain, Scorer, top_k_by_gain


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
