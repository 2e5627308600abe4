from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.runtime.ranking import MEMORY, best_columns, budget_of, merged, without

INF = np.inf


def sorted_out(scores: np.ndarray, k: int, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The same by sorting everything."""
    ids, values = np.full((len(scores), k), -1), np.full((len(scores), k), -INF, dtype=scores.dtype)
    for row, numbers in enumerate(scores):
        pairs = [(-x, c if labels is None else int(labels[c])) for c, x in enumerate(numbers) if x > -INF]
        for place, (negative, label) in enumerate(sorted(pairs)[:k]):
            ids[row, place], values[row, place] = label, -negative
    return ids, values


class TestBestColumns:
    def test_by_hand(self):
        scores = np.array([[1, 3, 2, 3], [0, -INF, 5, 5]], dtype=np.float32)
        ids, values = best_columns(scores, 3)
        assert ids.tolist() == [[1, 3, 2], [2, 3, 0]]
        assert values.tolist() == [[3, 3, 2], [5, 5, 0]]
        assert ids.dtype == np.int64
        assert values.dtype == np.float32

    def test_labels_break_ties(self):
        ids, _ = best_columns(
            np.array([[3, 3, 3, 1]], dtype=np.float32), 2, np.array([9, 4, 7, 0], dtype=np.int32)
        )
        assert ids.tolist() == [[4, 7]]
        assert ids.dtype == np.int64

    def test_too_few(self):
        for rows in (1, 2):
            ids, values = best_columns(np.tile(np.array([[-INF, 1, -INF]], dtype=np.float32), (rows, 1)), 2)
            assert ids.tolist() == [[1, -1]] * rows
            assert values.tolist() == [[1, -INF]] * rows

    @settings(max_examples=150)
    @given(
        scores=arrays.arrays(
            np.float32,
            st.tuples(st.integers(1, 4), st.integers(1, 90)),
            elements=st.sampled_from([-INF, -1, 0, 0.5, 1, 2]) | st.floats(-9, 9, width=32),
        ),
        k=st.integers(1, 20),
        labelled=st.booleans(),
    )
    def test_like_sorting(self, scores, k, labelled):
        k, labels = min(k, scores.shape[1]), None
        if labelled:
            labels = np.random.default_rng(0).permutation(scores.shape[1]).astype(np.int32)
        for found, expected in zip(best_columns(scores, k, labels), sorted_out(scores, k, labels), strict=True):
            np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("m", [500, 4321, 40_007])
    @pytest.mark.parametrize("n", [1, 3])
    def test_groups(self, m, n):
        random = np.random.default_rng(m)
        for numbers in (random.standard_normal((n, m)), random.integers(0, 40, (n, m))):
            scores = numbers.astype(np.float32)
            for k in (1, 5, 300):
                for found, expected in zip(best_columns(scores, k), sorted_out(scores, k), strict=True):
                    np.testing.assert_array_equal(found, expected)


def test_merged():
    one = np.array([[4, 2], [1, -1]]), np.array([[5, 1], [3, -INF]], dtype=np.float32)
    other = np.array([[3], [0]]), np.array([[5], [3]], dtype=np.float32)
    ids, scores = merged(one, other, 2)
    assert ids.tolist() == [[3, 4], [0, 1]]
    assert scores.tolist() == [[5, 5], [3, 3]]


def test_without():
    found = np.array([[4, 2, -1]]), np.array([[5, 1, -INF]], dtype=np.float32)
    assert without(found, None) is found
    ids, scores = without(found, 2.0)
    assert ids.tolist() == [[4, -1, -1]]
    assert scores.tolist() == [[5, -INF, -INF]]
    assert scores.dtype == np.float32
    assert without(found, 1.0)[0].tolist() == [[4, 2, -1]]


def test_budget():
    assert budget_of(None) == MEMORY
    assert budget_of(np.int64(3)) == 3
    assert budget_of(10**12) == MEMORY  # more would not fit into the cache
