from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.errors import DataError, ParameterError
from circlet.metrics import (
    coverage_at_k,
    evaluate,
    inverse_propensity,
    inverse_propensity_of_counts,
    macro_f1,
    micro_f1,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)
from circlet.metrics.measures import log_weights, rank_dense

UNWEIGHTED = {"P": precision_at_k, "R": recall_at_k, "nDCG": ndcg_at_k, "coverage": coverage_at_k}
WEIGHTED = {"PSP": psp_at_k, "PSnDCG": psndcg_at_k}

# Four rows of five labels; the third has none. Rankings of three.
Y = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]])
RANKED = np.array([[1, 2, 0], [0, 2, 1], [3, 4, 0], [4, 1, 3]])
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
D2, D3 = 1 / math.log2(3), 1 / math.log2(4)  # discounts of the second and third place; the first has 1

# By hand

NDCG_AT_3 = ((1 + D3) / (1 + D2) + D2 / 1 + (1 + D3) / (1 + D2 + D3)) / 4


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (precision_at_k, {1: 2 / 4, 2: 3 / 8, 3: 5 / 12}),
        (recall_at_k, {1: (1 / 2 + 1 / 4) / 4, 3: (2 / 2 + 1 / 1 + 2 / 4) / 4}),
        (ndcg_at_k, {1: 2 / 4, 3: NDCG_AT_3}),
        (coverage_at_k, {1: 2 / 5, 2: 3 / 5, 3: 1.0}),  # labels 1 and 4 first, then 2, then 0 and 3
    ],
)
def test_by_hand(metric, expected):
    assert metric(Y, RANKED, k=tuple(expected)) == pytest.approx(expected)


def test_psp_by_hand():
    gained = {1: 2 + 5, 3: (2 + 1) + 3 + (5 + 4)}
    best = {1: 2 + 3 + 5, 3: (2 + 1) + 3 + (5 + 4 + 3)}
    assert psp_at_k(Y, RANKED, WEIGHTS, k=(1, 3)) == pytest.approx({k: gained[k] / best[k] for k in gained})
    paper = {k: gained[k] / k / 4 for k in gained}
    assert psp_at_k(Y, RANKED, WEIGHTS, k=(1, 3), normalize=False) == pytest.approx(paper)


def test_psndcg_by_hand():
    two, three = 1 + D2, 1 + D2 + D3  # perfect unweighted gains
    gained = (2 + 1 * D3) / two + 3 * D2 + (5 + 4 * D3) / three
    best = (2 + 1 * D2) / two + 3 + (5 + 4 * D2 + 3 * D3) / three
    assert psndcg_at_k(Y, RANKED, WEIGHTS, k=3) == pytest.approx({3: gained / best})
    assert psndcg_at_k(Y, RANKED, WEIGHTS, k=3, normalize=False) == pytest.approx({3: gained / 4})


def test_inverse_propensity_by_hand():
    y = np.array([[1, 0], [1, 0], [1, 0], [1, 0]])
    c = (math.log(4) - 1) * 2.5**0.55
    weights = inverse_propensity(y)
    assert weights.dtype == np.float64
    # The second label was never seen: N_l = 0 gives the largest weight, and a finite one.
    np.testing.assert_allclose(weights, [1 + c * 5.5**-0.55, 1 + c * 1.5**-0.55])
    c = (math.log(4) - 1) * 3.6**0.6
    np.testing.assert_allclose(
        inverse_propensity(sp.csc_matrix(y), a=0.6, b=2.6), [1 + c * 6.6**-0.6, 1 + c * 2.6**-0.6]
    )


def test_f1_by_hand():
    scores = sp.csr_matrix([[0.9, 0.4, 0, 0, 0], [0, 0, 0.8, 0.7, 0], [0, 0.6, 0, 0, 0], [0.5, 0, 0, 0.9, 0.1]])
    # tp: labels 0, 2, 3; fp: 3 and 1; fn: 1 in row 0, and 0, 2, 4 in row 3 (0.5 is not above the threshold).
    assert micro_f1(Y, scores) == pytest.approx(6 / (6 + 2 + 4))
    per_label = [2 / (2 + 1), 0, 2 / (2 + 1), 2 / (2 + 1), 0]
    assert macro_f1(Y, scores) == pytest.approx(sum(per_label) / 5)
    assert micro_f1(Y, scores.toarray(), threshold=0.05) == pytest.approx(12 / (12 + 2 + 1))
    assert micro_f1(Y, Y) == macro_f1(Y, Y) == 1.0
    rare = np.array([[1, 0, 0], [1, 0, 0]])
    assert macro_f1(rare, rare) == pytest.approx(1 / 3)  # 0 for labels that never occur


# Conventions


def test_k_may_exceed_the_number_of_labels():
    y = np.array([[1, 0], [0, 1]])
    ranked = np.array([[0, 1], [0, 1]])
    assert precision_at_k(y, ranked, k=(2, 10)) == {2: 0.5, 10: 0.1}
    assert recall_at_k(y, ranked, k=10**12) == {10**12: 1.0}
    assert ndcg_at_k(y, ranked, k=(2, 10))[10] == ndcg_at_k(y, ranked, k=2)[2]
    assert psp_at_k(y, ranked, [1, 2], k=10) == {10: 1.0}
    assert psp_at_k(y, ranked, [1, 2], k=10, normalize=False) == {10: pytest.approx(3 / 10 / 2)}


def test_evaluate_names_and_order():
    values = evaluate(Y, RANKED, WEIGHTS, k=(3, 1), metrics=("PSP", "P"))
    assert list(values) == ["PSP@3", "PSP@1", "P@3", "P@1"]
    assert all(type(value) is float for value in values.values())
    assert list(evaluate(Y, RANKED, k=1)) == ["P@1", "R@1", "nDCG@1", "coverage@1"]
    assert list(evaluate(Y, RANKED, WEIGHTS, k=1))[4:] == ["PSP@1", "PSnDCG@1"]


# Against a naive loop


def naive(y, rankings, weights, k, normalize=True):
    """All metrics at k from lists of predicted ids (-1: no prediction), by their definitions."""
    truth = [{label for label, value in enumerate(row) if value} for row in y]
    best = [sorted(true, key=lambda label: -weights[label]) for true in truth]
    n, ones = len(truth), [1] * len(weights)

    def gained(share, rankings, weights):
        """Sum, over the right ones among the first k labels, of their weights times the shares of their places."""
        return sum(
            weights[label] * share(place, len(true))
            for true, ranking in zip(truth, rankings, strict=True)
            for place, label in enumerate(ranking[:k])
            if label in true
        )

    def discounted(place, n_true):
        return 1 / math.log2(place + 2) / sum(1 / math.log2(other + 2) for other in range(min(k, n_true)))

    shares = {"P": lambda place, n_true: 1 / k, "R": lambda place, n_true: 1 / n_true, "nDCG": discounted}
    values = {name: gained(share, rankings, ones) / n for name, share in shares.items()}
    for name, share in (("PSP", shares["P"]), ("PSnDCG", discounted)):
        whole = gained(share, best, weights) if normalize else n
        values[name] = gained(share, rankings, weights) / whole if whole else 0.0
    covered = {label for true, ranking in zip(truth, rankings, strict=True) for label in true & {*ranking[:k]}}
    values["coverage"] = len(covered) / max(1, len(set().union(*truth)))
    return values


@st.composite
def problems(draw):
    """A small label matrix, rankings with gaps, and weights."""
    n, n_labels = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    y = (rng.random((n, n_labels)) < draw(st.sampled_from([0.1, 0.4, 0.8]))).astype(np.float32)
    ids = np.argsort(rng.random((n, n_labels)), axis=1)
    ids[rng.random(ids.shape) < draw(st.sampled_from([0.0, 0.3]))] = -1
    return y, ids, 1 + 5 * rng.random(n_labels)


@settings(max_examples=150)
@given(problems(), st.booleans())
def test_every_metric_equals_a_naive_loop(problem, normalize):
    y, ids, weights = problem
    ks = (1, 2, 3, 5, 9)
    values = evaluate(sp.csr_matrix(y), ids, weights, k=ks, normalize=normalize)
    for k in ks:
        expected = naive(y, ids.tolist(), weights, k, normalize)
        assert {name: values[f"{name}@{k}"] for name in expected} == pytest.approx(expected, abs=1e-12)
    for name, metric in UNWEIGHTED.items():
        assert metric(y, ids, k=ks) == {k: values[f"{name}@{k}"] for k in ks}
    for name, metric in WEIGHTED.items():
        assert metric(y, ids, weights, k=ks, normalize=normalize) == {k: values[f"{name}@{k}"] for k in ks}


@settings(max_examples=100)
@given(problems(), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_scores_equal_the_ranking_they_stand_for(problem, seed, levels):
    y, _, weights = problem
    rng = np.random.default_rng(seed)
    scores = rng.integers(-levels, levels + 1, size=y.shape).astype(np.float32)  # with ties
    order = [sorted(range(y.shape[1]), key=lambda label, row=row: (-row[label], label)) for row in scores]
    expected = evaluate(y, np.array(order), weights, k=(1, 3, 8))
    assert evaluate(y, scores, weights, k=(1, 3, 8)) == expected
    kept = rng.random(y.shape) < 0.6
    sparse = sp.coo_matrix((scores[kept], np.nonzero(kept)), shape=y.shape).tocsr()
    order = [[label for label in row if kept[at, label]] for at, row in enumerate(order)]
    padded = np.array([row + [-1] * (y.shape[1] - len(row)) for row in order])
    assert evaluate(y, sparse, weights, k=(1, 3, 8)) == evaluate(y, padded, weights, k=(1, 3, 8))


@settings(max_examples=100)
@given(problems(), st.sampled_from([0.0, 0.3, 0.5]))
def test_f1_equals_scikit_learn(problem, threshold):
    from sklearn.metrics import f1_score

    y, ids, _ = problem
    scores = np.where(ids >= 0, ids / 7, 0.0)
    predicted = scores > threshold
    if y.shape[1] == 1:  # which scikit-learn takes for a binary problem
        return
    for average, metric in (("micro", micro_f1), ("macro", macro_f1)):
        expected = f1_score(y, predicted, average=average, zero_division=0)
        assert metric(y, scores, threshold) == pytest.approx(expected)
        assert metric(sp.csr_matrix(y), sp.csr_matrix(scores), threshold) == pytest.approx(expected)


# Against napkinXC


@pytest.mark.parametrize("seed", range(5))
def test_napkinxc_agrees_on_random_matrices(seed):
    napkinxc = pytest.importorskip("napkinxc.metrics")
    rng = np.random.default_rng(seed)
    n, n_labels, k = 200, 60, 20
    y = sp.random(n, n_labels, density=0.05, format="csr", random_state=rng)
    y.data[:] = 1  # of float64: napkinXC computes propensities in the dtype of the labels
    assert np.diff(y.indptr).min() == 0  # rows without labels are among them: the conventions are the same
    # Some rows have few predictions, or none; napkinXC has no place for a gap.
    ids = np.argsort(rng.random((n, n_labels)), axis=1)[:, :k]
    ids[np.arange(k) >= rng.integers(0, 25, size=(n, 1))] = -1
    lists = [row[row >= 0].tolist() for row in ids]
    weights = inverse_propensity(y)
    np.testing.assert_allclose(weights, napkinxc.Jain_et_al_inverse_propensity(y))
    other = napkinxc.Jain_et_al_inverse_propensity(y, A=0.5, B=0.4)
    np.testing.assert_allclose(inverse_propensity(y, a=0.5, b=0.4), other)
    for normalize in (True, False):
        ours = evaluate(y, ids, weights, k=range(1, k + 1), normalize=normalize)
        theirs = {
            "P": napkinxc.precision_at_k(y, lists, k=k),
            "R": napkinxc.recall_at_k(y, lists, k=k),
            "nDCG": napkinxc.ndcg_at_k(y, lists, k=k),
            "coverage": napkinxc.coverage_at_k(y, lists, k=k),
            "PSP": napkinxc.psprecision_at_k(y, lists, weights, k=k, normalize=normalize),
            "PSnDCG": napkinxc.psndcg_at_k(y, lists, weights, k=k, normalize=normalize),
        }
        for name, values in theirs.items():
            own = [ours[f"{name}@{at}"] for at in range(1, k + 1)]
            np.testing.assert_allclose(own, values, rtol=1e-12, err_msg=name)


# Bad input


@pytest.mark.parametrize("k", [0, -1, 1.5, True, (), (1, 0), "3", (1, "3")])
def test_bad_k_is_refused(k):
    with pytest.raises(ParameterError, match=r"`k`: found .*; wanted an integer >= 1"):
        precision_at_k(Y, RANKED, k=k)


@pytest.mark.parametrize("k", [3, np.int64(3), [3], range(3, 4), np.array([3]), (at for at in (3,))])
def test_k_may_come_in_many_forms(k):
    assert precision_at_k(Y, RANKED, k=k) == pytest.approx({3: 5 / 12})


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(4), r"inv_propensity: found shape \(4,\); wanted \(5,\)"),
        (np.ones((5, 1)), r"inv_propensity: found shape \(5, 1\)"),
        (np.array([1, 1, np.nan, 1, 1]), "inv_propensity of label 2: found nan"),
        (np.array([1, 1, 1, np.inf, 1]), "inv_propensity of label 3: found inf"),
        (np.array([1, 1, 1, 1, 1e300]), r"inv_propensity of label 4: found 1e\+300; wanted a number from 0 to 1e"),
        (np.array([1, -1, 1, 1, 1]), r"inv_propensity of label 1: found -1\.0"),
        (["a"] * 5, "inv_propensity: found dtype <U1"),
    ],
)
def test_bad_weights_are_refused(weights, words):
    with pytest.raises(DataError, match=words):
        psp_at_k(Y, RANKED, weights, k=3)


def test_bad_arguments_are_refused():
    with pytest.raises(ParameterError, match=r"`metrics`: found \('MAP',\); wanted a list of names among P, R"):
        evaluate(Y, RANKED, k=1, metrics=("MAP",))
    with pytest.raises(ParameterError, match=r"`metrics`: found .*; wanted a list of names"):
        evaluate(Y, RANKED, k=1, metrics="P")
    with pytest.raises(ParameterError, match="PSP and PSnDCG need `inv_propensity`"):
        evaluate(Y, RANKED, k=1, metrics=("PSP",))
    for bad in ({"a": -1}, {"b": 0}, {"a": math.nan}, {"b": math.inf}):
        with pytest.raises(ParameterError, match="wanted a number `a` >= 0 and a number `b` > 0"):
            inverse_propensity(Y, **bad)
    with pytest.raises(DataError, match="y_train: found 2 rows; wanted 3 or more"):
        inverse_propensity(Y[:2])
    with pytest.raises(ParameterError, match=r"a=1000.0 and b=1.5 give inverse propensities that are not finite"):
        inverse_propensity(Y, a=1000)
    with pytest.raises(ParameterError, match=r"a=320.0 and b=0.1 give inverse propensities that are not finite"):
        inverse_propensity(np.eye(3, 4), a=320, b=0.1)
    with pytest.raises(ParameterError, match="`threshold`: found nan; wanted a finite number"):
        micro_f1(Y, Y, threshold=math.nan)
    with pytest.raises(DataError, match=r"y_pred: found shape \(4, 3\).*\(4, 5\)"):
        macro_f1(Y, RANKED)
    for form in (np.asarray, sp.csr_matrix):
        with pytest.raises(DataError, match="y_pred, row 1: found NaN"):
            micro_f1(Y[:2], form(np.array([[0.0] * 5, [0, np.nan, 0, 0, 0]])))


def test_places_without_prediction_are_wrong():
    padded = np.array([[1, -1, 0], [-1, -1, -1], [3, -1, -1], [4, -1, -1]])
    assert precision_at_k(Y, padded, k=(1, 3)) == pytest.approx({1: 2 / 4, 3: 3 / 12})
    # Places after the last k may repeat a label, or have none that exists.
    assert precision_at_k(Y, np.array([[1, -1, -1, 99, 1]] * 4), k=3) == pytest.approx({3: 1 / 12})
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
    scores = sp.csr_matrix((np.array([-2.0, 0.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k([[1, 1, 1]], scores, k=(1, 2, 3)) == pytest.approx({1: 1.0, 2: 1.0, 3: 2 / 3})
    assert precision_at_k([[1, 0, 0]], scores, k=(1, 2)) == {1: 0.0, 2: 0.5}  # the stored zero beats −2


def test_scores_of_many_types():
    for dtype in (np.uint8, np.int64, bool, np.float32):
        assert precision_at_k([[0, 1, 0]], sp.csc_matrix(np.array([[0, 1, 0]], dtype=dtype)), k=1) == {1: 1.0}
    assert precision_at_k([[0, 1, 0]], np.array([[0.0, np.inf, -np.inf]]), k=1) == {1: 1.0}  # but comparable


def test_the_callers_matrix_is_left_alone():
    y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3))
    scores = sp.csr_matrix((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k(y, scores, k=(1, 2)) == {1: 1.0, 2: 0.5}
    assert y.indices.tolist() == [2, 1, 0]
    assert scores.indices.tolist() == [1, 0]


def test_dense_scores_are_ranked_the_same_in_blocks():
    scores = np.random.default_rng(0).integers(0, 5, size=(50, 30)).astype(np.float64)
    for depth in (1, 5, 20):
        np.testing.assert_array_equal(rank_dense(scores, depth, block=7 * 30), rank_dense(scores, depth))


def sparse_of(columns):
    matrix = sp.csr_matrix((np.ones(len(columns)), np.zeros(len(columns), int), [0, len(columns)]), shape=(1, 3))
    matrix.indices[:] = columns  # which scipy would check
    return matrix


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.array([[0, 1], [0, 2]]), r"y_true, row 1: found 2.*0 or 1"),
        (sp.csr_matrix(np.array([[0.5, 1.0]])), r"y_true, row 0: found 0\.5"),
        (np.array([[np.nan, 1.0]]), r"y_true, row 0: found nan"),
        (sparse_of([1, 1]), r"y_true, row 0: found 2\.0"),
        (sparse_of([3]), "y_true: found index 3; wanted indices from 0 to 2"),
        (np.array([1, 0]), r"y_true: found shape \(2,\)"),
        (np.zeros((0, 4)), r"y_true: found shape \(0, 4\)"),
        (np.zeros((4, 0)), r"y_true: found shape \(4, 0\)"),
        ([[0, 1], [1]], r"y_true: found no matrix"),
        (np.array([["a"]]), r"y_true: found dtype <U1"),
        (np.array([[1j]]), r"y_true: found dtype complex128"),
    ],
)
def test_bad_labels_are_refused(y, words):
    with pytest.raises(DataError, match=words):
        precision_at_k(y, np.array([[0]]), k=1)
    with pytest.raises(DataError, match=words.replace("y_true", "y_train")):
        inverse_propensity(y)


@pytest.mark.parametrize(
    ("ranked", "words"),
    [
        (np.array([[0, 1, 2]] * 3), r"ranked: found shape \(3, 3\); wanted \(4, >= 3\) ids"),
        (np.array([0, 1, 2, 3]), r"ranked: found shape \(4,\)"),
        (np.array([[0, 1, 2]] * 2 + [[0, 5, 2]] * 2), r"ranked, row 2: found label id 5; wanted ids from 0 to 4"),
        (np.array([[0, 1, 2]] * 3 + [[0, -2, 2]]), r"ranked, row 3: found label id -2"),
        (np.array([[2**63]] * 4, dtype=np.uint64).repeat(3, 1), r"row 0: found label id 9223372036854775808"),
        (np.array([[0, 1, 2]] * 3 + [[4, 1, 4]]), r"ranked, row 3: found label id 4 twice"),
        (RANKED.astype(float), r"ranked: found shape \(4, 3\).*\(4, 5\).*integer dtype"),
        (np.zeros((4, 5), dtype=bool), r"ranked: found dtype bool"),
        (np.full((4, 5), "x"), r"ranked: found dtype <U1"),
        ([[0, 1, 2]] * 3 + [[0]], r"ranked: found no matrix"),
        (sp.csr_matrix((4, 6)), r"ranked: found shape \(4, 6\).*\(4, 5\)"),
        (np.array([[0.0] * 5] * 3 + [[0, 0, np.nan, 0, 0]]), r"ranked, row 3: found NaN"),
        (sp.csr_matrix(np.array([[0.0] * 5, [0, np.nan, 0, 0, 0]] * 2)), r"ranked, row 1: found NaN"),
    ],
)
def test_bad_rankings_are_refused(ranked, words):
    with pytest.raises(DataError, match=words):
        precision_at_k(Y, ranked, k=3)


def test_a_ranking_cut_for_a_smaller_k_is_refused():
    with pytest.raises(ParameterError, match=r"ranked: found 3 columns; wanted 5 .*: pad it with -1"):
        precision_at_k(Y, RANKED, k=(1, 20))


def test_log_weights_by_hand():
    # w = 1 + (log N − 1) (2.5 / (count + 1.5))^0.55, and a label of one document has the quotient 1.
    for favor, of_one in ((1.0, math.log(math.log(1000))), (0.25, math.log(math.log(1000)) / 4)):
        assert log_weights(np.array([1]), 1000, 1, favor)[0] == pytest.approx(of_one)
    counts = np.array([900, 1, 30])
    expected = np.log(inverse_propensity_of_counts(counts, 1000))
    np.testing.assert_allclose(log_weights(counts, 1000, 3, 1.0), expected)
    assert np.argsort(-expected).tolist() == [1, 2, 0]
    grown = log_weights(counts, 1000, 5, 0.5)  # labels that were added have never occurred
    np.testing.assert_array_equal(grown, log_weights(np.array([900, 1, 30, 0, 0]), 1000, 5, 0.5))
    assert grown[4] > grown[1]


def test_labels_that_cannot_be_weighed():
    unknown = "does not know how often each label occurred; .*: train it again, or leave `favor_rare` out"
    with pytest.raises(DataError, match=unknown):
        log_weights(None, 1000, 3, 0.5)
    with pytest.raises(DataError, match=r"has seen 2 documents; wanted at least 3.*: train it on more, or"):
        log_weights(np.array([1, 2]), 2, 2, 0.5)
