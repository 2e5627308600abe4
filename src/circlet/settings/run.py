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
    SHARE,
    SWITCH,
    Decision,
    Kind,
    NetworkSettings,
    Setting,
    among,
    check,
    check_frequencies,
    check_ngrams,
    number,
    optional,
    setting,
    settings_in,
    whole,
)

#: The optimizers of `circlet.training.optimizers`.
OPTIMIZERS = ("adamw", "adam", "adadelta", "sgd")
SCHEDULES = ("one-cycle", "constant", "step")
#: The metric that is the loss itself, of which the least is the best.
LEAST_LOSS = "loss"
_METRIC = re.compile(r"loss|(P|R|nDCG|coverage)@[1-9][0-9]{0,8}")


def _is_metric(value: Any) -> bool:
    return isinstance(value, str) and _METRIC.fullmatch(value) is not None


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of training; see `CircletClassifier` for their meaning."""

    epochs: int = setting(MAIN, 30, whole(1), "Passes over the documents.", usual=AUTO)
    batch_size: int = setting(OPTIMIZATION, 256, whole(1), "Documents per training step.", usual=AUTO)
    optimizer: str = setting(
        OPTIMIZATION, "adamw", among(OPTIMIZERS), "Optimizer of the weights", "sgd has momentum 0.9."
    )
    first_layer: str = setting(
        OPTIMIZATION,
        "same",
        among(("sgd", "same")),
        "Optimizer of the weights that multiply features",
        "sgd is plain SGD, without momentum and weight decay; same is the optimizer of the other weights. Adam "
        "divides a weight's step by the history of its gradient, so the weights of a word that occurs twice move "
        "as far as those of a word that occurs ten thousand times, and rare words are memorized. With SGD, a word "
        "counts as much as it occurs. In documents of only a few words, rare words are all there is, and Adam is "
        "better. Where no rule decides, a short trial on held-out rows does.",
        usual=AUTO,
    )
    lr: float = setting(
        OPTIMIZATION,
        2e-3,
        number("a number above 0", lambda value: bool(value > 0)),
        "Peak learning rate.",
        usual=AUTO,
    )
    schedule: str = setting(
        OPTIMIZATION,
        "one-cycle",
        among(SCHEDULES),
        "Schedule of the learning rate",
        "one-cycle rises for 30% of the steps, then falls to almost 0; step multiplies the rate by 0.7 after "
        "every epoch.",
    )
    weight_decay: float = setting(
        OPTIMIZATION,
        0.0,
        number("at least 0", lambda value: bool(value >= 0)),
        "How strongly weights are pulled towards 0.",
    )
    input_dropout: float = setting(OPTIMIZATION, 0.0, SHARE, "Share of a document's features dropped in training.")
    precision: str = setting(
        OPTIMIZATION,
        "auto",
        among(("auto", "float32")),
        "Precision of the layers",
        "auto is bfloat16 where the device multiplies it faster.",
    )
    metric: str = setting(
        OPTIMIZATION,
        "nDCG@5",
        Kind(str, "NAME", "loss, or like P@1 or nDCG@5", _is_metric),
        "Metric on held-out rows that chooses the best epoch, or loss.",
        "P@1, nDCG@5, ..., or loss for the lowest loss.",
    )
    patience: int | None = setting(
        OPTIMIZATION,
        None,
        optional(1),
        "Stop after this many epochs without a better metric.",
        "None never stops early. Unless `join` is true, the weights of the best epoch are kept in either case.",
    )
    join: bool = setting(
        OPTIMIZATION,
        False,
        SWITCH,
        "Train on the held-out rows, too, in the end.",
        "A short further epoch, at a low rate, has these rows and as many others, so that the model has learned "
        "from every row. The weights of the last epoch are then kept, whatever the metric says. Otherwise "
        "held-out rows are never trained on, nor are they with the loss softmax.",
        usual=True,
        option="--join/--no-join",
    )

    def __post_init__(self) -> None:
        check(self)

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step, counted from 0 over the whole run."""
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "step":
            return self.lr * 0.7 ** (step // steps_per_epoch)
        total = self.epochs * steps_per_epoch
        up = max(1, round(0.3 * total))
        if step < up:
            return self.lr * (0.04 + 0.96 * (1 - math.cos(math.pi * step / up)) / 2)
        return self.lr * (1e-5 + (1 + math.cos(math.pi * (step - up) / max(1, total - up))) / 2)

    def final_rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step of the final epoch with held-out rows; it falls to almost 0.

        It is low, so that the weights stay close to those that the probabilities were calibrated with.
        """
        # It starts at a tenth of the peak rate; higher rates made models worse.
        return 0.1 * self.lr * (1 - step / steps)


#: With fewer documents, none are held out: too few would be left for training and for validation.
FEWEST_TO_SPLIT = 20


class ThresholdGoal(NamedTuple):
    """What a threshold is chosen for: a measure over all decisions together."""

    measure: str  # f1, precision or recall
    target: float | None = None  # the value to reach; None for f1, as high as possible

    @classmethod
    def of(cls, text: Any) -> ThresholdGoal:
        """Parse `f1`, `precision=0.9` or `recall=0.8`.

        >>> ThresholdGoal.of("precision=0.9")
        ThresholdGoal(measure='precision', target=0.9)
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
                f"`threshold_for` (--for): found {text!r}; wanted f1, or precision or recall and a number up to "
                "1, such as precision=0.9"
            )
        return cls(measure, target)


@dataclass(frozen=True)
class TextSettings:
    """The features of texts; see `circlet.features.TextVectorizer`, which checks them.

    An encoder that learns words knows single ones only: those that `min_df` and `max_features` leave.
    """

    word_ngrams: tuple[int, int] | None = setting(
        None,
        (1, 1),
        Kind(tuple, "N,N", documented="(int, int) or None"),
        "Lengths of the shortest and longest runs of words that are features of texts.",
        "None for no words.",
    )
    char_ngrams: tuple[int, int] | None = setting(
        NETWORK,
        None,
        Kind(tuple, "N,N", documented="(int, int) or None"),
        "Lengths of runs of characters to use as well, such as 3,5; or none.",
        "None uses words only.",
        usual=AUTO,
    )
    min_df: int | float = setting(
        NETWORK,
        1,
        Kind(float, "N", documented="int or float"),
        "Leave out words in fewer texts than this.",
        "From 0 to 1, a float is a share of the texts.",
        usual=AUTO,
    )
    max_features: int | None = setting(
        NETWORK,
        None,
        Kind(int, "N", documented="int or None"),
        "Keep only this many words, the most frequent ones.",
        "None keeps all.",
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
        NETWORK,
        AUTO,
        among(("none", "l2", "sqrt", "tfidf", "standard"), auto=True),
        "Scaling of feature rows",
        "Texts are always weighted by tf-idf. See `circlet.features.SCALINGS`.",
    )
    validation: float = setting(
        OPTIMIZATION,
        0.05,
        Kind(float, "X", "a share at least 0 and below 1, or a number of rows", _is_size, "float or int"),
        "Share or number of rows to hold out at first, to decide and to calibrate.",
        "They also choose the best epoch, unless `join` is true. 0 holds out none, and so do fewer than 20 rows.",
        usual=AUTO,
    )
    members: int = setting(
        MAIN,
        1,
        whole(1),
        "Number of networks to train and to average.",
        "They are used as one model, and differ only in the seed.",
    )
    remember: int = setting(
        OUTPUT,
        2000,
        whole(0),
        "Training rows to keep with the model, for updates by feedback.",
        "Without them, an update would forget what was learned before.",
    )
    threshold_for: str = setting(
        MAIN,
        "f1",
        Kind(str, "GOAL", valid=lambda value: bool(ThresholdGoal.of(value))),  # which raises its own error
        "Goal of the stored threshold: f1, precision=0.9, recall=0.8, …",
        "Over all decisions on held-out rows together: the highest F1, or as many labels as possible of this "
        "precision, or as few as possible of this recall.",
        option="--for",
    )
    undecided: frozenset[str] = frozenset()
    preset: str = "default"

    def __post_init__(self) -> None:
        check(self)
        if self.validation >= 1:
            object.__setattr__(self, "validation", int(self.validation))
        if self.network.takes_features:
            return
        given = {"first_layer": self.training.first_layer, **vars(self.text)}
        fitting = {"first_layer": ("same",), "char_ngrams": (None,), "word_ngrams": ((1, 1), [1, 1])}
        for name, wanted in fitting.items():
            if given[name] not in wanted:
                raise ParameterError(
                    f"`{name}`: found {given[name]!r}; wanted {wanted[0]} for encoder {self.network.encoder}, "
                    f"encoder {FEATURES}, or both (--bag-of-words)"
                )

    @classmethod
    def of(cls, settings: Mapping[str, Any], *, seed: int = 0, preset: str = "default") -> RunSettings:
        """Make the settings from values by name, whatever part they belong to; the others have their defaults.

        Values of "auto" stay undecided, if they can be decided from the data.
        """
        undecided = frozenset(
            name for name in DECIDABLE if isinstance(settings.get(name), str) and settings[name] == AUTO
        )
        settings = {name: value for name, value in settings.items() if name not in undecided}
        known = list(all_settings())
        if unknown := set(settings) - set(known):
            raise ParameterError(f"found unknown settings {sorted(unknown)}; wanted some of {', '.join(known)}")

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
        """Make the settings of a preset, overridden by the `given` values that are not None.

        Other settings stay undecided, if they can be decided from the data.
        """
        usual = DEFAULTS if preset in EFFORTS else {}
        return cls.of({**usual, **resolve(preset, given)}, seed=seed, preset=preset)

    def with_values(self, values: Mapping[str, Any]) -> RunSettings:
        """Replace settings by name; the new values are decided."""
        return type(self).of({**self.flat(), **values}, seed=self.network.seed, preset=self.preset)

    def decided(self, facts: Facts) -> tuple[RunSettings, list[Decision]]:
        """Decide the open settings by rules; return all settings and the decisions."""
        if not self.undecided:
            return self, []
        text_encoder = self.network.text_encoder
        own = text_encoder.rules if text_encoder is not None else {}
        decisions = by_rule(self.preset, self.undecided, facts, own)
        return self.with_values({each.name: each.value for each in decisions}), decisions

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings except the seed."""
        return list(all_settings())

    def flat(self) -> dict[str, Any]:
        """Return all settings by name, except the seed; undecided ones are "auto"."""
        parts = (asdict(self.network), asdict(self.training), asdict(self.text))
        merged = {name: value for part in parts for name, value in part.items() if name != "seed"}
        own = {name: getattr(self, name) for name in settings_in(type(self))}
        return {**merged, **own, **dict.fromkeys(self.undecided, AUTO)}

    def networks(self) -> list[NetworkSettings]:
        """Return the settings of each member's network, which differ only in the seed.

        The first has the run's seed; the other seeds are derived from it. With consecutive seeds, the runs with
        seeds 0 and 1 would share members, and would not be independent.
        """
        seed = self.network.seed
        derived = (np.random.SeedSequence(seed, spawn_key=(member,)) for member in range(1, self.members))
        return [self.network, *(replace(self.network, seed=int(each.generate_state(1)[0])) for each in derived)]

    @property
    def has_final_epoch(self) -> bool:
        """Whether the final epoch trains on held-out rows; not if these decide when to stop.

        Nor with the loss softmax: its scores go on growing, so the calibration would no longer fit.
        """
        training = self.training
        return training.join and training.patience is None and self.network.loss != "softmax"

    def has_calibration_run(self, n: int) -> bool:
        """Whether n documents are so few that a calibration run comes first.

        It trains a model without the held-out documents, only to calibrate the model that is then trained on all.
        """
        return self.has_final_epoch and n <= effort_of(self.preset).calibration_run

    def held_out(self, n: int) -> npt.NDArray[np.int64] | None:
        """Return which of n rows are held out for validation and calibration, ascending; None for none of them.

        The seed determines the rows.
        """
        from circlet.data.dataset import validation_rows  # imports scipy; `--help` must not wait for it

        size = self.validation
        if not size or n < FEWEST_TO_SPLIT or (size < 1 and round(size * n) < 1):
            return None
        return validation_rows(n, size, self.network.seed)


def all_settings() -> dict[str, Setting]:
    """Return all settings of a run by name, except the seed."""
    parts = (NetworkSettings, TrainingSettings, TextSettings, RunSettings)
    return {name: each for part in parts for name, each in settings_in(part).items() if name != "seed"}


#: The default of each setting, by name; "auto" is decided from the data.
DEFAULTS: dict[str, Any] = {name: each.usual for name, each in all_settings().items()}
