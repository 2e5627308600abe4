"""Forests: trees that are grown from the same rows, several at a time, and ranked by together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import scipy.sparse as sp

from circlet.errors import CircletError
from circlet_paper.baselines.trees import Tree, TreeSettings, grow

__all__ = ["Forest", "bytes_of", "grow_forest"]


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
