"""How scores become rankings, and which labels, scores and rankings are refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError, ParameterError
from circlet.metrics import (
    evaluate,
    inverse_propensity,
    precision_at_k,
    recall_at_k,
)

# Four rows of five labels; the third has none. Rankings of three.
Y = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]])


RANKED = np.array([[1, 2, 0], [0, 2, 1], [3, 4, 0], [4, 1, 3]])


def test_places_without_prediction_are_wrong():
    padded = np.array([[1, -1, 0], [-1, -1, -1], [3, -1, -1], [4, -1, -1]])
    assert precision_at_k(Y, padded, k=(1, 3)) == pytest.approx({1: 2 / 4, 3: 3 / 12})
    # -1 in row i must not be read as the last label of row i - 1.
    y = np.array([[0, 1], [0, 0]])
    assert precision_at_k(y, np.array([[0], [-1]]), k=1) == {1: 0.0}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array, sp.coo_matrix])
def test_equal_scores_rank_by_id(form):
    scores = form(np.array([[0.5, 0.7, 0.5, 0.7, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0]], dtype=np.float32))
    for label, place in ((1, 1), (3, 2), (0, 3), (2, 4), (4, 5)):
        y = np.zeros((2, 5))
        y[:, label] = 1
        found = recall_at_k(y, scores, k=(1, 2, 3, 4, 5))
        assert found == {k: ((k >= place) + (k > label)) / 2 for k in found}


def test_only_stored_scores_are_predictions():
    y = np.array([[1, 1, 1]])
    scores = sp.csr_matrix((np.array([-2.0, 0.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k(y, scores, k=(1, 2, 3)) == pytest.approx({1: 1.0, 2: 1.0, 3: 2 / 3})
    y = np.array([[1, 0, 0]])
    assert precision_at_k(y, scores, k=(1, 2)) == {1: 0.0, 2: 0.5}  # the stored zero beats −2


def test_sparse_scores_need_not_be_floats_or_csr():
    y = np.array([[0, 1, 0]])
    for dtype in (np.uint8, np.int64, bool, np.float32):
        assert precision_at_k(y, sp.csc_matrix(np.array([[0, 1, 0]], dtype=dtype)), k=1) == {1: 1.0}


def test_infinite_scores_rank_as_they_compare():
    y = np.array([[0, 1, 0]])
    assert precision_at_k(y, np.array([[0.0, np.inf, -np.inf]]), k=1) == {1: 1.0}


def test_the_callers_matrix_is_left_alone():
    y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3))
    scores = sp.csr_matrix((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k(y, scores, k=(1, 2)) == {1: 1.0, 2: 0.5}
    assert y.indices.tolist() == [2, 1, 0]
    assert scores.indices.tolist() == [1, 0]


def test_dense_scores_are_ranked_the_same_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.random((50, 30)) < 0.2
    scores = rng.integers(0, 5, size=(50, 30)).astype(np.float64)
    whole = evaluate(y, scores, k=(1, 5, 20))
    monkeypatch.setattr("circlet.metrics.measures._BLOCK", 7 * 30)
    assert evaluate(y, scores, k=(1, 5, 20)) == whole


def sparse_of(values, columns):
    return sp.csr_matrix((np.array(values), np.array(columns), np.array([0, len(values)])), shape=(1, 3))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.array([[0, 1], [0, 2]]), r"y_true, row 1: found 2.*0 or 1"),
        (sp.csr_matrix(np.array([[0.5, 1.0]])), r"y_true, row 0: found 0\.5"),
        (np.array([[np.nan, 1.0]]), r"y_true, row 0: found nan"),
        (sparse_of([1.0, 1.0], [1, 1]), r"y_true, row 0: found 2\.0"),
        (np.array([1, 0]), r"y_true has shape \(2,\)"),
        (np.zeros((0, 4)), r"y_true has shape \(0, 4\)"),
        (np.zeros((4, 0)), r"y_true has shape \(4, 0\)"),
        ([[0, 1], [1]], r"y_true is not a matrix"),
        (np.array([["a"]]), r"y_true has dtype <U1"),
        (np.array([[1j]]), r"y_true has dtype complex128"),
    ],
)
def test_bad_labels_are_refused(y, words):
    with pytest.raises(DataError, match=words):
        precision_at_k(y, np.array([[0]]), k=1)
    with pytest.raises(DataError, match=words.replace("y_true", "y_train")):
        inverse_propensity(y)


def test_damaged_matrix_is_refused():
    y = sparse_of([1.0], [2])
    y.indices[0] = 3
    with pytest.raises(DataError, match="y_true: found index 3; wanted indices from 0 to 2"):
        precision_at_k(y, np.array([[0]]), k=1)


@pytest.mark.parametrize(
    ("ranked", "words"),
    [
        (np.array([[0, 1, 2]] * 3), r"ranked has shape \(3, 3\); y_true has 4 rows"),
        (np.array([0, 1, 2, 3]), r"ranked has shape \(4,\)"),
        (np.array([[0, 1, 2]] * 2 + [[0, 5, 2]] * 2), r"ranked, row 2: found label id 5; wanted ids from 0 to 4"),
        (np.array([[0, 1, 2]] * 3 + [[0, -2, 2]]), r"ranked, row 3: found label id -2"),
        (np.array([[2**63]] * 4, dtype=np.uint64).repeat(3, 1), r"row 0: found label id 9223372036854775808"),
        (np.array([[0, 1, 2]] * 3 + [[4, 1, 4]]), r"ranked, row 3: found label id 4 twice"),
        (RANKED.astype(float), r"ranked has shape \(4, 3\).*\(4, 5\).*integer dtype"),
        (np.zeros((4, 5), dtype=bool), r"ranked has dtype bool"),
        (np.full((4, 5), "x"), r"ranked has dtype <U1"),
        ([[0, 1, 2]] * 3 + [[0]], r"ranked is not a matrix"),
        (sp.csr_matrix((4, 6)), r"ranked has shape \(4, 6\).*\(4, 5\)"),
        (np.array([[0.0] * 5] * 3 + [[0, 0, np.nan, 0, 0]]), r"ranked, row 3: found NaN"),
        (sp.csr_matrix(np.array([[0.0] * 5, [0, np.nan, 0, 0, 0]] * 2)), r"ranked, row 1: found NaN"),
    ],
)
def test_bad_rankings_are_refused(ranked, words):
    with pytest.raises(DataError, match=words):
        precision_at_k(Y, ranked, k=3)


def test_repeated_gaps_and_ids_after_the_last_k_are_fine():
    ranked = np.array([[1, -1, -1, 99, 1]] * 4)
    assert precision_at_k(Y, ranked, k=3) == pytest.approx({3: 1 / 12})


def test_a_ranking_cut_for_a_smaller_k_is_refused():
    with pytest.raises(ParameterError, match=r"ranked has 3 columns and the largest `k` wants 5: pad it with -1"):
        precision_at_k(Y, RANKED, k=(1, 20))
