"""Trees: nodes solved by hand, and degenerate ones."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet_paper.baselines.trees import (
    TreeSettings,
    grow,
    partition,
    prepared,
    separate,
)

#: Rows as they are given.
AS_IS = TreeSettings(scaling="none")


class Fixed:
    """Instead of a generator: gives numbers that start the partition on known sides."""

    def __init__(self, *right: int) -> None:
        self.right = right

    def random(self, n: int) -> np.ndarray:
        return np.where(np.isin(np.arange(n), self.right), 0.0, 1.0)


def labels(*rows: list[float]) -> sp.csr_matrix:
    return sp.csr_matrix(np.array(rows, dtype=float))


def partitioned(Y: sp.csr_matrix, *right: int, normalized: bool = True) -> list[bool]:
    return partition(Y, Fixed(*right), normalized=normalized).tolist()  # type: ignore[arg-type]


class TestPartition:
    def test_documents_move_to_the_ranking_that_suits_them(self):
        # Right starts with documents 0, 1 and 2 and ranks label 0 first; left, with 3 only, ranks label 1 first.
        Y = labels([1, 0], [1, 0], [0, 1], [0, 1])
        assert partitioned(Y, 0, 1, 2) == [True, True, False, False]
        # The other way round, if it starts so.
        assert partitioned(Y, 2, 3, 0) == [False, False, True, True]

    def test_a_document_that_both_rankings_suit_alike_stays(self):
        Y = labels([1, 0], [0, 1], [0, 0], [1, 1], [0, 0])
        # Of both labels, each ranking has one first and one second.
        assert partitioned(Y, 0, 3, 4) == [True, False, False, True, True]

    def test_labels_count_less_in_documents_with_many_of_them(self):
        # Right starts with two documents of three labels and one of label 3 only. Each of the three labels gains
        # 2 · 0.469 there, so label 3, which gains 1, comes first, and document 4 moves there. If all gains are 1,
        # label 3 is the last one on the right and the second one on the left, and document 4 stays.
        Y = labels([1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1])
        assert 1 / (1 + 1 / np.log2(3) + 1 / 2) == pytest.approx(0.469, abs=1e-3)
        assert partitioned(Y, 0, 1, 2)[4]
        assert not partitioned(Y, 0, 1, 2, normalized=False)[4]

    def test_gains_decide_the_rankings(self):
        # With equal gains both sides rank label 0 first, and nothing moves. If label 1 is worth half as much more,
        # it comes first on the right, where one document has both, but not on the left: document 3 moves.
        plain = labels([1, 1], [1, 0], [1, 0], [0, 1])
        assert partitioned(plain, 0, normalized=False) == [True, False, False, False]
        weighted = plain.multiply(np.array([1, 1.5])).tocsr()
        assert partitioned(weighted, 0, normalized=False) == [True, False, False, True]

    def test_without_labels_nothing_moves(self):
        assert partitioned(sp.csr_matrix((3, 4)), 1) == [False, True, False]
        assert partitioned(sp.csr_matrix((3, 0)), 1) == [False, True, False]


class TestSeparate:
    def test_separates_by_the_feature_that_tells_the_sides_apart(self):
        X = prepared(sp.csr_matrix([[3.0, 1, 0], [2, 0, 1], [0, 1, 0], [0, 0, 1]] * 3), AS_IS)
        side = np.array([True, True, False, False] * 3)
        weights = separate(X, side, TreeSettings(), 0)
        assert ((X @ weights >= 0) == side).all()
        # The L1 norm keeps nothing of what says nothing.
        assert weights[0] > 0
        assert weights[1] == weights[2] == 0

    def test_agrees_with_scikit_learn(self):
        from sklearn.linear_model import LogisticRegression

        random = np.random.default_rng(0)
        X, side = sp.random(60, 8, 0.5, format="csr", random_state=1), random.random(60) < 0.3
        penalty: dict[str, Any] = {"penalty": "l1"}
        if inspect.signature(LogisticRegression).parameters["penalty"].default == "deprecated":
            penalty = {"l1_ratio": 1.0}
        # "balanced" gives each side half the weight that it has here.
        model = LogisticRegression(
            **penalty, C=2, class_weight="balanced", solver="liblinear", fit_intercept=False, tol=1e-8
        )
        found = separate(X, side, TreeSettings(tolerance=1e-8), 0)
        np.testing.assert_allclose(found, model.fit(X, side).coef_[0], atol=1e-3)
        assert np.abs(found).max() > 0.1

    def test_sides_weigh_the_same(self):
        # Without any feature but the bias, 9 against 1 are as likely as 1 against 1.
        X = prepared(sp.csr_matrix((10, 1)), AS_IS)
        assert separate(X, np.arange(10) == 0, TreeSettings(tolerance=1e-6), 0) == pytest.approx([0, 0], abs=1e-3)


def two_kinds(n: int = 24) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Documents with feature 0 and labels 0 and 1, or with feature 1 and labels 2 and 3."""
    kind = np.arange(n) % 2
    X = np.stack([kind == 0, kind == 1], axis=1) * 2.0
    Y = np.stack([kind == 0, kind == 0, kind == 1, kind == 1], axis=1).astype(float)
    return prepared(sp.csr_matrix(X), AS_IS), sp.csr_matrix(Y)


class TestGrow:
    def test_one_split_by_hand(self):
        X, Y = two_kinds()
        tree = grow(X, Y, TreeSettings(max_leaf=12), (0, 0))
        assert tree.children.tolist() in ([[-1, -2]], [[-2, -1]])
        leaves = tree.leaves.toarray()[tree.leaf_of(X)]
        np.testing.assert_array_equal(leaves, Y.toarray())

    def test_a_leaf_keeps_the_labels_that_are_worth_the_most(self):
        X, Y = two_kinds(4)
        Y = Y.multiply(np.array([1.0, 5, 2, 3])).tocsr()
        tree = grow(X, Y, TreeSettings(labels_in_leaf=2), (0, 0))
        assert tree.children.shape == (0, 2)
        np.testing.assert_array_equal(tree.leaves.toarray(), [[0, 2.5, 0, 1.5]])

    @pytest.mark.parametrize("case", ["same rows", "same labels", "no labels", "no features"])
    def test_what_cannot_be_split_is_a_leaf(self, case):
        X, Y = two_kinds()
        if case == "same rows":
            X = prepared(sp.csr_matrix(np.ones((24, 2))), AS_IS)
        elif case == "same labels":
            Y = sp.csr_matrix(np.ones((24, 4)))
        elif case == "no labels":
            Y = sp.csr_matrix((24, 4))
        else:
            X = prepared(sp.csr_matrix((24, 2)), AS_IS)
        tree = grow(X, Y, TreeSettings(max_leaf=5), (0, 0))
        reached = tree.leaves.toarray()[tree.leaf_of(X)]
        # Whatever the splits: each document has the mean of its leaf, and all leaves together the labels' counts.
        assert tree.leaves.shape[0] == len(tree.children) + 1
        np.testing.assert_allclose(reached.sum(axis=0), Y.toarray().sum(axis=0))
        if case in ("same rows", "no features"):
            assert len(tree.children) == 0

    def test_some_documents_without_labels(self):
        X, Y = two_kinds()
        Y = Y.tolil()
        Y[:6] = 0
        tree = grow(X, Y.tocsr(), TreeSettings(max_leaf=12), (0, 0))
        reached = tree.leaves.toarray()[tree.leaf_of(X)]
        np.testing.assert_array_equal(reached > 0, two_kinds()[1].toarray() > 0)


def test_rows_are_scaled_first():
    rows = prepared(sp.csr_matrix([[3.0, 4.0], [0.0, 0.0]]), TreeSettings(bias=2.0))
    np.testing.assert_allclose(rows.toarray(), [[0.6, 0.8, 2], [0, 0, 2]], atol=1e-7)
