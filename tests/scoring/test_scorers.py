from __future__ import annotations

import math

import numpy as np
import pytest

from circlet.runtime.codebooks import CODEBOOKS
from circlet.scoring.scorers import Ensemble, Scorer


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
