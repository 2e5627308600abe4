"""Training batches, gathered while the previous step runs, or from rows kept on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet import kernels
from circlet.data.sparse import MappedRows, release
from circlet.errors import ParameterError
from circlet.features.rows import ScaledRows, TokenRows
from circlet.network.batch import LabelSets, SparseRows, as_batch, label_sets
from circlet.settings import TrainingSettings
from circlet.training.distributed import ALONE, Share, World

__all__ = ["Batches", "DeviceRows"]

#: If a batch has less than this fraction of the features, only their rows of the first layer are updated. With
#: more, gathering and writing back rows costs as much as updating all: see benchmarks/scale_training.py.
FEW = 0.25


class Batches:
    """Batches of rows and labels; seed and epoch determine their order.

    Parameters
    ----------
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), or TokenRows
    Y : csr_matrix or MappedRows of shape (n, n_labels)
    settings : TrainingSettings
    seed : int
    held_out : int64 ndarray, optional
        Rows that are used only in an additional last epoch, number `settings.epochs`, with as many other rows.
    world : World
        The processes that share each batch.
    """

    def __init__(
        self,
        X: Any,
        Y: sp.csr_matrix,
        settings: TrainingSettings,
        seed: int,
        held_out: Any = None,
        world: World = ALONE,
    ) -> None:
        self.X, self.Y, self.seed, self.world = X, Y, seed, world
        self.joining, self.held_out = settings.epochs, held_out
        self.learned = None if held_out is None else np.delete(np.arange(X.shape[0]), held_out)
        self.size, self.dropout = settings.batch_size, settings.input_dropout
        #: Whether layers may compute in bfloat16.
        self.half = settings.precision == "auto"
        if X.shape[0] == 0:
            raise ParameterError("there are no documents to train on")
        # One batch decides for the whole run, so that a resumed run makes the same decision.
        first = X[self.order(0)[: self.size]]
        self.sgd = settings.first_layer == "sgd"
        self.by_rows = sp.issparse(first) and (self.sgd or len(np.unique(first.indices)) < FEW * X.shape[1])
        #: Entries of each row, if input dropout must skip the random numbers of other processes.
        self.entries = _entries(X) if self.dropout and world.size > 1 else None

    def steps(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        return math.ceil(self.rows(epoch) / self.size)

    def rows(self, epoch: int) -> int:
        """Return the number of rows in an epoch."""
        if self.learned is None:
            return int(self.X.shape[0])
        joining = len(self.held_out) + min(len(self.held_out), len(self.learned))
        return joining if epoch == self.joining else len(self.learned)

    def share(self, epoch: int, step: int) -> Share:
        """Return this process's part of a batch."""
        return self.world.share(min(self.size, self.rows(epoch) - step * self.size))

    def order(self, epoch: int) -> Any:
        """Return the row numbers of an epoch, in order."""
        random = np.random.default_rng([self.seed, epoch])
        if self.learned is None:
            return random.permutation(self.X.shape[0])
        if epoch < self.joining:
            return self.learned[random.permutation(len(self.learned))]
        others = random.permutation(self.learned)[: len(self.held_out)]
        return random.permutation(np.concatenate([self.held_out, others]))

    def epoch(self, epoch: int, first: int) -> Iterator[tuple[Any, LabelSets]]:
        """Yield (this process's parts of) the batches from step `first` on; a thread prepares two ahead."""
        order = self.order(epoch)
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
        own = self.share(epoch, step).rows
        X, Y = self.X[rows[own]], self.Y[rows[own]]
        release(self.Y)
        if self.dropout:
            values = X.data if sp.issparse(X) else X.ids if isinstance(X, TokenRows) else X
            before = 0 if self.entries is None else int(self.entries[rows[: own.start]].sum())
            random = _uniform(np.random.default_rng([self.seed, epoch, step]), before, values.size)
            kept = random.reshape(values.shape) >= self.dropout
            if isinstance(X, TokenRows):
                X = X.forgetting(~kept)
            else:
                values *= kept / np.float32(1 - self.dropout)
        batch = (
            SparseRows.for_training(X, by_rows=self.by_rows, exact=self.by_rows and not self.sgd)
            if sp.issparse(X)
            else as_batch(X)
        )
        return batch, label_sets(Y)


def _entries(X: Any) -> Any:
    """Return the number of values of each row."""
    if isinstance(X, TokenRows):
        return np.diff(X.starts)
    matrix = X.X if isinstance(X, ScaledRows) else X
    return np.diff(matrix.indptr) if hasattr(matrix, "indptr") else np.full(X.shape[0], X.shape[1])


def _uniform(random: np.random.Generator, skipped: int, n: int) -> Any:
    """Skip some random numbers and return the next n."""
    # Each state of the generator gives two 32-bit numbers.
    random.bit_generator.advance(skipped // 2)  # type: ignore[attr-defined]
    return random.random(skipped % 2 + n, dtype=np.float32)[skipped % 2 :]


class DeviceRows:
    """All rows and labels on a GPU, which makes the batches without the host.

    All batches with the same number of rows have the same shapes, so a step can be recorded once and replayed.
    Sparse rows become dense, because a GPU multiplies zeros faster than it sorts columns, and bfloat16 if the GPU
    multiplies in it. Label sets are padded with labels of weight 0.
    """

    def __init__(self, X: Any, Y: sp.csr_matrix, device: torch.device, *, half: bool = True) -> None:
        self.n_features, self.dtype = int(X.shape[1]), torch.bfloat16 if half else torch.float32
        if isinstance(X, ScaledRows):
            X = X[:]
        if isinstance(Y, MappedRows):
            Y = Y[:]
        self.dense = None if sp.issparse(X) else torch.from_numpy(np.ascontiguousarray(X)).to(device)
        self.sparse = _Ragged(X, device) if sp.issparse(X) else None
        self.labels = _Ragged(Y, device)

    @staticmethod
    def fits(X: Any, Y: sp.csr_matrix, batch_size: int, most: int = 1 << 28) -> bool:
        """Whether dense batches have at most `most` numbers, including zeros."""
        widest = max(int(X.shape[1]), int(np.diff(Y.indptr).max(initial=0)))
        return batch_size * widest <= most

    def batch(self, rows: Tensor) -> tuple[Tensor, LabelSets]:
        """Return features `(m, n_features)` and labels of these rows."""
        ids, present, _ = self.labels.gather(rows)
        documents = torch.arange(len(rows), device=rows.device)[:, None]
        width = ids.shape[1]
        labels = LabelSets(
            ids.flatten(),
            (documents * width).flatten(),
            documents.expand(-1, width).flatten(),
            present.flatten().float(),
        )
        if self.sparse is None:
            assert self.dense is not None
            return self.dense[rows], labels
        if kernels.run_on(rows.device):
            zeros = torch.zeros(len(rows), self.n_features, dtype=self.dtype, device=rows.device)
            return self.sparse.write(rows, zeros), labels
        columns, present, values = self.sparse.gather(rows)
        # Padding repeats a row's last entry and thus writes the same value again. Rows without entries get 0.
        values = (values * present[:, :1]).to(self.dtype)
        return values.new_zeros(len(rows), self.n_features).scatter_(1, columns, values), labels


class _Ragged:
    """A sparse matrix on a device; rows are gathered into an array as wide as the longest row."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device) -> None:
        counts = np.diff(matrix.indptr)
        self.width = max(1, int(counts.max(initial=0)))
        # At least one entry, so that padding can repeat it.
        indices, values = (
            np.append(array, 0) if not len(array) else array for array in (matrix.indices, matrix.data)
        )
        self.starts = torch.from_numpy(matrix.indptr[:-1].astype(np.int64)).to(device)
        self.counts = torch.from_numpy(counts.astype(np.int64)).to(device)
        self.indices = torch.from_numpy(indices.astype(np.int64)).to(device)
        self.values = torch.from_numpy(values.astype(np.float32)).to(device)
        self.places = torch.arange(self.width, device=device)

    def write(self, rows: Tensor, zeros: Tensor) -> Tensor:
        """Write the entries of these rows into zeros `(m, columns)`."""
        from circlet.kernels.triton import write_rows

        return write_rows(rows, self.starts, self.counts, self.indices, self.values, self.width, zeros)

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return columns, whether entries are real, and values, `(m, width)`; padding repeats the last entry."""
        counts = self.counts[rows, None]
        position = self.starts[rows, None] + torch.minimum(self.places, (counts - 1).clamp_(min=0))
        position.clamp_(max=len(self.indices) - 1)  # an empty last row starts past the end
        return self.indices[position], self.places < counts, self.values[position]
