"""Forests: scores by hand, and the same trees from one process and from two."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from circlet_paper.baselines.forest import Forest, grow_forest
from circlet_paper.baselines.trees import Tree, TreeSettings, prepared

#: Rows as they are given.
AS_IS = TreeSettings(scaling="none")


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
