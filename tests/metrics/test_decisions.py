from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from circlet.metrics.decisions import Decisions

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


def test_all_decisions_by_hand():
    found = decisions().summary(0.5)
    assert found["micro"] == pytest.approx({"precision": 2 / 6, "recall": 2 / 5, "f1": 4 / 11})
    assert found["macro"] == pytest.approx({"precision": 1 / 3, "recall": 2 / 9, "f1": 4 / 15})


def test_nothing_is_predicted():
    found = decisions().summary(1)
    assert found["micro"] == {"precision": 0, "recall": 0, "f1": 0}
    assert decisions().per_label(1).confusions.nnz == 0


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
