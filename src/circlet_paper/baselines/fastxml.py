"""FastXML: a forest whose nodes divide documents by the nDCG of their labels (Prabhu and Varma, 2014)."""

from __future__ import annotations

from collections.abc import Callable

import scipy.sparse as sp

from circlet_paper.baselines.forest import Forest, grow_forest
from circlet_paper.baselines.trees import TreeSettings, prepared

__all__ = ["FastXML"]


class FastXML:
    """Learn a forest from sparse rows and rank labels by the mean of the leaves that a row reaches.

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
        self.forest_ = self._grow(prepared(X, self.settings), Y.astype(float), progress)
        return self

    def _grow(
        self,
        X: sp.csr_matrix,
        Y: sp.csr_matrix,
        progress: Callable[[int], None] | None,
        *,
        normalized: bool = True,
    ) -> Forest:
        return grow_forest(
            X, Y, self.settings, self.seed, normalized=normalized, processes=self.processes, progress=progress
        )

    def scores(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Scores of the labels that have any, `(n, n_labels)`."""
        return self.forest_.scores(prepared(X, self.settings))

    @property
    def nbytes(self) -> int:
        """Size of the model."""
        return self.forest_.nbytes
