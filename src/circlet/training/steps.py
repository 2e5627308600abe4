"""Steps of training: one by one, or recorded on a GPU as a CUDA graph and replayed.

A step of a small batch is some hundred small kernels. Launching them from Python takes a GPU longer than running
them, so where every batch has the same shapes one step is recorded and then replayed with a single launch. The
order of the rows and the learning rates of an epoch lie on the device, where the step itself counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from circlet.network.encoders import Dropout, Encoder
from circlet.network.losses import LabelSets
from circlet.network.network import TABLE_LIMIT, Network
from circlet.training.batches import Batches, DeviceRows
from circlet.training.optimizers import set_rate

__all__ = ["PlainSteps", "RecordedSteps", "Taken", "make_steps"]

#: Steps replayed between two looks at their losses, for which the host has to wait.
REPLAYS = 32
#: Steps before recording: the optimiser makes its state in the first, libraries choose kernels in these.
WARM_UP = 3


class Taken(NamedTuple):
    """Steps that have been taken: how many, the sum of their losses, and of how many documents."""

    steps: int
    loss: float
    documents: int


class PlainSteps:
    """Each step launched from Python."""

    def __init__(
        self, network: Network, optimizer: torch.optim.Optimizer, batches: Batches, device: torch.device
    ) -> None:
        self.network, self.optimizer, self.batches, self.device = network, optimizer, batches, device

    def epoch(self, epoch: int, rates: list[float], first: int) -> Iterator[Taken]:
        """Take the steps of an epoch from `first` on, with a learning rate for each."""
        for rate, (rows, labels) in zip(rates[first:], self.batches.epoch(epoch, first), strict=True):
            set_rate(self.optimizer, rate)
            loss = learn(self.network, self.optimizer, rows.to(self.device), labels.to(self.device))
            yield Taken(1, float(loss), len(labels))


class RecordedSteps:
    """Steps replayed from a CUDA graph, but for the first few of a run and the last, smaller one of an epoch."""

    def __init__(
        self, network: Network, optimizer: torch.optim.Optimizer, batches: Batches, device: torch.device
    ) -> None:
        self.network, self.optimizer, self.batches, self.device = network, optimizer, batches, device
        self.data = DeviceRows(batches.X, batches.Y, device)
        self.dropout = Dropout(batches.dropout, network.noise)
        # What a recorded step reads and writes must stay where it was at the time of recording.
        n_steps = len(batches)
        self.order = torch.zeros(int(batches.X.shape[0]), dtype=torch.int64, device=device)
        self.rates, self.losses = torch.zeros(n_steps, device=device), torch.zeros(n_steps, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.places = torch.arange(batches.size, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0

    def epoch(self, epoch: int, rates: list[float], first: int) -> Iterator[Taken]:
        """Take the steps of an epoch from `first` on, with a learning rate for each."""
        self.dropout.generator = self.network.noise
        self.order.copy_(torch.from_numpy(self.batches.order(epoch)))
        self.rates.copy_(torch.tensor(rates))
        self.step.fill_(first)
        n, size = len(self.order), self.batches.size
        for start in range(first, len(rates), REPLAYS):
            end = min(start + REPLAYS, len(rates))
            for step in range(start, end):
                self._take(whole=(step + 1) * size <= n)
            # The one place where the host waits for the device.
            yield Taken(end - start, float(self.losses[start:end].sum()), min(end * size, n) - start * size)

    def _take(self, *, whole: bool) -> None:
        if not whole:
            self._learn(self.order[len(self.order) // self.batches.size * self.batches.size :])
        elif self.graph is not None:
            self.graph.replay()
        elif self.warm < WARM_UP:
            self._learn_whole()
            self.warm += 1
        else:
            self.graph = self._record()
            self.graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.network.noise)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._learn_whole()
        return graph

    def _learn_whole(self) -> None:
        self._learn(self.order[self.step * self.batches.size + self.places])

    def _learn(self, rows: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"].copy_(self.rates[self.step].squeeze(0))
        X, labels = self.data.batch(rows)
        loss = learn(self.network, self.optimizer, self.dropout(X), labels)
        self.losses.index_copy_(0, self.step, loss[None])
        self.step += 1


Steps = PlainSteps | RecordedSteps


def make_steps(
    network: Network, optimizer: torch.optim.Optimizer, batches: Batches, device: torch.device
) -> Steps:
    """The fastest way to take steps there is for this network, these rows and this device."""
    kind = RecordedSteps if recordable(network, batches, device) else PlainSteps
    return kind(network, optimizer, batches, device)


def recordable(network: Network, batches: Batches, device: torch.device) -> bool:
    """Whether every step runs on the device alone, in shapes that do not change."""
    book = network.codebook
    return (
        device.type == "cuda"
        # An encoder of somebody else's may look at its numbers or draw its own.
        and isinstance(network.encoder, Encoder)
        and DeviceRows.fits(batches.X, batches.Y, batches.size)
        # Codes that are generated anew for the labels of each batch differ in number.
        and (network.settings.loss != "cosine" or (book is not None and book.n_labels * book.width <= TABLE_LIMIT))
    )


def learn(network: Network, optimizer: torch.optim.Optimizer, rows: Any, labels: LabelSets) -> Tensor:
    """One step: the loss of a batch, its gradient, and a step of the optimiser."""
    optimizer.zero_grad(set_to_none=True)
    on_gpu = labels.ids.device.type == "cuda"
    # Nothing to keep between steps: each weight is used once in one, and a recorded step must not keep any.
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False) if on_gpu else nullcontext():
        output = network(rows)
    loss: Tensor = network.loss(output.float(), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()
