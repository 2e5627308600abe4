from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from circlet.metrics.measures import Decisions, best_threshold, curve_of
from circlet.settings.run import ThresholdGoal

TRUTH = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
CHANCES = np.array([[0.9, 0.2, 0.6, 0.0], [0.8, 0.0, 0.1, 0.0], [0.0, 0.3, 0.7, 0.0], [0.2, 0.9, 0.5, 0.0]])


def decisions() -> Decisions:
    return Decisions(sp.csr_matrix(TRUTH, dtype=np.float32), sp.csr_matrix(CHANCES))


def test_labels_by_hand():
    """At 0.5: labels 0 and 2; 0; 2; 1 and 2."""
    report = decisions().per_label(0.5)
    assert report.labels.tolist() == [0, 1, 2]  # the last one does not occur
    assert report.support.tolist() == [3, 2, 0]
    assert report.predicted.tolist() == [2, 1, 3]
    assert report.precision.tolist() == [1, 0, 0]
    assert report.recall.tolist() == pytest.approx([2 / 3, 0, 0])
    assert report.f1.tolist() == pytest.approx([4 / 5, 0, 0])
    # Label 0 is missed once, where 1 and 2 are predicted; label 1 twice, where 2 is.
    assert report.confusions.toarray().tolist() == [[0, 1, 1, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    assert decisions().per_label(0.5, others=1).confusions.indices.tolist() == [1, 2]
    assert decisions().per_label(1).confusions.nnz == 0  # nothing is predicted


@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_like_scikit_learn(seed, threshold):
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    truth = random.random((9, 6)) < 0.3
    chances = np.where(random.random((9, 6)) < 0.6, random.integers(1, 5, (9, 6)) / 4, 0)
    made = Decisions(sp.csr_matrix(truth, dtype=np.float32), sp.csr_matrix(chances))
    guessed = (chances > 0) & (chances >= threshold)
    present = np.flatnonzero(truth.any(axis=0) | guessed.any(axis=0))
    found = made.summary(threshold)
    if not len(present):
        assert found["macro"] == {"precision": 0, "recall": 0, "f1": 0}
        return
    for average in ("micro", "macro"):
        values = sklearn.precision_recall_fscore_support(
            truth[:, present].astype(int), guessed[:, present].astype(int), average=average, zero_division=0
        )
        assert list(found[average].values()) == pytest.approx(values[:3])


def test_the_curve_agrees_with_the_summary():
    curve = decisions().curve()
    for threshold, precision, recall, f1 in zip(*curve, strict=True):
        found = decisions().summary(threshold)["micro"]
        assert (found["precision"], found["recall"], found["f1"]) == pytest.approx((precision, recall, f1))


#: Probabilities of six labels, which of them are right, and one more true label that is not among them.
PROBABILITIES = np.array([0.2, 0.9, 0.4, 0.6, 0.4, 0.1])
RIGHT = np.array([True, True, False, True, True, False])
N_TRUE = 5


def test_the_curve_by_hand():
    curve = curve_of(PROBABILITIES, RIGHT, N_TRUE)
    assert curve.thresholds.tolist() == [0.9, 0.6, 0.4, 0.2, 0.1]
    assert curve.precision.tolist() == [1, 1, 3 / 4, 4 / 5, 4 / 6]  # both labels of 0.4 come together
    assert curve.recall.tolist() == [1 / 5, 2 / 5, 3 / 5, 4 / 5, 4 / 5]
    assert curve.f1.tolist() == pytest.approx([2 / 6, 4 / 7, 6 / 9, 8 / 10, 8 / 11])


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("f1", 0.15),
        ("precision=1", 0.5),
        ("precision=0.8", 0.15),
        ("precision=0.5", 0.1),  # all labels reach it, so the lowest probability is enough
        ("recall=0.4", 0.5),
        ("recall=0.6", 0.3),
        ("recall=1", 0.15),  # can't be reached: the highest threshold that comes closest
    ],
)
def test_the_best_by_hand(goal, expected):
    assert best_threshold(PROBABILITIES, RIGHT, N_TRUE, ThresholdGoal.of(goal)) == pytest.approx(expected)


def test_a_goal_that_is_never_reached():
    right = np.array([False, True, False])
    assert best_threshold(np.array([0.9, 0.8, 0.2]), right, 1, ThresholdGoal("precision", 0.9)) == 0.5
    for n in (0, 2):  # nothing right shows nothing
        assert best_threshold(np.full(n, 0.9), np.zeros(n, dtype=bool), 3, ThresholdGoal("f1")) is None


@given(
    pairs=st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=30),
    missed=st.integers(0, 5),
)
def test_no_threshold_has_a_higher_f1(pairs, missed):
    chances = np.array([chance / 20 for chance, _ in pairs], dtype=np.float32)
    right = np.array([each for _, each in pairs])
    n_true = int(right.sum()) + missed
    found = best_threshold(chances, right, n_true, ThresholdGoal("f1"))
    if found is None:
        assert not right.any()
        return

    def f1(threshold: float) -> float:
        predicted = chances >= threshold
        return 2 * (predicted & right).sum() / (predicted.sum() + n_true)

    assert f1(found) == max(map(f1, chances.tolist()))
