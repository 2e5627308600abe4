from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import normalize

from circlet.data.dataset import check_split
from circlet.errors import ParameterError
from circlet.metrics import precision_at_k
from circlet_paper import synthetic
from circlet_paper.synthetic import make_multilabel, make_rows


def assert_equal(one: sp.csr_matrix, other: sp.csr_matrix) -> None:
    assert one.shape == other.shape
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


class TestDeterminism:
    def test_the_same_seed_makes_the_same(self):
        one, two = (make_multilabel(300, 500, 200, seed=7, n_test=50) for _ in range(2))
        for a, b in ((one.train, two.train), (one.test, two.test)):
            assert_equal(a.X, b.X)
            assert_equal(a.Y, b.Y)

    def test_numbers_that_never_change(self):
        """A change here is a change of every growth curve's data."""
        made = make_rows(0, 3, 100, 50, seed=0, labels_per_row=2, words_per_row=4)
        assert [made.Y[row].indices.tolist() for row in range(3)] == [[2, 13], [16], [31]]
        assert [made.X[row].indices.tolist() for row in range(3)] == [[8, 72, 89], [12, 31, 51], [0, 1, 7, 83]]

    def test_another_seed_makes_another(self):
        one, two = (make_rows(0, 100, 500, 200, seed=seed) for seed in (0, 1))
        assert (one.X != two.X).nnz > one.X.nnz / 2
        assert (one.Y != two.Y).nnz > one.Y.nnz / 2

    @settings(max_examples=25)
    @given(
        cuts=st.lists(st.integers(0, 60), max_size=4).map(sorted),
        chunk=st.integers(1, 5000),
        labels=st.integers(1, 4),
        exponent=st.sampled_from([0, 0.5, 1, 1.3]),
    )
    def test_whatever_the_chunks(self, cuts, chunk, labels, exponent):
        options = {"seed": 3, "labels_per_row": labels, "exponent": exponent}
        whole = make_rows(0, 60, 90, 40, **options)
        edges = [0, *cuts, 60]
        parts = [make_rows(a, b, 90, 40, **options, chunk=chunk) for a, b in pairwise(edges)]
        assert_equal(whole.X, sp.vstack([part.X for part in parts], format="csr"))
        assert_equal(whole.Y, sp.vstack([part.Y for part in parts], format="csr"))

    def test_fewer_rows_are_the_first_of_more_and_test_rows_stay(self):
        few, many = (make_multilabel(n, 500, 200, seed=0, n_test=20) for n in (30, 90))
        assert_equal(few.train.X, many.train.X[:30])
        assert_equal(few.test.X, many.test.X)
        assert_equal(few.test.Y, many.test.Y)
        assert (few.train.X[:20] != few.test.X).nnz > 0


class TestShape:
    @settings(max_examples=30)
    @given(
        n=st.integers(1, 30), features=st.integers(1, 50), labels=st.integers(1, 50),
        labels_per_row=st.integers(1, 9), words=st.integers(1, 20), exponent=st.floats(0, 10),
    )  # fmt: skip
    def test_any_sizes(self, n, features, labels, labels_per_row, words, exponent):
        made = make_multilabel(
            n, features, labels, seed=1, labels_per_row=labels_per_row, words_per_row=words, exponent=exponent
        )
        X, Y = made.train.X, made.train.Y
        assert made.test is None
        assert (X.shape, Y.shape) == ((n, features), (n, labels))
        assert type(X) is type(Y) is sp.csr_matrix
        assert X.dtype == Y.dtype == np.float32
        assert X.has_canonical_format
        assert Y.has_canonical_format
        assert (Y.data == 1).all()
        np.testing.assert_array_equal(X.sum(axis=1).ravel(), np.full((1, n), words))
        per_row = np.diff(Y.indptr)
        assert ((per_row >= 1) & (per_row <= 2 * labels_per_row - 1)).all()

    def test_no_rows(self):
        made = make_rows(5, 5, 10, 4, seed=0)
        assert (made.X.shape, made.Y.shape) == ((0, 10), (0, 4))
        check_split(made, where="here")

    def test_labels_per_row_on_average(self):
        made = make_rows(0, 4000, 100, 10**6, seed=0, labels_per_row=4, exponent=0)
        per_row = np.diff(made.Y.indptr)
        assert per_row.mean() == pytest.approx(4, rel=0.03)
        assert (np.bincount(per_row)[1:] > 400).all()  # 1…7, about 571 each

    def test_one_label_of_one_word(self):
        made = make_rows(0, 5, 1, 1, seed=0, words_per_row=3)
        np.testing.assert_array_equal(made.X.toarray(), np.full((5, 1), 3))
        np.testing.assert_array_equal(made.Y.toarray(), np.ones((5, 1)))


class TestPowerLaw:
    @pytest.mark.parametrize("exponent", [0, 0.7, 1.0, 1.0 + 1e-9, 1.5])
    def test_shares_are_those_of_the_density(self, exponent):
        size, draws = 50, 400_000
        hashes = synthetic._hash(synthetic._key(0, 9), np.arange(draws, dtype=np.uint64))
        found = np.bincount(synthetic._zipf(hashes, size, exponent), minlength=size) / draws
        edges = np.arange(1, size + 2, dtype=float)
        below = np.log(edges) if abs(exponent - 1) < 1e-6 else edges ** (1 - exponent) / (1 - exponent)
        expected = np.diff(below) / (below[-1] - below[0])
        np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(expected.max() / draws))

    @pytest.mark.parametrize("exponent", [0.8, 1.0, 1.2])
    def test_slope_of_label_frequencies(self, exponent):
        Y = make_rows(0, 60_000, 10, 100_000, seed=0, labels_per_row=4, words_per_row=1, exponent=exponent).Y
        counts = np.bincount(Y.indices, minlength=100_000)
        edges = np.unique(np.geomspace(10, 3000, 12).astype(int))  # past the first, which a row has only once
        means = [counts[a:b].mean() for a, b in pairwise(edges)]
        middles = np.sqrt((edges[:-1] + 1.0) * (edges[1:] + 1.0))
        slope = np.polyfit(np.log(middles), np.log(means), 1)[0]
        assert slope == pytest.approx(-exponent, abs=0.05)

    def test_noise_words_follow_it_too(self):
        X = make_rows(0, 5000, 2000, 100_000, seed=0, exponent=1).X
        counts = np.asarray(X.sum(axis=0)).ravel()
        assert counts[:10].mean() > 10 * counts[1000:].mean()


class TestLearnability:
    def test_centroids_beat_popularity_by_far(self):
        made = make_multilabel(6000, 3000, 400, seed=0, n_test=500)
        X, Y, test = made.train.X, made.train.Y, made.test
        idf = np.log(len(Y.indptr) / (1 + np.bincount(X.indices, minlength=3000)))
        rows, asked = (normalize(sp.csr_matrix(part.multiply(idf))) for part in (X, test.X))
        scores = (asked @ normalize(Y.T @ rows).T).toarray()
        popular = np.argsort(-np.bincount(Y.indices, minlength=400), kind="stable")[:5]
        guess = precision_at_k(test.Y, np.tile(popular, (500, 1)), k=(1, 5))
        learned = precision_at_k(test.Y, np.argsort(-scores, axis=1)[:, :5], k=(1, 5))
        assert learned[1] > 0.9
        assert learned[1] > guess[1] + 0.3
        assert learned[5] > 2 * guess[5]

    def test_a_labels_words_are_few_and_its_own(self):
        made = make_rows(0, 4000, 10_000, 500, seed=0, labels_per_row=1, words_per_row=40)
        rows = made.Y[:, 7].nonzero()[0]
        per_row = np.asarray(made.X[rows].mean(axis=0)).ravel()
        # Its own come 20 / 6 times a row; the most frequent noise 20 · log(2) / log(10,001) = 1.5 times.
        assert np.count_nonzero(per_row > 2.4) == synthetic.WORDS_OF_A_LABEL == 6


class TestScale:
    def test_ten_million_labels(self):
        made = make_multilabel(20_000, 1_000_000, 10**7, seed=0)
        assert made.n_labels == 10**7
        assert made.train.Y.indices.max() > 5 * 10**6

    def test_memory_is_that_of_the_entries(self):
        make_rows(0, 10, 10**6, 10**7, seed=0)  # imports
        tracemalloc.start()
        made = make_multilabel(1000, 10**6, 10**7, seed=0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10**7  # less than a byte a label
        assert peak < 100 * (made.train.X.nnz + made.train.Y.nnz)


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "value", "wanted"),
        [
            *(("n", value, "from 1 to") for value in (0, -1, 2.0, "5", True, None)),
            *(("n_features", value, "from 1 to") for value in (0, 2**31, 1.5)),
            *(("n_labels", value, "from 1 to") for value in (0, 2**31, None)),
            *(("n_test", value, "from 0 to") for value in (-1, 0.2)),
            *(("seed", value, ">= 0") for value in (-1, None, 0.5)),
            *(("labels_per_row", value, "from 1 to") for value in (0, 2.5)),
            *(("words_per_row", value, "from 1 to") for value in (0, 2.5)),
            *(("exponent", value, "from 0 to 10") for value in (-0.1, 11, float("nan"), "1", None, True)),
        ],
    )
    def test_parameters(self, name, value, wanted):
        arguments = {"n": 10, "n_features": 10, "n_labels": 10, "seed": 0, name: value}
        with pytest.raises(ParameterError) as raised:
            make_multilabel(**arguments)
        assert f"`{name}`: found" in str(raised.value)
        assert wanted in str(raised.value)
        assert repr(value) in str(raised.value)

    def test_rows_that_end_before_they_start(self):
        with pytest.raises(ParameterError, match=r"`stop`: found 4; wanted an integer from 5 to \d+"):
            make_rows(5, 4, 10, 10, seed=0)

    def test_numpys_numbers_will_do(self):
        made = make_multilabel(np.int64(3), np.int32(4), np.int64(5), seed=np.int64(1), exponent=np.float32(1))
        assert_equal(made.train.X, make_multilabel(3, 4, 5, seed=1).train.X)
