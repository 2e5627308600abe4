"""Trees solved by hand, forests of them, and what FastXML and PfastreXML learn from a small dataset."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.features import Scaling
from circlet.metrics import evaluate, inverse_propensity
from circlet_paper.forests import (
    FastXML,
    Forest,
    PfastreXML,
    Tree,
    TreeSettings,
    grow,
    grow_forest,
    partition,
    prepared,
    reranked,
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


def test_scores_are_means_of_leaves():
    def tree(weight: float, *leaves: list[float]) -> Tree:
        matrix = sp.csr_matrix(np.array(leaves, dtype=np.float32))
        return Tree(sp.csr_matrix([[weight, -1.0]]), np.array([[-1, -2]]), matrix)

    forest = Forest([tree(1.0, [1, 0], [0, 1]), tree(0.5, [0.5, 0], [0, 0.5])])
    # With a bias of 1, a row of 1.5 is right in the first tree and left in the second.
    scores = forest.scores(prepared(sp.csr_matrix([[1.5], [3.0], [0.0]]), AS_IS))
    np.testing.assert_allclose(scores.toarray(), [[0.25, 0.5], [0, 0.75], [0.75, 0]])
    assert forest.nbytes > 0


def test_a_tree_that_is_one_leaf():
    leaf = Tree(sp.csr_matrix((0, 2)), np.zeros((0, 2), dtype=np.int64), sp.csr_matrix([[0.5, 0.25]]))
    np.testing.assert_array_equal(Forest([leaf]).scores(sp.csr_matrix((2, 2))).toarray(), [[0.5, 0.25]] * 2)


def test_processes_grow_the_same_trees(synthetic):
    X, Y = prepared(synthetic.train.X[:200], AS_IS), synthetic.train.Y[:200].astype(float)
    done: list[int] = []
    one = grow_forest(X, Y, TreeSettings(trees=3), 5)
    two = grow_forest(X, Y, TreeSettings(trees=3), 5, processes=2, progress=done.append)
    assert done == [1, 2, 3]
    for first, second in zip(one.trees, two.trees, strict=True):
        np.testing.assert_array_equal(first.children, second.children)
        assert (first.weights != second.weights).nnz == 0
        assert (first.leaves != second.leaves).nnz == 0
    assert (
        one.trees[0].children.shape != one.trees[1].children.shape
        or (one.trees[0].weights != one.trees[1].weights).nnz
    )


FEW = TreeSettings(trees=4)


def popular(Y: sp.csr_matrix, n: int) -> np.ndarray:
    """The five most frequent labels, for each of n documents."""
    order = np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:5]
    return np.tile(order, (n, 1))


def test_beats_the_most_frequent_labels(synthetic):
    train, test = synthetic.train.take(np.arange(400)), synthetic.test
    model = FastXML(FEW).fit(train.X, train.Y)
    found = evaluate(test.Y, model.scores(test.X), None, (1, 5), metrics=("P",))
    least = evaluate(test.Y, popular(train.Y, test.n), None, (1, 5), metrics=("P",))
    assert found["P@1"] > 1.5 * least["P@1"]
    assert found["P@5"] > 1.2 * least["P@5"]


def test_the_seed_determines_the_forest(synthetic):
    train, rows = synthetic.train.take(np.arange(120)), synthetic.test.X[:50]
    first, same, other = (
        FastXML(TreeSettings(trees=2), seed=seed).fit(train.X, train.Y).scores(rows) for seed in (0, 0, 1)
    )
    assert (first != same).nnz == 0
    assert (first != other).nnz > 0


def test_scores_are_probabilities(synthetic):
    train = synthetic.train.take(np.arange(120))
    scores = FastXML(TreeSettings(trees=2)).fit(train.X, train.Y).scores(train.X)
    assert scores.shape == train.Y.shape
    assert scores.data.min() > 0
    assert scores.data.max() <= 1


class TestRerank:
    def test_by_hand(self):
        scores = sp.csr_matrix([[0.5, 0.25, 0.0], [0.0, 0.0, 1.0]])
        X = sp.csr_matrix([[1.0, 0.0], [0.6, 0.8]])
        centroids = sp.csr_matrix([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
        found = reranked(scores, X, centroids, alpha=0.8, gamma=2.0)
        # Squared distances: 2 and 0 for the first document, 0 for the second.
        far = 0.8 * math.log(0.5) + 0.2 * math.log(1 / (1 + math.exp(2 * 2)))
        near = 0.8 * math.log(0.25) + 0.2 * math.log(1 / 2)
        assert found[0, 0] == pytest.approx(far)
        assert found[0, 1] == pytest.approx(near)
        assert found[1, 2] == pytest.approx(0.2 * math.log(0.5))
        assert found.nnz == 3  # a label without a score stays without

    def test_shares(self):
        scores = sp.csr_matrix([[0.5, 0.25]])
        X, centroids = sp.csr_matrix([[1.0, 0.0]]), sp.csr_matrix([[0.0, 1.0], [1.0, 0.0]])
        best = [int(np.argmax(reranked(scores, X, centroids, alpha, 30.0).toarray())) for alpha in (1.0, 0.0)]
        assert best == [0, 1]

    def test_large_distances_overflow_nothing(self):
        X = sp.csr_matrix([[1e3]])
        found = reranked(sp.csr_matrix([[0.5]]), X, sp.csr_matrix([[-1e3]]), 0.5, 30.0)
        assert found[0, 0] == pytest.approx(0.5 * math.log(0.5) - 0.5 * 30 * 4e6)

    def test_more_rows_than_a_block(self):
        random = np.random.default_rng(0)
        scores, X, centroids = (
            sp.csr_matrix(random.random(shape) * (random.random(shape) < 0.5))
            for shape in ((600, 5), (600, 4), (5, 4))
        )
        found = reranked(scores, X, centroids, 0.8, 3.0)
        alone = reranked(scores[[599]], X[[599]], centroids, 0.8, 3.0)
        np.testing.assert_allclose(found[[599]].toarray(), alone.toarray())


class TestPfastreXML:
    def test_weights_and_centroids_by_hand(self):
        X = sp.csr_matrix([[0.0, 0.0], [math.sqrt(3), 0.0]])
        Y = sp.csr_matrix([[1.0, 0, 0], [1, 1, 0]])
        model = PfastreXML(np.array([2.0, 5.0, 9.0]), TreeSettings(trees=1, scaling="none")).fit(X, Y)
        # One leaf, of both documents: means of the labels, times their weights.
        np.testing.assert_allclose(model.forest_.trees[0].leaves.toarray(), [[2.0, 2.5, 0]])
        # With its bias of 1, the second row has the length 2. Nobody has the last label.
        half = math.sqrt(3) / 2
        np.testing.assert_allclose(
            model.centroids_.toarray(), [[half / 2, 0, 0.75], [half, 0, 0.5], [0, 0, 0]], atol=1e-6
        )
        assert model.nbytes > model.forest_.nbytes
        # What is combined are probabilities again: 1 for label 0, of two documents, and 1/2 for label 1.
        rows = Scaling("l2").transform(prepared(X, model.settings))
        by_hand = reranked(sp.csr_matrix([[1.0, 0.5, 0]] * 2), rows, model.centroids_, 0.8, 30.0)
        np.testing.assert_allclose(model.scores(X).toarray(), by_hand.toarray(), rtol=1e-6)

    def test_finds_rare_labels(self, synthetic):
        train, test = synthetic.train.take(np.arange(400)), synthetic.test
        weights, settings = inverse_propensity(train.Y), TreeSettings(trees=4)
        fast, rare = (
            evaluate(test.Y, model.fit(train.X, train.Y).scores(test.X), weights, (1, 5), metrics=("P", "PSP"))
            for model in (FastXML(settings), PfastreXML(weights, settings))
        )
        assert rare["PSP@1"] > fast["PSP@1"]
        assert rare["PSP@5"] > fast["PSP@5"]
