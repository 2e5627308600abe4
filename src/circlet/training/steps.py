"""Training batches, and steps: launched one by one, or recorded on a GPU as a CUDA graph and replayed.

Batches are gathered while the previous step runs, or from rows kept on a GPU. A step of a small batch is about a
hundred small kernels. Launching them from Python takes longer than running them on a GPU, so if all batches have
the same shapes, one step is recorded and then replayed with a single launch. The order of the rows and the rates
of an epoch are on the device, where the recorded step counts the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet import kernels
from circlet.compat import has_bfloat16_instructions
from circlet.data.dataset import MappedRows, release
from circlet.encoders import RowPairs, TextRows, features_of
from circlet.errors import ParameterError
from circlet.features.rows import ScaledRows
from circlet.network.encoders import Dropout, Encoder, LabelSets, SparseRows, as_batch, label_sets
from circlet.network.network import TABLE_LIMIT, Network
from circlet.settings import TrainingSettings
from circlet.settings.network import COSINES
from circlet.training.distributed import ALONE, Share, World
from circlet.training.optimizers import Optimizer, first_weight, set_rate

#: If a batch has less than this fraction of the features, only their rows of the first layer are updated. With
#: more, gathering and writing back rows costs as much as updating all: see benchmarks/scale_training.py.
FEW = 0.25
#: Steps replayed before the losses are read; reading makes the host wait.
REPLAYS = 32
#: Steps before recording: the optimizer creates its state in the first, and libraries choose their kernels.
WARM_UP = 3


class Batches:
    """Batches of rows and labels, as `train` takes them; seed and epoch determine their order.

    Rows `held_out` are used only in an additional last epoch, number `settings.epochs`, with as many other rows.
    The processes of a `world` share each batch.
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
        self.final, self.held_out = settings.epochs, held_out
        self.learned = None if held_out is None else np.delete(np.arange(X.shape[0]), held_out)
        self.size, self.dropout = settings.batch_size, settings.input_dropout
        #: Whether layers may compute in bfloat16.
        self.half = settings.precision == "auto"
        if X.shape[0] == 0:
            raise ParameterError("there are no documents to train on")
        # One batch decides for the whole run, so that a resumed run makes the same decision.
        first = features_of(X)[self.order(0)[: self.size]]
        self.sgd = settings.first_layer == "sgd"
        self.by_rows = sp.issparse(first) and (self.sgd or len(np.unique(first.indices)) < FEW * X.shape[1])

    def steps(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        return math.ceil(self.rows(epoch) / self.size)

    def rows(self, epoch: int) -> int:
        """Return the number of rows in an epoch."""
        if self.learned is None:
            return int(self.X.shape[0])
        final = len(self.held_out) + min(len(self.held_out), len(self.learned))
        return final if epoch == self.final else len(self.learned)

    def share(self, epoch: int, step: int) -> Share:
        """Return this process's part of a batch."""
        return self.world.share(min(self.size, self.rows(epoch) - step * self.size))

    def order(self, epoch: int) -> Any:
        """Return the row numbers of an epoch, in order."""
        random = np.random.default_rng([self.seed, epoch])
        if self.learned is None:
            return random.permutation(self.X.shape[0])
        if epoch < self.final:
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
        seed = [self.seed, epoch, step]
        if isinstance(self.X, RowPairs):
            features = self._part(self.X.features, rows, own, seed)
            batch: Any = RowPairs(features, self._part(self.X.texts, rows, own, [*seed, 1]))
        else:
            batch = self._part(self.X, rows, own, seed)
        Y = self.Y[rows[own]]
        release(self.Y)
        return batch, label_sets(Y)

    def _part(self, source: Any, rows: Any, own: slice, seed: list[int]) -> Any:
        """Take a process's `own` part of a batch's `rows`, and drop some of its values by random numbers."""
        X = source[rows[own]]
        if self.dropout:
            # The random numbers of the processes before this one are skipped.
            before = _size(source[rows[: own.start]]) if own.start else 0
            random = np.random.default_rng(seed)
            # Each state of the generator gives two 32-bit numbers.
            random.bit_generator.advance(before // 2)  # type: ignore[attr-defined]
            kept = random.random(before % 2 + _size(X), dtype=np.float32)[before % 2 :] >= self.dropout
            if isinstance(X, TextRows):
                X = X.without(~kept)
            else:
                values = X.data if sp.issparse(X) else X
                values *= kept.reshape(values.shape) / np.float32(1 - self.dropout)
        if sp.issparse(X):
            return SparseRows.for_training(X, by_rows=self.by_rows, exact=self.by_rows and not self.sgd)
        return as_batch(X)


def _size(X: Any) -> int:
    """Return the number of values of all rows."""
    return int(X.counts().sum() if isinstance(X, TextRows) else X.data.size if sp.issparse(X) else X.size)


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
            from circlet.kernels.triton import write_rows

            zeros = torch.zeros(len(rows), self.n_features, dtype=self.dtype, device=rows.device)
            own = self.sparse
            return write_rows(rows, own.starts, own.counts, own.indices, own.values, own.width, zeros), labels
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

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return columns, whether entries are real, and values, `(m, width)`; padding repeats the last entry."""
        counts = self.counts[rows, None]
        position = self.starts[rows, None] + torch.minimum(self.places, (counts - 1).clamp_(min=0))
        position.clamp_(max=len(self.indices) - 1)  # an empty last row starts past the end
        return self.indices[position], self.places < counts, self.values[position]


class StepsTaken(NamedTuple):
    """One or more training steps: their number, the sum of their losses, and the number of documents."""

    steps: int
    loss: float
    documents: int


class PlainSteps:
    """Launches steps from Python one by one, alone or together with other processes."""

    def __init__(self, network: Network, optimizer: Optimizer, batches: Batches, device: torch.device) -> None:
        self.network, self.optimizer, self.batches, self.device = network, optimizer, batches, device

    def epoch(self, epoch: int, rates: list[float], first: int) -> Iterator[StepsTaken]:
        """Take the steps of an epoch from `first` on, with a learning rate for each."""
        world = self.batches.world
        for step, (rows, labels) in enumerate(self.batches.epoch(epoch, first), first):
            set_rate(self.optimizer, rates[step])
            share = self.batches.share(epoch, step)
            if world.size > 1:
                self.network.drop_as_part(share.rows.start, share.of)
            batch = rows.to(self.device), labels.to(self.device)
            loss = learn(self.network, self.optimizer, *batch, half=self.batches.half, world=world, share=share)
            yield StepsTaken(1, float(loss), share.of)


class RecordedSteps:
    """Replays steps from a CUDA graph, except for the first few of a run and an epoch's smaller last one."""

    def __init__(self, network: Network, optimizer: Optimizer, batches: Batches, device: torch.device) -> None:
        self.network, self.optimizer, self.batches, self.device = network, optimizer, batches, device
        self.data = DeviceRows(batches.X, batches.Y, device, half=batches.half)
        self.dropout = Dropout(batches.dropout, network.noise)
        # A recorded step reads and writes these, so they must keep their memory addresses.
        n_steps = math.ceil(int(batches.X.shape[0]) / batches.size)
        self.order = torch.zeros(int(batches.X.shape[0]), dtype=torch.int64, device=device)
        self.rates, self.losses = torch.zeros(n_steps, device=device), torch.zeros(n_steps, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.places = torch.arange(batches.size, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = self.n = 0

    def epoch(self, epoch: int, rates: list[float], first: int) -> Iterator[StepsTaken]:
        """Do what `PlainSteps.epoch` does."""
        self.dropout.generator = self.network.noise
        n, size = self.batches.rows(epoch), self.batches.size
        self.n = n
        self.order[:n].copy_(torch.from_numpy(self.batches.order(epoch)))
        self.rates[: len(rates)].copy_(torch.tensor(rates))
        self.step.fill_(first)
        for start in range(first, len(rates), REPLAYS):
            end = min(start + REPLAYS, len(rates))
            for step in range(start, end):
                self._take(full=(step + 1) * size <= n)
            # The only place where the host waits for the device.
            yield StepsTaken(end - start, float(self.losses[start:end].sum()), min(end * size, n) - start * size)

    def _take(self, *, full: bool) -> None:
        if not full:
            self._learn(self.order[self.n // self.batches.size * self.batches.size : self.n])
        elif self.graph is not None:
            self.graph.replay()
        elif self.warm < WARM_UP:
            self._learn_full_batch()
            self.warm += 1
        else:
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.network.noise)
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph):
                self._learn_full_batch()
            self.graph.replay()

    def _learn_full_batch(self) -> None:
        self._learn(self.order[self.step * self.batches.size + self.places])

    def _learn(self, rows: Tensor) -> None:
        set_rate(self.optimizer, self.rates[self.step].squeeze(0))
        X, labels = self.data.batch(rows)
        loss = learn(self.network, self.optimizer, self.dropout(X), labels, half=self.batches.half)
        self.losses.index_copy_(0, self.step, loss[None])
        self.step += 1


def make_steps(
    network: Network, optimizer: Optimizer, batches: Batches, device: torch.device
) -> PlainSteps | RecordedSteps:
    """Choose the fastest kind of steps for this network, these rows and this device."""
    kind = RecordedSteps if recordable(network, batches, device) else PlainSteps
    return kind(network, optimizer, batches, device)


def recordable(network: Network, batches: Batches, device: torch.device, table: int = TABLE_LIMIT) -> bool:
    """Whether every step runs on the device alone, with constant shapes."""
    book = network.codebook
    return (
        device.type == "cuda"
        and batches.world.size == 1
        # An encoder of texts or a custom one may depend on values, or draw its own random numbers.
        and isinstance(network.encoder, Encoder)
        and not isinstance(batches.X, (RowPairs, TextRows))
        and DeviceRows.fits(batches.X, batches.Y, batches.size)
        # Without a table, each batch generates a different number of codes.
        and (network.settings.loss not in COSINES or (book is not None and book.n_labels * book.width <= table))
    )


def learn(
    network: Network,
    optimizer: Optimizer,
    rows: Any,
    labels: LabelSets,
    *,
    half: bool = True,
    world: World = ALONE,
    share: Share | None = None,
) -> Tensor:
    """Take one step: compute the loss of a batch and its gradient, and update the weights.

    With `half`, layers compute in bfloat16 if that is faster on the device. If several processes share the batch,
    the returned loss is the contribution of this process's `share`.
    """
    optimizer.zero_grad(set_to_none=True)
    by_rows, first = True, first_weight(network)
    features = rows.features if isinstance(rows, RowPairs) else rows
    if share is not None and isinstance(features, SparseRows) and features.by_columns is not None:
        by_rows = features.by_columns.by_rows
        # Then exchanging the documents takes fewer bytes than sending the sum of the gradients twice.
        if world.size > 1 and first is not None and share.of < 2 * len(first):
            features = features.for_row_gradients()
            rows = RowPairs(features, rows.texts) if isinstance(rows, RowPairs) else features
    kind = labels.ids.device.type
    # Cast weights are not cached: a step uses each only once, and a recorded step must not keep them.
    faster = torch.autocast(kind, dtype=torch.bfloat16, cache_enabled=False)
    with faster if half and multiplies_bfloat16(kind) else nullcontext():
        output = network(rows)
    loss: Tensor = network.loss(output.float(), labels)
    if share is not None and world.size > 1:
        loss = loss * share.weight
    loss.backward()  # type: ignore[no-untyped-call]
    if world.size > 1:
        world.average_gradients(network.parameters(), by_rows=by_rows)
    optimizer.step()
    return loss.detach()


@cache
def multiplies_bfloat16(device_type: str) -> bool:
    """Whether devices of this type multiply matrices of bfloat16 faster than those of float32.

    GPUs do, and CPUs that have instructions for it. Others would convert the numbers back and forth.
    """
    return has_bfloat16_instructions(torch.cpu) if device_type == "cpu" else device_type == "cuda"
