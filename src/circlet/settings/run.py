"""One description of a training run: network, training, text features, scaling, held-out rows, members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from circlet.checks import is_integer, is_real
from circlet.errors import ParameterError
from circlet.settings.checked import check
from circlet.settings.network import NetworkSettings
from circlet.settings.presets import resolve
from circlet.settings.training import TrainingSettings

if TYPE_CHECKING:
    from circlet.data.dataset import Dataset, Split

__all__ = ["RunSettings", "TextSettings"]

#: With fewer documents none are held out: too few would be left to train on, and too few to validate on.
FEWEST_TO_SPLIT = 20
#: The settings of a run that belong to none of its parts.
_OWN = ("scaling", "validation", "members")


@dataclass(frozen=True)
class TextSettings:
    """How texts become features; `circlet.features.TextVectorizer` explains and checks each setting."""

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
    training : TrainingSettings
    text : TextSettings
        For documents that are texts.
    scaling : str
        How feature rows are scaled; see `circlet.features.scaling.SCALINGS`.
    validation : float or int
        Share or number of rows to hold out of training, for choosing the best epoch and calibrating
        probabilities; 0 for none.
    members : int
        Number of networks that are trained one after the other and used as one: their probabilities are averaged.
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    text: TextSettings = field(default_factory=TextSettings)
    scaling: str = "auto"
    validation: float = 0.05
    members: int = 1

    def __post_init__(self) -> None:
        size = self.validation
        valid = is_real(size) and (0 <= size < 1 or is_integer(size, 1) or (float(size).is_integer() and size > 0))
        check(
            self,
            validation=(valid, "a share at least 0 and below 1, or a number of rows"),
            members=(is_integer(self.members, 1), "an integer >= 1"),
        )
        object.__setattr__(self, "validation", int(size) if size >= 1 else float(size))
        object.__setattr__(self, "members", int(self.members))

    @classmethod
    def of(cls, settings: Mapping[str, Any], *, seed: int = 0) -> RunSettings:
        """From settings by name, whatever part they belong to; the others have their defaults."""
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
        )

    @classmethod
    def from_preset(cls, preset: str, given: Mapping[str, Any], *, seed: int = 0) -> RunSettings:
        """From a preset, overridden by those of the `given` settings that are not None."""
        return cls.of(resolve(preset, given), seed=seed)

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings except the seed."""
        return list(DEFAULTS)

    def flat(self) -> dict[str, Any]:
        """All settings by name, except the seed."""
        parts = (asdict(self.network), asdict(self.training), asdict(self.text))
        merged = {name: value for part in parts for name, value in part.items() if name != "seed"}
        return {**merged, **{name: getattr(self, name) for name in _OWN}}

    def networks(self) -> list[NetworkSettings]:
        """The settings of each member's network, which differ only in the seed.

        The first has the run's own seed, the others have seeds that are derived from it. Consecutive seeds would
        be simpler, but then the runs with seeds 0 and 1 would share members, and would not be independent.
        """
        seed = self.network.seed
        derived = (np.random.SeedSequence(seed, spawn_key=(member,)) for member in range(1, self.members))
        return [self.network, *(replace(self.network, seed=int(each.generate_state(1)[0])) for each in derived)]

    def hold_out(self, dataset: Dataset) -> tuple[Split, Split | None]:
        """The rows to train on, and the rows held out for validation and calibration, or None.

        The seed determines which rows are held out. Rows that are mapped from files are not copied.
        """
        size, n = self.validation, dataset.train.n
        if not size or n < FEWEST_TO_SPLIT or (size < 1 and round(size * n) < 1):
            return dataset.train, None
        return dataset.validation_split(size, seed=self.network.seed, copy=False)


#: The default of every setting, by name.
DEFAULTS: dict[str, Any] = RunSettings().flat()
