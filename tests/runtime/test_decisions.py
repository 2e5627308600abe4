from __future__ import annotations

import math

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.runtime.decisions import best, cut, shares


class TestCut:
    def test_by_hand(self):
        assert cut(0.5, (1.0, 0.0)) == 0
        # σ(2 s − 1) = 0.8 where 2 s − 1 = log(0.8 / 0.2).
        assert cut(0.8, (2.0, -1.0)) == pytest.approx((math.log(4) + 1) / 2)

    def test_the_ends(self):
        assert cut(0, (2.0, 1.0)) == -math.inf
        assert cut(1, (2.0, 1.0)) == math.inf
        assert cut(0.5, (1e-300, 1.0)) == -math.inf  # below any score in single precision

    @pytest.mark.parametrize("threshold", [-0.1, 1.1, None, "half", True, math.nan])
    def test_bad_thresholds(self, threshold):
        with pytest.raises(ParameterError, match="`threshold` must be between 0 and 1, got"):
            cut(threshold, (1.0, 0.0))


class TestShares:
    def test_in_proportion_to_the_odds(self):
        # The odds of each class by itself are e^(2 s): 1, 3 and 4.
        scores = np.log([[1, 3, 4]]).astype(np.float32) / 2
        np.testing.assert_allclose(shares(scores, 2.0), [[1 / 8, 3 / 8, 4 / 8]], rtol=1e-6)

    def test_large_scores_do_not_overflow(self):
        found = shares(np.array([[1e4, -1e4, 1e4]], dtype=np.float32), 3.0)
        np.testing.assert_allclose(found, [[0.5, 0, 0.5]])
        assert found.dtype == np.float32


class TestBest:
    CHANCES = np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]], dtype=np.float32)

    def test_by_hand(self):
        ids, values = best(self.CHANCES, 2, None)
        assert ids.tolist() == [[1, 2], [0, 2]]  # the first of equals comes first
        np.testing.assert_array_equal(values, np.float32([[0.5, 0.3], [0.4, 0.4]]))

    def test_more_than_there_are(self):
        assert best(self.CHANCES, 9, None)[0].shape == (2, 3)

    def test_where_only_some_are_allowed(self):
        ids, values = best(self.CHANCES, 2, np.array([False, False, True]))
        assert ids.tolist() == [[2, -1], [2, -1]]
        assert (values[:, 1] == 0).all()

    def test_above_a_threshold(self):
        ids, values = best(self.CHANCES, 2, None, threshold=0.35)
        assert ids.tolist() == [[1, -1], [0, 2]]
        np.testing.assert_array_equal(values, np.float32([[0.5, 0], [0.4, 0.4]]))

    def test_weights(self):
        weights = np.array([3.0, 1.0, 1.5])  # 0.6, 0.5, 0.45; 1.2, 0.2, 0.6
        ids, values = best(self.CHANCES, 2, None, weights=weights)
        assert ids.tolist() == [[0, 1], [0, 2]]
        np.testing.assert_array_equal(values, np.float32([[0.2, 0.5], [0.4, 0.4]]))
        ids, _ = best(self.CHANCES, 2, np.array([True, False, True]), threshold=0.25, weights=weights)
        assert ids.tolist() == [[2, -1], [0, 2]]
