"""The loop: batches, optimiser, schedule, validation, checkpoints.

Everything random follows from the seed and the position in the run: the order of the rows from (seed, epoch),
input dropout from (seed, epoch, step), hidden dropout from a generator whose state a checkpoint keeps. So a run
that was killed and resumed ends with the same weights, bit for bit on a CPU, as one that was not.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from circlet.codebooks.decoding import check_options, top_k
from circlet.data.mapped import column_counts
from circlet.errors import CircletError, ParameterError
from circlet.files import prepare_folder
from circlet.metrics import evaluate
from circlet.network.network import TABLE_LIMIT, Network, _real, _whole
from circlet.training import checkpoint
from circlet.training.batches import Batches, as_batch
from circlet.training.optimizers import OPTIMIZERS, make_optimizer
from circlet.training.steps import Taken, make_steps

__all__ = [
    "InterruptedRunError",
    "Reporter",
    "Taken",
    "TrainingSettings",
    "predict_top_k",
    "resolve_device",
    "train",
]

logger = logging.getLogger(__name__)

JUDGES = ("P", "R", "nDCG", "coverage")
SCHEDULES = ("one-cycle", "constant", "step")


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    epochs, batch_size : int
    optimizer : str
        adamw, adam, adadelta or sgd (with momentum 0.9).
    lr : float
        The highest learning rate.
    schedule : str
        one-cycle: up for 30 % of the steps, then down to nothing; constant; step: times 0.7 after every epoch.
    weight_decay : float
    input_dropout : float
        Share of a document's features dropped in training.
    metric : str
        What validation rows are judged by: P@1, nDCG@5, ...
    patience : int or None
        Stop after so many epochs without a better metric. None: never; the best epoch's weights are kept anyway.
    """

    epochs: int = 30
    batch_size: int = 256
    optimizer: str = "adamw"
    lr: float = 2e-3
    schedule: str = "one-cycle"
    weight_decay: float = 0.0
    input_dropout: float = 0.0
    metric: str = "nDCG@5"
    patience: int | None = None

    def __post_init__(self) -> None:
        name, _, at = str(self.metric).partition("@")
        checks = [
            ("epochs", _whole(self.epochs, 1), "a whole number, at least 1"),
            ("batch_size", _whole(self.batch_size, 1), "a whole number, at least 1"),
            ("optimizer", self.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
            ("lr", _real(self.lr) and 0 < self.lr < math.inf, "a number above 0"),
            ("schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            ("weight_decay", _real(self.weight_decay) and self.weight_decay >= 0, "at least 0"),
            (
                "input_dropout",
                _real(self.input_dropout) and 0 <= self.input_dropout < 1,
                "at least 0 and below 1",
            ),
            ("metric", name in JUDGES and at.isdecimal() and int(at) >= 1, "like P@1 or nDCG@5"),
            ("patience", self.patience is None or _whole(self.patience, 1), "None or at least 1"),
        ]
        for parameter, holds, wanted in checks:
            if not holds:
                raise ParameterError(f"`{parameter}` must be {wanted}, got {getattr(self, parameter)!r}")
        # numpy's numbers, from somebody's grid, would not go into JSON.
        for parameter in ("epochs", "batch_size", "patience"):
            value = getattr(self, parameter)
            object.__setattr__(self, parameter, None if value is None else int(value))
        for parameter in ("lr", "weight_decay", "input_dropout"):
            object.__setattr__(self, parameter, float(getattr(self, parameter)))

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step, counted from 0 over the whole run."""
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "step":
            return self.lr * 0.7 ** (step // steps_per_epoch)
        total = self.epochs * steps_per_epoch
        up = max(1, round(0.3 * total))
        if step < up:
            return self.lr * (0.04 + 0.96 * (1 - math.cos(math.pi * step / up)) / 2)
        return self.lr * (1e-5 + (1 + math.cos(math.pi * (step - up) / max(1, total - up))) / 2)


class Reporter:
    """Told how training goes; the command line draws bars from it."""

    def epoch(self, number: int, n_steps: int) -> None:
        """An epoch begins, or goes on after a resumption."""

    def step(self, taken: Taken) -> None:
        """A batch or a few have been learned from."""

    def record(self, record: dict[str, Any]) -> None:
        """An epoch has ended, with these numbers."""
        logger.info("%s", record)


class InterruptedRunError(CircletError, KeyboardInterrupt):
    """Training was interrupted, and a checkpoint was written if there is a folder for it."""


class DivergedError(CircletError, ArithmeticError):
    """The loss is no number any more."""


def resolve_device(name: str) -> torch.device:
    """The device for a name; auto is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"`device` {name!r} is not here: {str(error).splitlines()[0]}") from error
    return device


def train(
    network: Network,
    X: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    validation: tuple[Any, sp.csr_matrix] | None = None,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    fresh: bool = True,
) -> list[dict[str, Any]]:
    """Train a network in place.

    Parameters
    ----------
    network : Network
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features)
        Scaled features.
    Y : csr_matrix or MappedRows of shape (n, n_labels)
    settings : TrainingSettings
    validation : (X, Y), optional
        Rows to judge epochs by: the weights of the best one are kept.
    device : torch.device, optional
    reporter : Reporter, optional
    folder : Path, optional
        Where checkpoints are kept, one after every epoch; removed by who saves the model.
    resume : bool
        Go on from the checkpoint in `folder`, if there is one.
    fresh : bool
        Whether the network is new, and begins with what the labels' frequencies say. False: it has learned
        before, from other rows.

    Returns
    -------
    list of dict
        A record of every epoch: loss, seconds, documents per second, learning rate, validation metric.
    """
    run = _Run(network, X, Y, settings, validation, device or torch.device("cpu"), reporter, folder)
    if fresh:
        network.start_from(torch.from_numpy(column_counts(Y)), Y.shape[0])
    return run.go(resume)


class _Run:
    """One training run and where it is."""

    def __init__(
        self,
        network: Network,
        X: Any,
        Y: sp.csr_matrix,
        settings: TrainingSettings,
        validation: tuple[Any, sp.csr_matrix] | None,
        device: torch.device,
        reporter: Reporter | None,
        folder: Path | None,
    ) -> None:
        self.network, self.settings, self.validation = network.to(device), settings, validation
        self.device, self.reporter, self.folder = device, reporter or Reporter(), folder
        self.batches = Batches(X, Y, settings, network.settings.seed)
        self.optimizer = make_optimizer(network, settings, device)
        book = network.codebook
        if device.type == "cuda" and book is not None:
            # There is room for a table there, and a look-up is a fraction of generating codes.
            book.cache = book.n_labels * book.width <= TABLE_LIMIT
        self.epoch, self.step, self.total_loss = 0, 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.best_value = -math.inf

    def go(self, resume: bool) -> list[dict[str, Any]]:
        if self.folder is not None:
            prepare_folder(self.folder)
            if resume:
                checkpoint.restore(self, self.folder)
        self.steps = make_steps(self.network, self.optimizer, self.batches, self.device)
        with _interruptions() as interrupted:
            while self.epoch < self.settings.epochs and not self._out_of_patience():
                self._run_epoch(interrupted)
        if self.best:
            self.network.load_state_dict(self.best)
        return self.history

    def _run_epoch(self, interrupted: threading.Event) -> None:
        seed, n_steps = self.network.settings.seed, len(self.batches)
        if self.step == 0:
            self.total_loss = 0.0
            self.network.seed_noise(seed, self.epoch)
        self.reporter.epoch(self.epoch, n_steps - self.step)
        started, first = time.perf_counter(), self.step
        rates = [self.settings.rate(self.epoch * n_steps + step, n_steps) for step in range(n_steps)]
        self.network.train()
        for taken in self.steps.epoch(self.epoch, rates, first):
            if not math.isfinite(taken.loss):
                raise self._diverged(f"loss became {taken.loss} by step {self.step + taken.steps}")
            self.total_loss += taken.loss
            self.step += taken.steps
            self.reporter.step(taken)
            if interrupted.is_set() and self.step < n_steps:
                self._stop()
        seconds = time.perf_counter() - started
        if not all(map(_is_finite, self.network.parameters())):
            raise self._diverged("weights are no numbers any more after the last step")
        documents = self.batches.X.shape[0] - first * self.settings.batch_size
        record = {
            "epoch": self.epoch + 1,
            "loss": self.total_loss / n_steps,
            "lr": rates[-1],
            "seconds": round(seconds, 3),
            "documents_per_second": round(documents / max(seconds, 1e-9)),
        }
        if self.validation is not None:
            record[self.settings.metric] = self._judge(*self.validation)
        self.history.append(record)
        self.epoch, self.step = self.epoch + 1, 0
        self.reporter.record(record)
        if self.folder is not None:
            checkpoint.save(self, self.folder)
        if interrupted.is_set():
            self._stop()

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"the {what} of epoch {self.epoch + 1}: lower the learning rate (lr is {self.settings.lr}), "
            "or scale the features (scaling l2)"
        )

    def _judge(self, X: Any, Y: sp.csr_matrix) -> float:
        name, _, at = self.settings.metric.partition("@")
        ids, _ = predict_top_k(self.network, X, int(at), self.device)
        value = evaluate(Y, ids, k=int(at), metrics=(name,))[self.settings.metric]
        if value >= self.best_value:  # of equals the later, which has learned more
            self.best_value = value
            self.best = {key: tensor.clone() for key, tensor in self.network.state_dict().items()}
        return value

    def _out_of_patience(self) -> bool:
        if self.settings.patience is None or self.validation is None or not self.history:
            return False
        values = [record[self.settings.metric] for record in self.history]
        return len(values) - 1 - int(np.argmax(values)) >= self.settings.patience

    def _stop(self) -> None:
        if self.folder is None:
            raise InterruptedRunError("interrupted")
        if self.step:
            checkpoint.save(self, self.folder)
        where = f"in epoch {self.epoch + 1}" if self.step else f"after epoch {self.epoch}"
        raise InterruptedRunError(f"interrupted {where}; {self.folder} holds a checkpoint to resume")


def _is_finite(weight: Tensor) -> bool:
    """Whether all numbers of a weight are, without temporaries of its size, of which isfinite makes several."""
    if not weight.numel():
        return True
    numbers = torch.view_as_real(weight) if weight.is_complex() else weight
    # The ends are NaN if any number is, and infinite if one is. A sum can become so where no number has.
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(numbers.detach()))


def predict_top_k(
    network: Network,
    X: Any,
    k: int,
    device: torch.device,
    *,
    batch_size: int = 1024,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
) -> tuple[Any, Any]:
    """Ids and scores of the k best labels of every row, as arrays `(n, k)`.

    `memory`, `allowed` (an array) and `threshold` are those of `circlet.codebooks.decoding.top_k`.
    """
    network.eval()
    n_labels = network.loss.n_labels
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed)).to(device)
    check_options(n_labels, memory, mask, threshold)
    found: list[tuple[Tensor, Tensor]] = []
    # Not inference_mode: codes that are made and kept here may serve training later.
    with torch.no_grad():
        for start in range(0, X.shape[0], batch_size):
            outputs = network(as_batch(X[start : start + batch_size]).to(device))
            found.append(
                top_k(
                    network.loss,
                    outputs.float(),
                    n_labels,
                    k,
                    memory=memory,
                    allowed=mask,
                    threshold=threshold,
                )
            )
    if not found:
        empty = (0, min(k, n_labels))
        return np.zeros(empty, dtype=np.int64), np.zeros(empty, dtype=np.float32)
    ids, scores = zip(*found, strict=True)
    return torch.cat(ids).cpu().numpy(), torch.cat(scores).cpu().numpy()


@contextmanager
def _interruptions() -> Iterator[threading.Event]:
    """Let Ctrl-C wait for the end of a step; a second one does not wait."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(*_: Any) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
