"""The loop: epochs of steps, validation, checkpoints.

All randomness depends only on the seed and the position in the run: the order of the rows on (seed, epoch), input
dropout on (seed, epoch, step), hidden dropout on a generator whose state is in the checkpoint. So a run that was
killed and resumed ends with the same weights as an uninterrupted one, bit for bit on a CPU.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet.data.dataset import column_counts
from circlet.errors import CircletError, within_memory
from circlet.identity import Identity
from circlet.metrics import evaluate
from circlet.network import Ensemble, Network
from circlet.network.encoders import label_sets
from circlet.network.network import TABLE_LIMIT, outputs_of, top_k
from circlet.settings import Decision, TrainingSettings
from circlet.settings.run import LEAST_LOSS
from circlet.storage.contents import KEPT
from circlet.storage.layout import checkpoint_of
from circlet.storage.publish import folder_lock
from circlet.training import checkpoint
from circlet.training.distributed import ALONE, World
from circlet.training.optimizers import make_optimizer
from circlet.training.steps import Batches, StepsTaken, make_steps

if TYPE_CHECKING:
    from circlet.data import Dataset


logger = logging.getLogger(__name__)

#: Keys of calibration and best threshold in the record of the last epoch before the final one.
CALIBRATION = "calibration"
THRESHOLD = "threshold"
#: Key of the loss on held-out rows in the records of epochs.
VALIDATION_LOSS = "validation_loss"


class FinalEpoch(NamedTuple):
    """Row numbers of the held-out rows that a short, final epoch trains on, with as many others."""

    rows: npt.NDArray[np.int64]
    #: Called just before the final epoch; returns further entries for the record of the epoch before.
    calibrate: Callable[[], dict[str, Any]]


class InterruptedRunError(CircletError, KeyboardInterrupt):
    """Training was interrupted; if there is a folder, a checkpoint was written."""


class DivergedError(CircletError, ArithmeticError):
    """The loss or a weight is no longer finite."""


def train(
    network: Network,
    X: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    validation: tuple[Any, sp.csr_matrix] | None = None,
    final: FinalEpoch | None = None,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    fresh: bool = True,
    member: int | None = None,
    stage: int | None = None,
    label_names: list[str] | None = None,
    world: World = ALONE,
) -> list[dict[str, Any]]:
    """Train a network in place.

    Parameters
    ----------
    network : Network
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), RowPairs or TextRows
        Scaled features, or word numbers of texts.
    Y : csr_matrix or MappedRows of shape (n, n_labels)
    settings : TrainingSettings
    validation : (X, Y), optional
        Rows for choosing the best epoch, whose weights are kept.
    final : FinalEpoch, optional
        For validation rows that are part of X and Y: they are trained on in a short epoch at the end. Then no best
        epoch is chosen, and the last weights are kept.
    device : torch.device, optional
        By default the CPU.
    reporter : Reporter, optional
        Receives the progress.
    folder : Path, optional
        Folder for a checkpoint after every epoch. Saving the model there removes it.
    resume : bool
        Continue from the checkpoint in `folder`, if there is one.
    fresh : bool
        Whether the network is new; its biases are then initialized from label frequencies. False if it was already
        trained on other rows.
    member : int, optional
        Number of this network among several of a model, from 0, for the reporter and the records.
    stage : int, optional
        Number of this call among several of a run, from 0. Each stage has its own checkpoint, which stays after
        the stage: resuming then skips the stage.
    label_names : list of str, optional
        A checkpoint with other label names raises an error.
    world : World
        The processes that train together, each with the same arguments; only the first one uses the folder.

    Returns
    -------
    list of dict
        A record of every epoch: loss, seconds, documents per second, learning rate, validation metric, and with
        several networks the member, from 1. The best epoch is marked as `kept` if the model has its weights.
    """
    place, folder = device or torch.device("cpu"), folder if world.is_first else None
    size = f"{network.parameter_counts()['total']:,} parameters in batches of {settings.batch_size:,}"
    with within_memory(f"training {size} documents"), nullcontext() if folder is None else folder_lock(folder):
        options = (place, reporter or Reporter(), folder, member, stage, label_names, world)
        run = _Run(network, X, Y, settings, validation, final, *options)
        if fresh:
            network.start_from(torch.from_numpy(column_counts(Y)), Y.shape[0])
        return run.go(resume)


class Reporter:
    """Receives the progress of training and logs each epoch; the command line's subclass draws bars."""

    def begins(self, dataset: Dataset, labels: int, *, new: int | None = None, processes: int = 1) -> None:
        """Called when the documents of a run have been read.

        `labels` counts the labels of the model, and `new` those that further training adds to a finished one.
        """

    @contextmanager
    def timed(self, stage: str, **about: Any) -> Iterator[None]:
        """Measure the time of the body and report it by `stage`, unless the body fails."""
        started = time.perf_counter()
        yield
        self.stage({"stage": stage, **about, "seconds": round(time.perf_counter() - started, 3)})

    def stage(self, record: dict[str, Any]) -> None:
        """Called after each stage of a run, with its name and seconds, and the member if there are several."""

    def member(self, number: int) -> None:
        """Called before each of several networks is trained; `number` starts from 0."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called before training, with the settings that were decided from the data."""
        for each in decisions:
            logger.info("%s: %s (%s)", each.name, each.value, each.why)

    def plan(self, epochs: int, members: int) -> None:
        """Called before training, with the number of networks and the maximum number of epochs of each.

        If there is a final epoch, it follows these, and has no record.
        """

    def calibration_run(self, documents: int) -> None:
        """Called before a calibration run: its network is trained only to calibrate the next one."""

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        """Called after a calibration run, with the metrics on held-out rows."""
        logger.info("calibration run: %s", metrics)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        """Called when an epoch of `n_steps` steps begins, or is resumed after `done` of them."""

    def step(self, taken: StepsTaken) -> None:
        """Called after one or more steps."""

    def record(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its record."""
        logger.info("%s", record)

    def indexing(self, done: int, total: int) -> None:
        """Called while documents are added to a model's index, with the number added so far."""


@dataclass
class _Run:
    """One training run and its progress; see `train` for the parameters."""

    network: Network
    X: Any
    Y: sp.csr_matrix
    settings: TrainingSettings
    validation: tuple[Any, sp.csr_matrix] | None
    final: FinalEpoch | None
    device: torch.device
    reporter: Reporter
    folder: Path | None
    member: int | None = None
    stage: int | None = None
    label_names: list[str] | None = None
    world: World = ALONE

    def __post_init__(self) -> None:
        self.network.to(self.device)
        self.held_out = None if self.final is None else self.final.rows
        seed = self.network.settings.seed
        self.batches = Batches(self.X, self.Y, self.settings, seed, self.held_out, self.world)
        self.optimizer = make_optimizer(self.network, self.settings, self.device)
        self.network.drop_by_batch(self.settings.first_layer == "sgd")
        book = self.network.codebook
        if self.device.type == "cuda" and book is not None:
            # A GPU has room for a table, and looking codes up is much cheaper than generating them.
            book.cache = book.n_labels * book.width <= TABLE_LIMIT
        self.checkpoint = None if self.folder is None else self.folder / checkpoint_of(self.stage or 0)
        self.progress = checkpoint.Progress()

    def go(self, resume: bool) -> list[dict[str, Any]]:
        if self.world.size > 1:
            self.world.check_same(self._identity.digest, "documents, labels or settings")
            self.world.tensors_from_first(self.network.weights())  # random weights may differ between processors
        if resume:
            state = (self.network, self.optimizer, self._identity, self.world)
            self.progress = checkpoint.restore(self.checkpoint, *state) or self.progress
        self.steps = make_steps(self.network, self.optimizer, self.batches, self.device)
        if self.member is not None:
            self.reporter.member(self.member)
        first, epochs = self.progress.epoch, self.settings.epochs + (self.final is not None)
        with _interruptions(self.world) as interrupted:
            while self.progress.epoch < epochs and not self._out_of_patience():
                self._run_epoch(interrupted)
        if self.progress.best:
            self.network.load_weights(self.progress.best)
            worth = [self._worth(record) for record in self.progress.history]
            # Of equal epochs the last one, as in `_record`.
            self.progress.history[len(worth) - 1 - int(np.argmax(worth[::-1]))][KEPT] = True
        if self.stage is not None and self.progress.epoch > first and self.checkpoint is not None:
            # The checkpoint stays while other stages are trained, without the state that only training needs.
            finished = replace(self.progress, best={})
            checkpoint.save(self.checkpoint, finished, self.network, None, self._identity)
        return self.progress.history

    def _run_epoch(self, interrupted: threading.Event) -> None:
        progress, seed = self.progress, self.network.settings.seed
        n_steps = self.batches.steps(progress.epoch)
        if progress.step == 0:
            progress.total_loss = 0.0
            self.network.seed_noise(seed, progress.epoch)
        self.reporter.epoch(progress.epoch, n_steps, progress.step)
        started, first = time.perf_counter(), progress.step
        if last := self.final is not None and progress.epoch == self.settings.epochs:
            rates = [self.settings.final_rate(step, n_steps) for step in range(n_steps)]
        else:
            before = progress.epoch * n_steps
            rates = [self.settings.rate(before + step, n_steps) for step in range(n_steps)]
        self.network.train()
        for own in self.steps.epoch(progress.epoch, rates, first):
            # All processes get the whole loss, and stop after the same step, whichever of them was interrupted.
            loss, stops = self.world.sum(own.loss, interrupted.is_set())
            taken = own._replace(loss=loss)
            if not math.isfinite(loss):
                raise self._diverged(f"loss became {loss} by step {progress.step + taken.steps}")
            progress.total_loss += loss
            progress.step += taken.steps
            self.reporter.step(taken)
            if self.world.size == 1:
                stops = interrupted.is_set()  # an interruption may have come just now
            if stops and progress.step < n_steps:
                self._stop()
        seconds = time.perf_counter() - started
        if not all(map(is_finite, self.network.parameters())):
            raise self._diverged("weights became non-finite in the last step")
        if not last:
            self._record(n_steps, first, rates[-1], seconds)
        progress.epoch, progress.step = progress.epoch + 1, 0
        self._save()
        if any(self.world.sum(interrupted.is_set())):
            self._stop()

    def _record(self, n_steps: int, first: int, rate: float, seconds: float) -> None:
        """Validate an epoch, calibrate if it is the last one before the final epoch, and record it."""
        progress = self.progress
        documents = self.batches.rows(progress.epoch) - first * self.settings.batch_size
        record: dict[str, Any] = {
            **({} if self.member is None else {"member": self.member + 1}),
            "epoch": progress.epoch + 1,
            "loss": progress.total_loss / n_steps,
            "lr": rate,
            "seconds": round(seconds, 3),
            "documents_per_second": round(documents / max(seconds, 1e-9)),
        }
        if self.validation is not None:
            record |= measured(self.network, *self.validation, self.settings.metric, self.world)
            # Of equal epochs the last one wins, because it was trained longest.
            if self.final is None and self._worth(record) >= progress.best_value:
                progress.best_value = self._worth(record)
                progress.best = {key: tensor.clone() for key, tensor in self.network.weights().items()}
        if self.final is not None and progress.epoch + 1 == self.settings.epochs:
            record |= self.final.calibrate()
        progress.history.append(record)
        self.reporter.record(record)

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"the {what} of epoch {self.progress.epoch + 1}: lower the learning rate (lr is {self.settings.lr}), "
            "or scale the features (scaling l2)"
        )

    def _worth(self, record: dict[str, Any]) -> float:
        """Return the validation metric of a record, negated for a loss, so that higher is better."""
        least = self.settings.metric == LEAST_LOSS
        worth: float = -record[VALIDATION_LOSS] if least else record[self.settings.metric]
        return worth

    def _out_of_patience(self) -> bool:
        history = self.progress.history
        if self.settings.patience is None or self.validation is None or not history:
            return False
        values = [self._worth(record) for record in history]
        return len(values) - 1 - int(np.argmax(values)) >= self.settings.patience

    def _stop(self) -> None:
        if self.progress.step:
            self._save()
        # All processes wait for the checkpoint: torchrun kills the others 30 seconds after one has ended.
        self.world.sum(0)
        if self.folder is None:
            raise InterruptedRunError("interrupted")
        where = (
            f"in epoch {self.progress.epoch + 1}" if self.progress.step else f"after epoch {self.progress.epoch}"
        )
        if self.member is not None:
            where += f" of member {self.member + 1}"
        raise InterruptedRunError(f"interrupted {where}; {self.folder} holds a checkpoint to resume")

    def _save(self) -> None:
        if self.checkpoint is not None:
            checkpoint.save(self.checkpoint, self.progress, self.network, self.optimizer, self._identity)

    @cached_property
    def _identity(self) -> Identity:
        rows = (self.X, self.Y, *(() if self.held_out is None else (self.held_out,)))
        return checkpoint.identity_of(self.network, self.settings, rows, self.validation or (), self.label_names)


def measured(network: Network, X: Any, Y: sp.csr_matrix, metric: str, world: World = ALONE) -> dict[str, float]:
    """Measure a metric on scaled rows with these labels; return it by the name that records use.

    Each of several processes takes its share of the rows, and all get the same result.
    """
    share = world.share(X.shape[0])
    own = X if world.size == 1 else X[share.rows]
    if metric == LEAST_LOSS:
        labels = Y if world.size == 1 else Y[share.rows]
        (total,) = world.sum(mean_loss(network, own, labels) * share.weight)
        return {VALIDATION_LOSS: total}
    name, _, depth = metric.partition("@")
    ids = torch.from_numpy(top_k(Ensemble([network]), own, int(depth))[0])
    everything = torch.cat(world.gather(ids if share.weight else ids[:0]))
    return evaluate(Y, everything.numpy(), k=int(depth), metrics=(name,))


def mean_loss(network: Network, X: Any, Y: sp.csr_matrix) -> float:
    """Compute the mean loss of rows with these labels."""
    total, start = 0.0, 0
    for (output,) in outputs_of(Ensemble([network]), X):
        labels = label_sets(Y[start : start + len(output)]).to(network.device)
        start += len(output)
        with torch.no_grad():
            total += float(network.loss(output, labels)) * len(labels)
    return total / max(int(X.shape[0]), 1)


def is_finite(weight: Tensor) -> bool:
    """Whether all numbers of a weight are finite, without the full-size temporaries of isfinite."""
    if not weight.numel():
        return True
    numbers = torch.view_as_real(weight) if weight.is_complex() else weight
    # Minimum and maximum show any NaN or infinity. A sum of finite numbers could overflow.
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(numbers.detach()))


@contextmanager
def _interruptions(world: World) -> Iterator[threading.Event]:
    """Make Ctrl-C wait for the end of a step; a second Ctrl-C does not wait.

    Several processes always wait, also for signals from the system or torchrun: the terminal and torchrun both
    deliver the same Ctrl-C. torchrun kills a process that takes too long.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def on_interrupt(*_: Any) -> None:
        if interrupted.is_set() and world.size == 1:
            raise KeyboardInterrupt
        interrupted.set()

    handled = (signal.SIGINT,) if world.size == 1 else (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, on_interrupt) for each in handled]
    try:
        yield interrupted
    finally:
        for each, handler in zip(handled, before, strict=True):
            signal.signal(each, handler)
