"""Trees over documents, as FastXML and PfastreXML grow them (Prabhu and Varma, 2014; Jain et al., 2016).

A node splits its documents in two steps. The first looks at labels only: each side ranks the labels by how often
its documents have them, each document moves to the side whose ranking suits its labels better, and so on until
nothing improves (`partition`). The second learns to tell the sides apart by the documents' features, with
L1-regularized logistic regression (`separate`), and sends each document where that says. Nodes with few documents
are leaves, and so are those that can't be split; a leaf keeps the mean label vector of its documents. A new
document gets the mean of the leaves that it reaches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.features import Scaling

__all__ = ["Tree", "TreeSettings", "grow", "partition", "prepared", "separate"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

#: The partition stops when the mean nDCG gains less than this.
LEAST_GAIN = 1e-6
#: The authors' solver takes at most this many steps of Newton's method.
NEWTON_STEPS = 10
#: liblinear's number for logistic regression with an L1 norm.
L1_LOGISTIC = 6


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown; the defaults are those of the authors' programs, except `scaling`.

    Parameters
    ----------
    trees : int
    max_leaf : int
        A node of more documents is split.
    labels_in_leaf : int
        The number of labels that a leaf keeps.
    bias : float
        Value of a feature that every document gets.
    cost : float
        Weight of the logistic loss against the L1 norm. Both sides of a split weigh the same in total.
    tolerance : float
        Where the logistic regression stops, relative to the first gradient.
    scaling : str
        "l2" for rows of length 1, "none" for rows as they are.
    """

    trees: int = 50
    max_leaf: int = 10
    labels_in_leaf: int = 100
    bias: float = 1.0
    cost: float = 1.0
    tolerance: float = 0.01
    scaling: str = "l2"


@dataclass(frozen=True)
class Tree:
    """Nodes from the root, which is 0, and leaves.

    Parameters
    ----------
    weights : csr_matrix of shape (nodes, features and bias)
        The separator of each node.
    children : int64 ndarray of shape (nodes, 2)
        Where a document goes whose product with the weights is negative, or not: a node, or −1 − a leaf.
    leaves : csr_matrix of shape (leaves, labels)
    """

    weights: sp.csr_matrix
    children: Ints
    leaves: sp.csr_matrix

    def leaf_of(self, X: sp.csr_matrix) -> Ints:
        """The leaf that each row, with its bias, reaches."""
        place = np.full(X.shape[0], 0 if len(self.children) else -1, dtype=np.int64)
        while len(inside := np.flatnonzero(place >= 0)):
            nodes = place[inside]
            products = X[inside].multiply(self.weights[nodes]).sum(axis=1)
            place[inside] = self.children[nodes, (np.asarray(products).ravel() >= 0).astype(np.int64)]
        return -1 - place


def prepared(X: sp.csr_matrix, settings: TreeSettings) -> sp.csr_matrix:
    """Scaled rows with their bias, in the precision that liblinear wants."""
    rows = Scaling(settings.scaling).transform(X)
    column = np.full((X.shape[0], 1), settings.bias)
    return sp.hstack([sp.csr_matrix(rows, dtype=np.float64), column], format="csr")


def partition(Y: sp.csr_matrix, random: np.random.Generator, *, normalized: bool = True) -> Bools:
    """Divide documents by their labels, so that one ranking of the labels for each side suits its documents.

    Starts at random. A label's gain in a document is what the matrix has there, discounted by the logarithm of the
    label's rank as in DCG. For nDCG, a document's gains are divided by the best DCG that labels of gain 1 allow.

    Parameters
    ----------
    Y : csr_matrix of shape (n, n_labels)
    random : Generator
    normalized : bool
        Whether to maximize nDCG instead of DCG.

    Returns
    -------
    bool ndarray of shape (n,)
        The side of each document. It may be the same one for all.
    """
    n, n_labels = Y.shape
    side = random.random(n) < 0.5
    sizes = np.diff(Y.indptr)
    row, label = np.repeat(np.arange(n), sizes), Y.indices
    discounts = 1 / np.log2(np.arange(n_labels) + 2)
    gains = Y.data / np.concatenate([[1], np.cumsum(discounts)])[sizes][row] if normalized else Y.data
    total, before = np.bincount(label, gains, n_labels), -np.inf
    while True:
        right = np.bincount(label, gains * side[row], n_labels)
        quality, advantage = 0.0, np.zeros(n_labels)
        for sums, sign in ((right, 1), (total - right, -1)):
            order = np.argsort(-sums, kind="stable")
            advantage[order] += sign * discounts
            quality += float(discounts @ sums[order]) / n
        # A document that both rankings suit alike stays where it is.
        better = np.bincount(row, gains * advantage[label], n)
        side = np.where(better == 0, side, better > 0)
        if quality - before < LEAST_GAIN:
            return side
        before = quality


def separate(X: sp.csr_matrix, side: Bools, settings: TreeSettings, seed: int) -> Floats:
    """Weights whose product with a row is positive on one side; both sides must have documents.

    scikit-learn's binding to liblinear is called directly. A tree has thousands of nodes with a dozen documents,
    for which the checks of `LogisticRegression` take ten times as long as learning.
    """
    from sklearn.svm import _liblinear

    counts = np.bincount(side, minlength=2)
    _liblinear.set_verbosity_wrap(0)
    weights, _ = _liblinear.train_wrap(
        X,
        side.astype(np.float64),
        True,  # sparse
        L1_LOGISTIC,
        settings.tolerance,
        -1.0,  # no bias of its own
        settings.cost,
        len(side) / counts,
        NEWTON_STEPS,
        seed,
        0.0,  # for regression only
        np.ones(len(side)),
    )
    found: Floats = weights[0]
    return found


def _compact(matrix: sp.csr_matrix, rows: Ints) -> tuple[sp.csr_matrix, Ints]:
    """Some rows without the columns in which they are all zero, and the columns that are left."""
    part = matrix[rows]
    used = np.zeros(matrix.shape[1], dtype=np.bool_)
    used[part.indices] = True
    columns = np.flatnonzero(used)
    place = np.cumsum(used, dtype=part.indices.dtype) - 1
    return sp.csr_matrix((part.data, place[part.indices], part.indptr), (len(rows), len(columns))), columns


def grow(
    X: sp.csr_matrix, Y: sp.csr_matrix, settings: TreeSettings, seed: Sequence[int], *, normalized: bool = True
) -> Tree:
    """Grow a tree.

    Parameters
    ----------
    X : csr_matrix of shape (n, n_features)
        With its bias.
    Y : csr_matrix of shape (n, n_labels)
        What each label of each document is worth, as float64.
    settings : TreeSettings
    seed : sequence of int
    normalized : bool
        As in `partition`.
    """
    random = np.random.default_rng(seed)
    growing = _Growing(X, Y, settings)
    # What is to do: the documents of a node, and where the link to it is written.
    todo: deque[tuple[Ints, tuple[int, int] | None]] = deque([(np.arange(X.shape[0]), None)])
    while todo:
        rows, link = todo.popleft()
        side = None
        if len(rows) > settings.max_leaf:
            labels, _ = _compact(Y, rows)
            side = partition(labels, random, normalized=normalized)
            seed_of_node = int(random.integers(1 << 31))
            side = growing.split(rows, side, seed_of_node, link)
        if side is None:
            growing.leaf(rows, link)
        else:
            node = len(growing.children) - 1
            todo += [(rows[~side], (node, 0)), (rows[side], (node, 1))]
    return growing.tree()


class _Growing:
    """A tree as it grows, one node after the other."""

    def __init__(self, X: sp.csr_matrix, Y: sp.csr_matrix, settings: TreeSettings) -> None:
        self.X, self.Y, self.settings = X, Y, settings
        self.children: list[list[int]] = []
        self.weights: list[tuple[Ints, Floats]] = []
        self.leaves: list[tuple[Ints, Floats]] = []

    def split(self, rows: Ints, side: Bools, seed: int, link: tuple[int, int] | None) -> Bools | None:
        """Add a node that separates the sides; gives where it sends each document, or None if to one side only."""
        if side.all() or not side.any():
            return None
        part, columns = _compact(self.X, rows)
        weights = separate(part, side, self.settings, seed)
        sent: Bools = part @ weights >= 0
        if sent.all() or not sent.any():
            return None
        self._link(link, len(self.children))
        self.children.append([0, 0])
        kept = np.flatnonzero(weights)
        self.weights.append((columns[kept], weights[kept]))
        return sent

    def leaf(self, rows: Ints, link: tuple[int, int] | None) -> None:
        """Add a leaf with the labels that are worth the most."""
        self._link(link, -1 - len(self.leaves))
        labels, columns = _compact(self.Y, rows)
        means = np.asarray(labels.sum(axis=0)).ravel() / len(rows)
        best = np.sort(np.argsort(-means, kind="stable")[: self.settings.labels_in_leaf])
        self.leaves.append((columns[best], means[best]))

    def _link(self, link: tuple[int, int] | None, target: int) -> None:
        if link is not None:
            self.children[link[0]][link[1]] = target

    def tree(self) -> Tree:
        """The tree, in the precision that it is kept in."""
        return Tree(
            _stacked(self.weights, self.X.shape[1]),
            np.array(self.children, dtype=np.int64).reshape(-1, 2),
            _stacked(self.leaves, self.Y.shape[1]),
        )


def _stacked(rows: list[tuple[Ints, Floats]], width: int) -> sp.csr_matrix:
    ends = np.cumsum([0, *(len(columns) for columns, _ in rows)])
    columns = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for columns, _ in rows)])
    values = np.concatenate([np.zeros(0), *(values for _, values in rows)]).astype(np.float32)
    return sp.csr_matrix((values, columns, ends), shape=(len(rows), width))
