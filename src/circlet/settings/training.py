"""How a network is trained."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from circlet.settings.fields import (
    AUTO,
    MAIN,
    OPTIMIZATION,
    Kind,
    among,
    check,
    number,
    setting,
    share,
    switch,
    whole,
)

__all__ = ["LEAST_LOSS", "OPTIMIZERS", "SCHEDULES", "TrainingSettings"]

#: The optimizers of `circlet.training.optimizers`.
OPTIMIZERS = ("adamw", "adam", "adadelta", "sgd")
SCHEDULES = ("one-cycle", "constant", "step")
#: The metric that is the loss itself, of which the least is the best.
LEAST_LOSS = "loss"
_METRIC = re.compile(r"loss|(P|R|nDCG|coverage)@[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained; `CircletClassifier` says what each setting means."""

    epochs: int = setting(30, whole(1), "Passes over the documents.", panel=MAIN, usual=AUTO)
    batch_size: int = setting(256, whole(1), "Documents per training step.", panel=OPTIMIZATION, usual=AUTO)
    optimizer: str = setting(
        "adamw", among(OPTIMIZERS), "What trains the weights", "sgd has momentum 0.9.", panel=OPTIMIZATION
    )
    first_layer: str = setting(
        "same",
        among(("sgd", "same")),
        "What trains the weights that multiply features",
        "sgd is plain SGD, without momentum and weight decay; same is the optimizer of the other weights. Adam "
        "divides a weight's step by the history of its gradient, so the weights of a word that occurs twice move "
        "as far as those of a word that occurs ten thousand times, and rare words are learned by heart. With SGD, "
        "a word counts as much as it occurs. Where a document has only a few words, rare words are all there is, "
        "and Adam is better. Where no rule decides, a short trial on held-out rows does.",
        panel=OPTIMIZATION,
        usual=AUTO,
    )
    lr: float = setting(
        2e-3,
        number("a number above 0", lambda value: bool(value > 0)),
        "Peak learning rate.",
        panel=OPTIMIZATION,
        usual=AUTO,
    )
    schedule: str = setting(
        "one-cycle",
        among(SCHEDULES),
        "How the learning rate changes",
        "one-cycle is up for 30% of the steps, then down to almost 0; step is times 0.7 after every epoch.",
        panel=OPTIMIZATION,
    )
    weight_decay: float = setting(
        0.0,
        number("at least 0", lambda value: bool(value >= 0)),
        "How strongly weights are pulled towards 0.",
        panel=OPTIMIZATION,
    )
    input_dropout: float = setting(
        0.0, share(), "Share of a document's features dropped in training.", panel=OPTIMIZATION
    )
    precision: str = setting(
        "auto",
        among(("auto", "float32")),
        "What layers compute in",
        "auto is bfloat16 where the device multiplies it faster.",
        panel=OPTIMIZATION,
    )
    metric: str = setting(
        "nDCG@5",
        Kind(
            metavar="NAME",
            wanted="loss, or like P@1 or nDCG@5",
            valid=lambda value: isinstance(value, str) and _METRIC.fullmatch(value) is not None,
        ),
        "Metric on held-out rows that chooses the best epoch, or loss.",
        "P@1, nDCG@5, ..., or loss for the least loss.",
        panel=OPTIMIZATION,
    )
    patience: int | None = setting(
        None,
        whole(1, optional=True),
        "Stop after this many epochs without a better metric.",
        "None never stops early. Unless rows join, the weights of the best epoch are kept in either case.",
        panel=OPTIMIZATION,
    )
    join: bool = setting(
        False,
        switch(),
        "Let held-out rows join the others in the end.",
        "A short further epoch, at a low rate, has these rows and as many others, so that the model has learned "
        "from every row. The weights of the last epoch are then kept, whatever the metric says. Otherwise "
        "held-out rows are never trained on, nor are they with the loss softmax.",
        panel=OPTIMIZATION,
        usual=True,
        option="--join/--no-join",
    )

    def __post_init__(self) -> None:
        check(self)

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
        # At a tenth of the peak rate: higher ones unlearn more than they teach.
        return 0.1 * self.lr * (1 - step / steps)
