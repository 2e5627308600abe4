"""How a network is trained."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from circlet.checks import is_integer, is_real
from circlet.settings.checked import check

__all__ = ["OPTIMIZERS", "SCHEDULES", "TrainingSettings"]

#: The optimizers of `circlet.training.optimizers`.
OPTIMIZERS = ("adamw", "adam", "adadelta", "sgd")
SCHEDULES = ("one-cycle", "constant", "step")
_METRIC = re.compile(r"(P|R|nDCG|coverage)@[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    Parameters
    ----------
    epochs, batch_size : int
    optimizer : str
        adamw, adam, adadelta or sgd (with momentum 0.9).
    lr : float
        The peak learning rate.
    schedule : str
        one-cycle: up for 30% of the steps, then down to almost 0; constant; step: times 0.7 after every epoch.
    weight_decay : float
    input_dropout : float
        Share of a document's features dropped in training.
    metric : str
        The metric on held-out rows that chooses the best epoch: P@1, nDCG@5, ...
    patience : int or None
        Stop after this many epochs without a better metric; None never stops early. The weights of the best epoch
        are kept in either case.
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
        dropout = self.input_dropout
        check(
            self,
            epochs=(is_integer(self.epochs, 1), "an integer >= 1"),
            batch_size=(is_integer(self.batch_size, 1), "an integer >= 1"),
            optimizer=(self.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
            lr=(is_real(self.lr) and 0 < self.lr < math.inf, "a number above 0"),
            schedule=(self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            weight_decay=(is_real(self.weight_decay) and 0 <= self.weight_decay < math.inf, "at least 0"),
            input_dropout=(is_real(dropout) and 0 <= dropout < 1, "at least 0 and below 1"),
            metric=(
                isinstance(self.metric, str) and _METRIC.fullmatch(self.metric) is not None,
                "like P@1 or nDCG@5",
            ),
            patience=(self.patience is None or is_integer(self.patience, 1), "None or an integer >= 1"),
        )
        # JSON can't hold NumPy's numbers, which a search grid may pass.
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
