"""One description of a training run: network, training, text features, scaling, held-out rows, members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer, is_real
from circlet.errors import ParameterError
from circlet.settings.aim import Aim
from circlet.settings.auto import DECIDABLE, EFFORTS, Decision, Facts, by_rule, effort_of
from circlet.settings.auto_reading import READING_RULES
from circlet.settings.checked import check
from circlet.settings.network import FEATURES, NetworkSettings
from circlet.settings.presets import resolve
from circlet.settings.training import TrainingSettings

__all__ = ["RunSettings", "TextSettings"]

#: With fewer documents none are held out: too few would be left to train on, and too few to validate on.
FEWEST_TO_SPLIT = 20
#: The value of a setting that is decided when the data are known.
AUTO = "auto"
#: The settings of a run that belong to none of its parts.
_OWN = ("scaling", "validation", "members", "remember", "threshold_for")


@dataclass(frozen=True)
class TextSettings:
    """How texts become features; `circlet.features.TextVectorizer` explains and checks each setting.

    An encoder that reads texts knows single words only: those that `min_df` and `max_features` leave.
    """

    word_ngrams: tuple[int, int] | None = (1, 1)
    char_ngrams: tuple[int, int] | None = None
    min_df: int | float = 1
    max_features: int | None = None


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
    scaling : str
        How feature rows are scaled; see `circlet.features.rows.SCALINGS`.
    validation : float or int
        Share or number of rows to hold out of training, for choosing the best epoch and calibrating
        probabilities; 0 for none.
    members : int
        Number of networks that are trained one after the other and used as one: their probabilities are averaged.
    remember : int
        The most training rows that are kept with the model, so that it forgets nothing when it is taught more.
    threshold_for : str
        What the stored threshold is best for on held-out rows: `f1`, or for example `precision=0.9`; see
        `circlet.settings.aim`.
    undecided : frozenset of str
        Names of settings that are decided when the data are known; `decided` does it.
    preset : str
        Whose rules decide them.
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    text: TextSettings = field(default_factory=TextSettings)
    scaling: str = "auto"
    validation: float = 0.05
    members: int = 1
    remember: int = 2000
    threshold_for: str = "f1"
    undecided: frozenset[str] = frozenset()
    preset: str = "default"

    def __post_init__(self) -> None:
        Aim.of(self.threshold_for)  # refuses what is none
        size = self.validation
        valid = is_real(size) and (0 <= size < 1 or is_integer(size, 1) or (float(size).is_integer() and size > 0))
        check(
            self,
            validation=(valid, "a share at least 0 and below 1, or a number of rows"),
            members=(is_integer(self.members, 1), "an integer >= 1"),
            remember=(is_integer(self.remember, 0), "an integer >= 0"),
        )
        object.__setattr__(self, "validation", int(size) if size >= 1 else float(size))
        object.__setattr__(self, "members", int(self.members))
        object.__setattr__(self, "remember", int(self.remember))
        self._check_reading()

    def _check_reading(self) -> None:
        """Refuse settings of features where the encoder reads texts."""
        if not self.network.reads_texts:
            return
        given = {"first_layer": self.training.first_layer, **vars(self.text)}
        fitting = {"first_layer": ("same",), "char_ngrams": (None,), "word_ngrams": ((1, 1), [1, 1])}
        for name, wanted in fitting.items():
            if given[name] not in wanted:
                raise ParameterError(
                    f"encoder {self.network.encoder} reads words one by one, and has no features: `{name}` must "
                    f"be {wanted[0]}, got {given[name]!r}; or choose encoder {FEATURES}"
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
            **{name: settings[name] for name in _OWN if name in settings},
            undecided=undecided,
            preset=preset,
        )

    @classmethod
    def from_preset(cls, preset: str, given: Mapping[str, Any], *, seed: int = 0) -> RunSettings:
        """From a preset, overridden by those of the `given` settings that are not None.

        What neither says is left undecided, if it can be decided from the data.
        """
        left_open = dict.fromkeys(DECIDABLE if preset in EFFORTS else (), AUTO)
        return cls.of({**left_open, **resolve(preset, given)}, seed=seed, preset=preset)

    def with_values(self, values: Mapping[str, Any]) -> RunSettings:
        """The same with other values, by name, which are then decided."""
        return type(self).of({**self.flat(), **values}, seed=self.network.seed, preset=self.preset)

    def decided(self, facts: Facts) -> tuple[RunSettings, list[Decision]]:
        """The settings for data of which these facts are known, and what was decided by rules."""
        if not self.undecided:
            return self, []
        others = READING_RULES if self.network.reads_texts else None
        decisions = by_rule(self.preset, self.undecided, facts, others)
        return self.with_values({each.name: each.value for each in decisions}), decisions

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings except the seed."""
        return list(cls().flat())

    def flat(self) -> dict[str, Any]:
        """All settings by name, except the seed; those that are undecided are "auto"."""
        parts = (asdict(self.network), asdict(self.training), asdict(self.text))
        merged = {name: value for part in parts for name, value in part.items() if name != "seed"}
        own = {name: getattr(self, name) for name in _OWN}
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

    def rehearses(self, n: int) -> bool:
        """Whether n documents are so few that a model of all but the held-out ones is trained first.

        It serves to calibrate the model that is then trained on all of them, from scratch, and is thrown away.
        """
        return self.joins and n <= effort_of(self.preset).rehearsed

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


#: The default of every setting, by name.
DEFAULTS: dict[str, Any] = RunSettings.from_preset("default", {}).flat()
