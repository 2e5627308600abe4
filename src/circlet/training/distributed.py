"""Training by several processes that all have the same weights.

Every process has all documents and computes gradients for its share of each batch. Gradients are then summed over
the processes. The gradient of the first layer has a row per feature, so the processes exchange their documents'
features and hidden gradients instead, and each computes the sum. Thus all take the same step: up to rounding, the
step of a single process with the whole batch. Only the first process writes files and reports.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from circlet.errors import CircletError, DataError, ParameterError
from circlet.network.encoders import ColumnEntries, RowGradient

#: How long a process waits for the others.
MINUTES = 10
#: Environment variables that torchrun sets for each process.
SIZE, RESTARTS = "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"


class LostError(CircletError, ConnectionError):
    """Another process ended or does not answer."""


class Share(NamedTuple):
    """One process's part of a batch."""

    #: Never empty: with fewer documents than processes, some processes take the first document with weight 0.
    rows: slice
    #: Documents in the whole batch.
    of: int
    #: Weight of these rows' mean loss in the mean loss of the batch.
    weight: float


class World:
    """The processes that train a network together, from the view of number `rank`, from 0, of them."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        #: The store is torch's; it outlives single processes.
        self.rank, self.size, self.store = rank, size, store
        #: For benchmarks: bytes that this process sent, and seconds that it spent in exchanges.
        self.sent, self.seconds = 0, 0.0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def share(self, n: int) -> Share:
        """Return this process's part of a batch of n documents."""
        start, stop = (each * n // self.size for each in (self.rank, self.rank + 1))
        return Share(slice(start, stop) if stop > start else slice(0, 1), n, (stop - start) / max(n, 1))

    def sum(self, *numbers: float) -> list[float]:
        """Sum each number over all processes."""
        if self.size == 1:
            return list(numbers)
        totals = torch.tensor(numbers, dtype=torch.float64)
        with self._exchange(totals):
            dist.all_reduce(totals)
        return totals.tolist()

    def gather(self, own: Tensor) -> list[Tensor]:
        """Return the tensors of all processes; only their first dimensions may differ."""
        if self.size == 1:
            return [own]
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(own)
        with self._exchange(counts):
            dist.all_reduce(counts)
        padded = own.new_zeros(int(counts.max()), *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in range(self.size)]
        with self._exchange(padded):
            dist.all_gather(found, padded)
        return [each[:n] for each, n in zip(found, counts.tolist(), strict=True)]

    def average_gradients(self, weights: Iterable[nn.Parameter], *, by_rows: bool) -> None:
        """Sum the gradients of all processes; with losses weighted by `Share.weight`, this is the mean.

        Unless `by_rows`, row gradients become gradients of whole weights.
        """
        waiting, sparse = [], []
        for weight in weights:
            own = RowGradient.taken_from(weight)
            if own is not None:
                sparse.append((weight, own))
            elif weight.grad is not None:
                weight.grad = weight.grad.contiguous()
                with self._exchange(weight.grad):
                    waiting.append(dist.all_reduce(weight.grad, async_op=True))
        for weight, own in sparse:
            rows = self.exchange_rows(own)
            if by_rows:
                rows.left_for(weight)
            else:
                weight.grad = rows.whole(weight.shape)
        with self._exchange():
            for each in waiting:
                each.wait()

    def exchange_rows(self, own: RowGradient) -> RowGradient:
        """Combine the row gradients of all processes into that of the whole batch.

        The processes exchange the documents' features and the gradients of their hidden units, and each sums the
        rows. The rows themselves are many times as large: a document has hundreds of them.
        """
        entries = own.entries
        ends = torch.cat([entries.starts[1:], entries.starts.new_tensor([len(entries.rows)])])
        columns = entries.touched.repeat_interleave(ends - entries.starts)
        packed = torch.stack([columns.int(), entries.rows.int(), entries.values.view(torch.int32)], dim=1)
        gradients, parts = self.gather(own.gradient), self.gather(packed)
        before = np.cumsum([0, *map(len, gradients[:-1])])
        rows = torch.cat([part[:, 1] + int(n) for part, n in zip(parts, before, strict=True)]).long()
        columns, bits = (torch.cat([part[:, i] for part in parts]) for i in (0, 2))
        # A stable sort, so that documents are summed in the same order as by a single process.
        columns, order = columns.long().sort(stable=True)
        touched, counts = torch.unique_consecutive(columns, return_counts=True)
        values = bits.contiguous().view(torch.float32)[order]
        whole = ColumnEntries(touched, rows[order], counts.cumsum(0) - counts, values, by_rows=True)
        return RowGradient(whole, torch.cat(gradients), own.units)

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Call `make` in the first process only, and return its result, any JSON value, in all."""
        if self.size == 1:
            return make()
        text = json.dumps(make()).encode() if self.is_first else b""
        (length,) = self.sum(len(text))
        content = torch.frombuffer(bytearray(text or int(length)), dtype=torch.uint8)
        with self._exchange(content):
            dist.broadcast(content, 0)
        return json.loads(content.numpy().tobytes())

    def tensors_from_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the first process's tensors by name; the others pass none, or tensors to overwrite."""
        if self.size == 1:
            return dict(tensors)
        found = dict(tensors)
        about = [[name, str(each.dtype), list(each.shape)] for name, each in found.items()]
        for name, kind, shape in self.from_first(lambda: about):
            if name not in found:
                found[name] = torch.empty(shape, dtype=getattr(torch, kind.removeprefix("torch.")))
            with self._exchange(found[name]):
                dist.broadcast(found[name], 0)
        return found

    def check_same(self, text: str, what: str) -> None:
        """Raise `DataError` in all processes unless the text is the same in all of them."""
        if self.size == 1:
            return
        texts = self.gather(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))
        others = [rank for rank, each in enumerate(texts) if not torch.equal(each, texts[0])]
        if others:
            raise DataError(
                f"found that process {others[0]} of {self.size} has {what} that differ from those of process 0; "
                "wanted the same in all of them"
            )

    def speaks(self) -> bool:
        """Whether this process is the first to report an error; the others stay silent."""
        if self.store is None:
            return True
        try:
            return int(self.store.add("errors", 1)) == 1
        except RuntimeError:  # the store is gone too: report the error, possibly twice
            return True

    @contextmanager
    def _exchange(self, tensor: Tensor | None = None) -> Iterator[None]:
        """Turn the end of another process during an exchange into a `LostError`."""
        if tensor is not None:
            self.sent += tensor.numel() * tensor.element_size()
        started = time.perf_counter()
        try:
            yield
            self.seconds += time.perf_counter() - started
        except RuntimeError as error:
            raise LostError(
                f"another process ended or did not answer for {MINUTES} minutes; start all again with --resume"
            ) from error


#: A single process.
ALONE = World()


@contextmanager
def join_processes(device: str) -> Iterator[tuple[World, torch.device]]:
    """Join the processes that torchrun started, and yield them and this process's device.

    Without torchrun, yield `ALONE`. Only the first process with a `CircletError` raises it; the others exit
    quietly.
    """
    size = _number(SIZE, 1)
    if size == 1:
        yield ALONE, resolve_device(device)
        return
    timeout, nccl = timedelta(minutes=MINUTES), torch.cuda.is_available() and dist.is_nccl_available()
    try:
        found, rank, _ = next(rendezvous("env://", timeout=timeout))
        # If torchrun restarts all processes, the store still has the keys of the old ones.
        store = PrefixStore(f"circlet/{os.environ.get(RESTARTS, '0')}", found)
        backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise ParameterError(
            f"found {SIZE} {size} in the environment, but the other processes can't be reached "
            f"({str(error).splitlines()[0]}); wanted to be started by torchrun"
        ) from error
    world, before = World(rank, size, store), signal.signal(signal.SIGTERM, _on_end)
    try:
        yield world, _own_device(device)
        if nccl:
            dist.destroy_process_group()  # not after an error, when it might wait for a process that has ended
    except CircletError as error:
        if world.speaks():
            raise
        raise SystemExit(2) from error
    finally:
        signal.signal(signal.SIGTERM, before)
        if not nccl:
            dist.destroy_process_group()


def _own_device(name: str) -> torch.device:
    """Return this process's device; each process has its own GPU."""
    if name == "auto" and not torch.cuda.is_available():
        return torch.device("cpu")
    if name not in ("auto", "cpu", "cuda"):
        raise ParameterError(f"found --device {name} for several processes; wanted auto, cpu or cuda")
    if name == "cpu":
        return torch.device("cpu")
    number, here, gpus = _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1), torch.cuda.device_count()
    if gpus < here:
        raise ParameterError(
            f"found {gpus} GPUs for {here} processes; wanted one each: start fewer, or add --device cpu"
        )
    place = torch.device("cuda", number)
    torch.cuda.set_device(place)
    return place


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    if not value:
        return default
    if not value.isdecimal():
        raise ParameterError(f"found {name} {value!r} in the environment; wanted a number, as torchrun sets it")
    return int(value)


def _on_end(*_: Any) -> None:
    """Handle the signal by which the system ends this process, or torchrun after another one has ended."""
    raise LostError("this process was ended, perhaps because another one was; start all again with --resume")


def resolve_device(name: Any) -> torch.device:
    """Return the device with this name; auto is a GPU if there is one."""
    if not isinstance(name, (str, torch.device)):
        raise ParameterError(f"`device`: found {name!r}; wanted auto, cpu, cuda, ...")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:  # whose message lists all that torch has ever run on
        raise ParameterError(f"`device` {name!r} is not available: wanted auto, cpu, cuda, cuda:1, …") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"`device` {name!r} is not available: {str(error).splitlines()[0]}") from error
    return device
