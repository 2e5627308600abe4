"""How a network is trained."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from circlet.checks import is_integer, is_real
from circlet.settings.checked import check

__all__ = ["FIRST_LAYERS", "LEAST_LOSS", "OPTIMIZERS", "PRECISIONS", "SCHEDULES", "TrainingSettings"]

#: The optimizers of `circlet.training.optimizers`.
OPTIMIZERS = ("adamw", "adam", "adadelta", "sgd")
#: How the first layer is trained: by SGD, or by the optimizer of the other layers.
FIRST_LAYERS = ("sgd", "same")
SCHEDULES = ("one-cycle", "constant", "step")
#: What layers compute with in training: bfloat16 where the device multiplies it faster, or always float32.
PRECISIONS = ("auto", "float32")
#: The metric that is the loss itself, of which the least is the best.
LEAST_LOSS = "loss"
#: The rate at which held-out rows join, as a share of the peak rate. Higher ones unlearn more than they teach.
JOINING_RATE = 0.1
_METRIC = re.compile(r"(P|R|nDCG|coverage)@[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    epochs : int
        How many times training goes over the documents.
    batch_size : int
        Documents per step.
    optimizer : str
        adamw, adam, adadelta or sgd (with momentum 0.9).
    first_layer : str
        sgd: the weights that multiply the features are trained by SGD with momentum, whatever the optimizer of
        the other weights; same: by that optimizer. Adam divides a weight's step by the history of its gradient,
        so the weights of a word that occurs twice move as far as those of a word that occurs ten thousand times,
        and rare words are learned by heart. With SGD, a word counts as much as it occurs. Where a document has
        only a few words, rare words are all there is, and Adam is better.
    lr : float
        The peak learning rate.
    schedule : str
        one-cycle: up for 30% of the steps, then down to almost 0; constant; step: times 0.7 after every epoch.
    weight_decay : float
        How strongly weights are pulled towards 0.
    input_dropout : float
        Share of a document's features dropped in training.
    precision : str
        auto: layers compute in bfloat16 where the device multiplies it faster; float32: never.
    metric : str
        The metric on held-out rows that chooses the best epoch: P@1, nDCG@5, ..., or loss for the least loss.
    join : bool
        Whether held-out rows join in the end: a short further epoch, at a low rate, has these rows and as many
        others, so that the model has learned from every row. The weights of the last epoch are then kept, whatever
        the metric says. Otherwise held-out rows are never trained on, nor are they with the loss softmax.
    patience : int or None
        Stop after this many epochs without a better metric; None never stops early. Unless rows join, the weights
        of the best epoch are kept in either case.
    """

    epochs: int = 30
    batch_size: int = 256
    optimizer: str = "adamw"
    first_layer: str = "same"
    lr: float = 2e-3
    schedule: str = "one-cycle"
    weight_decay: float = 0.0
    input_dropout: float = 0.0
    precision: str = "auto"
    metric: str = "nDCG@5"
    patience: int | None = None
    join: bool = False

    def __post_init__(self) -> None:
        dropout = self.input_dropout
        check(
            self,
            epochs=(is_integer(self.epochs, 1), "an integer >= 1"),
            batch_size=(is_integer(self.batch_size, 1), "an integer >= 1"),
            optimizer=(self.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
            first_layer=(self.first_layer in FIRST_LAYERS, f"one of {', '.join(FIRST_LAYERS)}"),
            lr=(is_real(self.lr) and 0 < self.lr < math.inf, "a number above 0"),
            schedule=(self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            weight_decay=(is_real(self.weight_decay) and 0 <= self.weight_decay < math.inf, "at least 0"),
            input_dropout=(is_real(dropout) and 0 <= dropout < 1, "at least 0 and below 1"),
            precision=(self.precision in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
            metric=(
                isinstance(self.metric, str)
                and (self.metric == LEAST_LOSS or _METRIC.fullmatch(self.metric) is not None),
                "loss, or like P@1 or nDCG@5",
            ),
            patience=(self.patience is None or is_integer(self.patience, 1), "None or an integer >= 1"),
            join=(isinstance(self.join, (bool, np.bool_)), "true or false"),
        )
        # JSON can't hold NumPy's numbers, which a search grid may pass.
        for parameter in ("epochs", "batch_size", "patience"):
            value = getattr(self, parameter)
            object.__setattr__(self, parameter, None if value is None else int(value))
        object.__setattr__(self, "join", bool(self.join))
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

    def joining_rate(self, step: int, steps: int) -> float:
        """Learning rate of a step of the epoch in which held-out rows join: it falls to almost 0.

        It is low, so that the weights stay close to those that the probabilities were calibrated with.
        """
        return JOINING_RATE * self.lr * (1 - step / steps)
