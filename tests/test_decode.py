from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from circlet import decode
from circlet.algebra import circular
from circlet.codebook import HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.decode import top_k

# Few different values, so that most rows have ties, also at the last place.
scores_with_ties = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=st.integers(-2, 2).map(float)
)


def same(outputs: torch.Tensor) -> torch.Tensor:
    return outputs


def ranked(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def check(scores: np.ndarray, k: int) -> None:
    ids, values = top_k(same, torch.from_numpy(scores), scores.shape[1], k)
    np.testing.assert_array_equal(ids.numpy(), ranked(scores, k))
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(scores, ids.numpy(), axis=1))


class TestTopK:
    @given(scores=scores_with_ties, k=st.integers(1, 15))
    @settings(deadline=None, max_examples=150)
    def test_is_a_stable_sort_of_all_scores(self, scores, k):
        check(scores, k)

    @pytest.mark.parametrize("k", [1, 5, 50])
    def test_many_ties_in_wide_rows(self, k):
        # Wide enough for torch's other algorithms.
        check(np.random.default_rng(0).integers(0, 4, (3, 5000)).astype(np.float32), k)

    @pytest.mark.parametrize("k", [1, 10, 700])
    def test_scores_that_differ(self, k):
        check(np.random.default_rng(0).standard_normal((20, 700), dtype=np.float32), k)

    def test_all_scores_are_equal(self):
        check(np.zeros((3, 40), dtype=np.float32), 7)

    def test_infinite_scores(self):
        check(np.array([[0, -np.inf, np.inf, np.inf, -np.inf]], dtype=np.float32), 4)

    def test_more_than_there_are(self):
        ids, scores = top_k(same, torch.tensor([[1.0, 3.0, 2.0]]), 3, 10)
        assert ids.tolist() == [[1, 2, 0]]
        assert scores.tolist() == [[3, 2, 1]]

    def test_one_label(self):
        ids, scores = top_k(same, torch.tensor([[0.5], [0.25]]), 1, 3)
        assert ids.tolist() == [[0], [0]]
        assert scores.tolist() == [[0.5], [0.25]]

    @pytest.mark.parametrize("k", [2, 9])
    def test_no_predictions(self, k):
        ids, scores = top_k(same, torch.zeros(0, 5), 5, k)
        assert ids.shape == scores.shape == (0, min(k, 5))
        assert ids.dtype == torch.int64
        assert scores.dtype == torch.float32


class TestWithCodebooks:
    BOOKS = (SpectralCodebook, IndependentCodebook, HolographicCodebook)

    @pytest.mark.parametrize("make", BOOKS)
    def test_stored_labels_come_back(self, make):
        book = make(300, 400, seed=1)
        ids, scores = top_k(book.scores, book.codes(torch.tensor([7, 299, 0])), 300, 2)
        assert ids[:, 0].tolist() == [7, 299, 0]
        torch.testing.assert_close(scores[:, 0], torch.ones(3))

    @pytest.mark.parametrize("make", BOOKS)
    def test_no_predictions(self, make):
        book = make(30, 8)
        ids, scores = top_k(book.scores, torch.zeros(0, book.width), 30, 4)
        assert ids.shape == scores.shape == (0, 4)

    def test_chunks_change_nothing(self, monkeypatch):
        book = SpectralCodebook(200, 32)
        outputs = circular.pack(circular.random(9, 32, generator=torch.Generator().manual_seed(0)))
        expected = top_k(book.scores, outputs, 200, 5)
        for memory in (0, 12 * 200, 12 * 200 * 4):
            monkeypatch.setattr(decode, "MEMORY", memory)
            sizes = []

            def scores(part, sizes=sizes):
                sizes.append(len(part))
                return book.scores(part)

            found = top_k(scores, outputs, 200, 5)
            assert sizes == ([4, 4, 1] if memory == 12 * 200 * 4 else [1] * 9)
            assert torch.equal(found[0], expected[0])
            torch.testing.assert_close(found[1], expected[1])
