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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.errors import CircletError
from circlet.features import Scaling

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


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
        if quality - before < 1e-6:
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
        6,  # logistic regression with an L1 norm
        settings.tolerance,
        -1.0,  # no bias of its own
        settings.cost,
        len(side) / counts,
        10,  # steps of Newton's method at most, as in the authors' solver
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


@dataclass(frozen=True)
class Forest:
    """Trees that were grown from the same rows."""

    trees: Sequence[Tree]

    def scores(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Mean of the leaves that each row, with its bias, reaches: `(n, n_labels)`."""
        leaves = sp.vstack([tree.leaves for tree in self.trees], format="csr")
        first = np.cumsum([0, *(tree.leaves.shape[0] for tree in self.trees[:-1])])
        reached = np.stack([tree.leaf_of(X) for tree in self.trees], axis=1) + first
        ends = len(self.trees) * np.arange(X.shape[0] + 1)
        each = np.full(reached.size, 1 / len(self.trees))
        return sp.csr_matrix((each, reached.ravel(), ends), shape=(X.shape[0], leaves.shape[0])) @ leaves

    @property
    def nbytes(self) -> int:
        """Size of all weights, leaves and links."""
        matrices = (m for tree in self.trees for m in (tree.weights, tree.leaves))
        return sum(bytes_of(m) for m in matrices) + sum(tree.children.nbytes for tree in self.trees)


def bytes_of(matrix: sp.csr_matrix) -> int:
    """Size of a sparse matrix in memory."""
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


#: What a process of `grow_forest` grows its trees with; set once, because the rows are large.
_grow: Callable[[Sequence[int]], Tree] | None = None


def _prepare(X: sp.csr_matrix, Y: sp.csr_matrix, settings: TreeSettings, normalized: bool) -> None:
    global _grow  # noqa: PLW0603 — a process of its own
    _grow = partial(grow, X, Y, settings, normalized=normalized)


def _grow_one(seed: Sequence[int]) -> Tree:
    assert _grow is not None
    return _grow(seed)


def grow_forest(
    X: sp.csr_matrix,
    Y: sp.csr_matrix,
    settings: TreeSettings,
    seed: int,
    *,
    normalized: bool = True,
    processes: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Forest:
    """Grow all trees; the same ones, whatever the number of processes. `progress` gets how many are grown."""
    seeds = [(seed, tree) for tree in range(settings.trees)]
    if processes == 1:
        made = (grow(X, Y, settings, each, normalized=normalized) for each in seeds)
        return Forest(list(_watched(made, progress)))
    # Not fork: a process that has used a GPU or threads can't be forked safely.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_prepare, initargs=(X, Y, settings, normalized)
    ) as pool:
        try:
            return Forest(list(_watched(pool.map(_grow_one, seeds), progress)))
        except BrokenProcessPool as error:
            raise CircletError("a process that grew trees was killed, perhaps because memory ran out") from error


def _watched(trees: Iterator[Tree], progress: Callable[[int], None] | None) -> Iterator[Tree]:
    for done, tree in enumerate(trees, start=1):
        if progress is not None:
            progress(done)
        yield tree


class FastXML:
    """Learn a forest from sparse rows and rank labels by the mean of the leaves that a row reaches.

    Its nodes divide documents by the nDCG of their labels (Prabhu and Varma, 2014).

    Parameters
    ----------
    settings : TreeSettings, optional
    seed : int
        Determines where the partition of each node starts, and the order in which its separator is learned.
    processes : int
        How many trees grow at the same time; they are the same trees for any number.
    """

    def __init__(self, settings: TreeSettings | None = None, *, seed: int = 0, processes: int = 1) -> None:
        self.settings = settings or TreeSettings()
        self.seed, self.processes = seed, processes

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix, progress: Callable[[int], None] | None = None) -> FastXML:
        """Grow the trees from features `(n, n_features)` and labels `(n, n_labels)` of zeros and ones."""
        self.forest_ = grow_forest(
            prepared(X, self.settings), Y.astype(float), self.settings, self.seed,
            processes=self.processes, progress=progress,
        )  # fmt: skip
        return self

    def scores(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Scores of the labels that have any, `(n, n_labels)`."""
        return self.forest_.scores(prepared(X, self.settings))

    @property
    def nbytes(self) -> int:
        """Size of the model."""
        return self.forest_.nbytes


#: Rows whose similarity to all centroids is computed at once.
_BLOCK = 256


class PfastreXML(FastXML):
    """Learn a forest for rare labels, and a centroid for each label to rank again (Jain, Prabhu and Varma, 2016).

    What the paper leaves open follows the authors' program, with one exception. Labels are weighed by their
    inverse propensities, in the leaves too, and the gain of a partition is not divided by the best possible
    one. The centroid of a label is the mean of its documents' rows, each with its bias and scaled to length 1.
    The exception: centroids are combined with probabilities, as in the paper's formula; the program leaves
    these multiplied by the inverse propensities. On held-out training rows of Delicious that was better for
    frequent and for rare labels.

    Parameters
    ----------
    weights : ndarray of shape (n_labels,)
        Inverse propensities.
    settings, seed, processes
        As in `FastXML`.
    alpha : float
        Share of the trees in the logarithm of a score; the rest belongs to the centroids.
    gamma : float
        How fast a centroid's probability falls with the distance.
    """

    def __init__(
        self,
        weights: npt.NDArray[np.float64],
        settings: TreeSettings | None = None,
        *,
        seed: int = 0,
        processes: int = 1,
        alpha: float = 0.8,
        gamma: float = 30.0,
    ) -> None:
        super().__init__(settings, seed=seed, processes=processes)
        self.weights, self.alpha, self.gamma = weights, alpha, gamma

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix, progress: Callable[[int], None] | None = None) -> PfastreXML:
        rows = prepared(X, self.settings)
        self.forest_ = grow_forest(
            rows, _times(Y, self.weights), self.settings, self.seed,
            normalized=False, processes=self.processes, progress=progress,
        )  # fmt: skip
        counts = np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), 1)
        means = _times(Y, 1 / counts).T @ Scaling("l2").transform(rows)
        self.centroids_ = sp.csr_matrix(means, dtype=np.float32)
        return self

    def scores(self, X: sp.csr_matrix) -> sp.csr_matrix:
        rows = Scaling("l2").transform(prepared(X, self.settings))
        worth = super().scores(X)
        worth.data /= self.weights[worth.indices]
        return reranked(worth, rows, self.centroids_, self.alpha, self.gamma)

    @property
    def nbytes(self) -> int:
        """Size of the model."""
        return super().nbytes + bytes_of(self.centroids_)


def _times(Y: sp.csr_matrix, of_label: npt.NDArray[np.float64]) -> sp.csr_matrix:
    """The labels' matrix with a number for each label instead of its ones."""
    return sp.csr_matrix((of_label[Y.indices], Y.indices, Y.indptr), shape=Y.shape)


def reranked(
    scores: sp.csr_matrix, X: sp.csr_matrix, centroids: sp.csr_matrix, alpha: float, gamma: float
) -> sp.csr_matrix:
    """Scores s of the trees and distances d to the centroids as one: α log s + (1 − α) log 1 / (1 + exp γ d²).

    Only labels that have a score are ranked.
    """
    scores = scores.tocsr()
    own = np.asarray(centroids.multiply(centroids).sum(axis=1)).ravel()
    length = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    logs = np.empty(scores.nnz)
    for start in range(0, X.shape[0], _BLOCK):
        block = slice(start, start + _BLOCK)
        some = scores[block]
        row = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        products = (X[block] @ centroids.T).toarray()[row, some.indices]
        squares = length[block][row] + own[some.indices] - 2 * products
        at = slice(scores.indptr[start], scores.indptr[start] + some.nnz)
        logs[at] = alpha * np.log(some.data) - (1 - alpha) * np.logaddexp(0, gamma * squares)
    return sp.csr_matrix((logs, scores.indices, scores.indptr), shape=scores.shape)
