"""Training steps: launched one by one, or recorded on a GPU as a CUDA graph and replayed.

A step of a small batch is about a hundred small kernels. Launching them from Python takes longer than running them
on a GPU, so if all batches have the same shapes, one step is recorded and then replayed with a single launch. The
order of the rows and the learning rates of an epoch are on the device, where the recorded step counts the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from circlet.devices import multiplies_bfloat16
from circlet.network.batch import LabelSets, SparseRows
from circlet.network.encoders import Dropout, Encoder
from circlet.network.network import TABLE_LIMIT, Network
from circlet.settings.network import COSINES
from circlet.training.batches import Batches, DeviceRows
from circlet.training.distributed import ALONE, Share, World
from circlet.training.optimizers import Optimizer, first_weight, set_rate
from circlet.training.reporter import StepsTaken

__all__ = ["PlainSteps", "RecordedSteps", "make_steps"]

#: Steps replayed before the losses are read; reading makes the host wait.
REPLAYS = 32
#: Steps before recording: the optimizer creates its state in the first, and libraries choose their kernels.
WARM_UP = 3


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
        """Take the steps of an epoch from `first` on, with a learning rate for each."""
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
            self.graph = self._record()
            self.graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.network.noise)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._learn_full_batch()
        return graph

    def _learn_full_batch(self) -> None:
        self._learn(self.order[self.step * self.batches.size + self.places])

    def _learn(self, rows: Tensor) -> None:
        set_rate(self.optimizer, self.rates[self.step].squeeze(0))
        X, labels = self.data.batch(rows)
        loss = learn(self.network, self.optimizer, self.dropout(X), labels, half=self.batches.half)
        self.losses.index_copy_(0, self.step, loss[None])
        self.step += 1


Steps = PlainSteps | RecordedSteps


def make_steps(network: Network, optimizer: Optimizer, batches: Batches, device: torch.device) -> Steps:
    """Choose the fastest kind of steps for this network, these rows and this device."""
    kind = RecordedSteps if recordable(network, batches, device) else PlainSteps
    return kind(network, optimizer, batches, device)


def recordable(network: Network, batches: Batches, device: torch.device, table: int = TABLE_LIMIT) -> bool:
    """Whether every step runs on the device alone, with constant shapes."""
    book = network.codebook
    return (
        device.type == "cuda"
        and batches.world.size == 1
        # A custom encoder may depend on values, or draw its own random numbers.
        and isinstance(network.encoder, Encoder)
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
    if share is not None and isinstance(rows, SparseRows) and rows.by_columns is not None:
        by_rows = rows.by_columns.by_rows
        # Then exchanging the documents takes fewer bytes than sending the sum of the gradients twice.
        if world.size > 1 and first is not None and share.of < 2 * len(first):
            rows = rows.for_row_gradients()
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
