"""Training rows in batches, gathered by compiled code and prepared while the step before runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from circlet.encoders import SparseRows
from circlet.errors import ParameterError
from circlet.losses import LabelSets

if TYPE_CHECKING:
    from circlet.training import TrainingSettings

__all__ = ["Batches", "as_batch", "label_sets"]


class Batches:
    """Rows and labels in batches, prepared by a thread while the step before runs."""

    def __init__(self, X: Any, Y: sp.csr_matrix, settings: TrainingSettings, seed: int) -> None:
        self.X, self.Y, self.seed = X, Y, seed
        self.size, self.dropout = settings.batch_size, settings.input_dropout
        if X.shape[0] == 0:
            raise ParameterError("there are no documents to train on")

    def __len__(self) -> int:
        return math.ceil(int(self.X.shape[0]) / self.size)

    def epoch(self, epoch: int, first: int) -> Iterator[tuple[Any, LabelSets]]:
        """The batches of an epoch from the step `first` on, each prepared two steps ahead."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.X.shape[0])
        parts = [order[start : start + self.size] for start in range(0, len(order), self.size)]
        with ThreadPoolExecutor(1) as thread:
            steps = range(first, len(parts))
            ahead = [thread.submit(self._prepare, parts[step], epoch, step) for step in steps[:2]]
            for step in steps:
                ready = ahead.pop(0).result()
                if step + 2 < len(parts):
                    ahead.append(thread.submit(self._prepare, parts[step + 2], epoch, step + 2))
                yield ready

    def _prepare(self, rows: Any, epoch: int, step: int) -> tuple[Any, LabelSets]:
        X = self.X[rows]
        if self.dropout:
            random = np.random.default_rng([self.seed, epoch, step])
            values = X.data if sp.issparse(X) else X
            kept = random.random(values.shape, dtype=np.float32) >= self.dropout
            values *= kept / np.float32(1 - self.dropout)
        return as_batch(X), label_sets(self.Y[rows])


def as_batch(X: Any) -> Any:
    """Scaled rows as the network takes them."""
    # Writable, or torch warns.
    return SparseRows.of(X) if sp.issparse(X) else torch.from_numpy(np.require(X, requirements=["C", "W"]))


def label_sets(Y: sp.csr_matrix) -> LabelSets:
    """The labels of a batch."""
    documents = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    arrays = (Y.indices, Y.indptr[:-1], documents)
    return LabelSets(*(torch.from_numpy(np.ascontiguousarray(array)).long() for array in arrays))
