"""One description of a training run: network, training, text features, scaling, held-out rows, members."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer, is_real
from circlet.encoders import FEATURES
from circlet.errors import ParameterError
from circlet.settings.auto import DECIDABLE, EFFORTS, Facts, by_rule, effort_of, resolve
from circlet.settings.network import (
    AUTO,
    MAIN,
    NETWORK,
    OPTIMIZATION,
    OUTPUT,
    Decision,
    Kind,
    NetworkSettings,
    Setting,
    among,
    check,
    check_frequencies,
    check_ngrams,
    integers,
    number,
    setting,
    settings_in,
    share,
    switch,
    whole,
)

__all__ = ["LEAST_LOSS", "OPTIMIZERS", "SCHEDULES", "Aim", "RunSettings", "TextSettings", "TrainingSettings"]

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


#: With fewer documents none are held out: too few would be left to train on, and too few to validate on.
FEWEST_TO_SPLIT = 20


class Aim(NamedTuple):
    """A measure over all decisions together, and the value that it shall reach.

    Parameters
    ----------
    measure : {"f1", "precision", "recall"}
    target : float or None
        None for f1, which shall be as high as possible.
    """

    measure: str
    target: float | None = None

    @classmethod
    def of(cls, text: Any) -> Aim:
        """The aim that is written as `f1`, `precision=0.9` or `recall=0.8`.

        >>> Aim.of("precision=0.9")
        Aim(measure='precision', target=0.9)
        """
        measure, equals, number = text.partition("=") if isinstance(text, str) else ("", "", "")
        if measure == "f1" and not equals:
            return cls("f1")
        try:
            target = float(number)
        except ValueError:
            target = -1.0
        if measure not in ("precision", "recall") or not 0 < target <= 1:
            raise ParameterError(
                "`threshold_for` (--for) must be f1, or precision or recall with a number up to 1, such as "
                f"precision=0.9, got {text!r}"
            )
        return cls(measure, target)


@dataclass(frozen=True)
class TextSettings:
    """How texts become features; `circlet.features.TextVectorizer` explains and checks each setting.

    An encoder that learns words knows single ones only: those that `min_df` and `max_features` leave.
    """

    word_ngrams: tuple[int, int] | None = setting(
        (1, 1),
        integers(documented="(int, int) or None"),
        "Lengths of the shortest and longest runs of words that are features of texts.",
        "None for no words.",
    )
    char_ngrams: tuple[int, int] | None = setting(
        None,
        integers(documented="(int, int) or None"),
        "Use runs of characters of these lengths too, like 3,5, or none.",
        "None uses words only.",
        panel=NETWORK,
        usual=AUTO,
    )
    min_df: int | float = setting(
        1,
        Kind(int, "N", "int or float", "a number", lambda text: int(text) if text.isdecimal() else float(text)),
        "Leave out words in fewer texts than this.",
        "From 0 to 1, a float is a share of the texts.",
        panel=NETWORK,
        usual=AUTO,
    )
    max_features: int | None = setting(
        None,
        Kind(int, "N", "int or None", "an integer", int),
        "Keep only this many words, the most frequent.",
        "None keeps all.",
        panel=NETWORK,
        usual=AUTO,
    )

    def __post_init__(self) -> None:
        words, characters = check_ngrams(self.word_ngrams, self.char_ngrams)
        least, most = check_frequencies(self.min_df, self.max_features)
        plain = {"word_ngrams": words, "char_ngrams": characters, "min_df": least, "max_features": most}
        for name, value in plain.items():
            object.__setattr__(self, name, value)


def _is_size(value: Any) -> bool:
    return is_real(value) and (0 <= value < 1 or is_integer(value, 1) or (float(value).is_integer() and value > 0))


@dataclass(frozen=True)
class RunSettings:
    """Everything that determines a training run, except its data.

    Parameters
    ----------
    network : NetworkSettings
        How documents become scores of labels.
    training : TrainingSettings
        How the network is trained.
    text : TextSettings
        For documents that are texts.
    undecided : frozenset of str
        Names of settings that are decided when the data are known; `decided` does it.
    preset : str
        Whose rules decide them.
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    text: TextSettings = field(default_factory=TextSettings)
    scaling: str = setting(
        AUTO,
        among(("none", "l2", "sqrt", "tfidf", "standard"), auto=True),
        "How feature rows are scaled",
        "Texts are always weighted by tf-idf. See `circlet.features.SCALINGS`.",
        panel=NETWORK,
    )
    validation: float = setting(
        0.05,
        Kind(
            float,
            "X",
            "float or int",
            "a number",
            lambda text: int(text) if text.isdecimal() else float(text),
            "a share at least 0 and below 1, or a number of rows",
            _is_size,
            lambda value: int(value) if value >= 1 else float(value),
        ),
        "Share or number of rows held out at first, to decide and to calibrate.",
        "They also choose the best epoch, unless they join. 0 is none; nor are any of fewer than 20 rows.",
        panel=OPTIMIZATION,
        usual=AUTO,
    )
    members: int = setting(
        1,
        whole(1),
        "Networks to train one by one, and to average.",
        "They are used as one model, and differ only in the seed.",
        panel=MAIN,
    )
    remember: int = setting(
        2000,
        whole(0),
        "Training rows to keep with the model, so that feedback can teach it.",
        "With them, it forgets nothing when it is taught.",
        panel=OUTPUT,
    )
    threshold_for: str = setting(
        "f1",
        Kind(metavar="AIM", valid=lambda value: bool(Aim.of(value))),  # which refuses what is none
        "Aim of the stored threshold: f1, precision=0.9, recall=0.8, …",
        "Over all decisions on held-out rows together: the highest F1, or as many labels as possible of this "
        "precision, or as few as possible of this recall.",
        panel=MAIN,
        option="--for",
    )
    undecided: frozenset[str] = frozenset()
    preset: str = "default"

    def __post_init__(self) -> None:
        check(self)
        self._check_reading()

    def _check_reading(self) -> None:
        """Refuse settings of features where an encoder of texts takes their place."""
        if self.network.takes_features:
            return
        given = {"first_layer": self.training.first_layer, **vars(self.text)}
        fitting = {"first_layer": ("same",), "char_ngrams": (None,), "word_ngrams": ((1, 1), [1, 1])}
        for name, wanted in fitting.items():
            if given[name] not in wanted:
                raise ParameterError(
                    f"encoder {self.network.encoder} takes the place of features: `{name}` must be {wanted[0]}, "
                    f"got {given[name]!r}; or choose encoder {FEATURES}, or both (--bag-of-words)"
                )

    @classmethod
    def of(cls, settings: Mapping[str, Any], *, seed: int = 0, preset: str = "default") -> RunSettings:
        """From settings by name, whatever part they belong to; the others have their defaults.

        Those that are "auto" are left undecided, if they can be decided from the data.
        """
        undecided = frozenset(name for name in DECIDABLE if _is_auto(settings.get(name)))
        settings = {name: value for name, value in settings.items() if name not in undecided}
        unknown = set(settings) - set(cls.names())
        if unknown:
            raise ParameterError(f"unknown settings {sorted(unknown)}; wanted some of {', '.join(cls.names())}")

        def part(kind: type) -> dict[str, Any]:
            return {each.name: settings[each.name] for each in fields(kind) if each.name in settings}

        return cls(
            NetworkSettings(**part(NetworkSettings), seed=seed),
            TrainingSettings(**part(TrainingSettings)),
            TextSettings(**part(TextSettings)),
            **{name: settings[name] for name in settings_in(cls) if name in settings},
            undecided=undecided,
            preset=preset,
        )

    @classmethod
    def from_preset(cls, preset: str, given: Mapping[str, Any], *, seed: int = 0) -> RunSettings:
        """From a preset, overridden by those of the `given` settings that are not None.

        What neither says is left undecided, if it can be decided from the data.
        """
        usual = defaults() if preset in EFFORTS else {}
        return cls.of({**usual, **resolve(preset, given)}, seed=seed, preset=preset)

    def with_values(self, values: Mapping[str, Any]) -> RunSettings:
        """The same with other values, by name, which are then decided."""
        return type(self).of({**self.flat(), **values}, seed=self.network.seed, preset=self.preset)

    def decided(self, facts: Facts) -> tuple[RunSettings, list[Decision]]:
        """The settings for data of which these facts are known, and what was decided by rules."""
        if not self.undecided:
            return self, []
        text_encoder = self.network.text_encoder
        own = text_encoder.rules if text_encoder is not None else {}
        decisions = by_rule(self.preset, self.undecided, facts, own)
        return self.with_values({each.name: each.value for each in decisions}), decisions

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings except the seed."""
        return list(all_settings())

    def flat(self) -> dict[str, Any]:
        """All settings by name, except the seed; those that are undecided are "auto"."""
        parts = (asdict(self.network), asdict(self.training), asdict(self.text))
        merged = {name: value for part in parts for name, value in part.items() if name != "seed"}
        own = {name: getattr(self, name) for name in settings_in(type(self))}
        return {**merged, **own, **dict.fromkeys(self.undecided, AUTO)}

    def networks(self) -> list[NetworkSettings]:
        """The settings of each member's network, which differ only in the seed.

        The first has the run's own seed, the others have seeds that are derived from it. Consecutive seeds would
        be simpler, but then the runs with seeds 0 and 1 would share members, and would not be independent.
        """
        seed = self.network.seed
        derived = (np.random.SeedSequence(seed, spawn_key=(member,)) for member in range(1, self.members))
        return [self.network, *(replace(self.network, seed=int(each.generate_state(1)[0])) for each in derived)]

    @property
    def joins(self) -> bool:
        """Whether rows that are held out join the others; not if they decide when to stop.

        Nor with the loss softmax, whose scores go on growing: what the rows calibrated would no longer be true.
        """
        training, lasting = self.training, self.network.loss != "softmax"
        return training.join and training.patience is None and lasting

    def has_calibration_run(self, n: int) -> bool:
        """Whether n documents are so few that a model of all but the held-out ones is trained first.

        It serves to calibrate the model that is then trained on all of them, from scratch, and is thrown away.
        """
        return self.joins and n <= effort_of(self.preset).calibration_run

    def held_out(self, n: int) -> npt.NDArray[np.int64] | None:
        """Which of n rows are held out for validation and calibration, ascending; None for none of them.

        The seed determines which.
        """
        from circlet.data.dataset import validation_rows  # imports scipy, which `--help` need not wait for

        size = self.validation
        if not size or n < FEWEST_TO_SPLIT or (size < 1 and round(size * n) < 1):
            return None
        return validation_rows(n, size, self.network.seed)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def all_settings() -> dict[str, Setting]:
    """All settings of a run by name, except the seed."""
    parts = (NetworkSettings, TrainingSettings, TextSettings, RunSettings)
    return {name: each for part in parts for name, each in settings_in(part).items() if name != "seed"}


def defaults() -> dict[str, Any]:
    """What a run has, unless it or its preset says otherwise, by name; "auto" is decided from the data."""
    return {name: each.usual for name, each in all_settings().items()}
