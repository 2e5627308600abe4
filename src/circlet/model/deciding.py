"""Settles what a run's settings leave open: by rules, then by a short trial, or as an interrupted run had it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from circlet import files
from circlet.data.dataset import Split
from circlet.data.sparse import column_counts, is_mapped
from circlet.errors import DataError
from circlet.folder.layout import DECIDED
from circlet.model.trial import FEWEST_ROWS, first_layer
from circlet.settings import Decision, Facts, RunSettings
from circlet.settings.auto import effort_of
from circlet.training import Reporter
from circlet.training.distributed import ALONE, World

__all__ = ["Decider"]


class Decider:
    """Decides the open settings of one run.

    Parameters
    ----------
    split : Split
        All rows, or texts.
    settings : RunSettings
    reporter : Reporter
    device : torch.device or None
        Where a trial runs.
    resumed : Path or None
        The folder of an interrupted run, whose decisions stand.
    world : World
        The processes that train together: the first one decides for all.
    """

    def __init__(
        self,
        split: Split,
        settings: RunSettings,
        reporter: Reporter,
        device: torch.device | None,
        resumed: Path | None,
        world: World = ALONE,
    ) -> None:
        self.split, self.settings, self.reporter, self.device = split, settings, reporter, device
        self.world = world
        self.decisions: list[Decision] = []
        #: Whether a trial has yet to decide the optimizer of the first layer.
        self.to_try = "first_layer" in settings.undecided and effort_of(settings.preset).trial
        kept = world.from_first(lambda: None if resumed is None else self._read(resumed / DECIDED))
        if kept is not None:
            self.decisions, self.to_try = [Decision.from_dict(each) for each in kept], False
            self.settings = settings.with_values({each.name: each.value for each in self.decisions})

    def by_rule(self) -> RunSettings:
        """The settings with everything decided that rules decide."""
        sparse = self.split.X is None or sp.issparse(self.split.X) or is_mapped(self.split.X)
        n, labels = self.split.Y.shape
        adam = self.settings.training.optimizer in ("adam", "adamw")
        features = None if self.split.X is None else int(self.split.X.shape[1])
        typical = _typical(column_counts(self.split.Y))
        texts, joins = self.split.X is None, self.settings.joins
        facts = Facts(n, labels, texts, bool(sparse), adam, features, typical, joins)
        self.settings, decided = self.settings.decided(facts)
        self.decisions += decided
        # Where a rule is sure of it, AdamW is used everywhere, and nothing is tried.
        self.to_try = self.to_try and self.settings.training.first_layer == "sgd"
        return self.settings

    def by_trial(
        self, rows: Any, held_out: npt.NDArray[np.int64] | None, evaluated: tuple[Any, sp.csr_matrix] | None
    ) -> RunSettings:
        """The settings with everything decided, the rest by a trial on scaled rows."""
        if self.to_try and evaluated is not None and held_out is not None:
            learned = np.delete(np.arange(self.split.n), held_out)
            if len(learned) >= FEWEST_ROWS:
                # Each process tries on its own, so that the trial is the same for any number of them.
                own = first_layer(rows, self.split.Y, learned, evaluated, self.settings, self.device)
                found = Decision.from_dict(self.world.from_first(own.as_dict))
                self.decisions = [found if each.name == found.name else each for each in self.decisions]
                self.settings = self.settings.with_values({found.name: found.value})
        self.reporter.decided(self.decisions)
        return self.settings

    def record(self) -> dict[str, Any]:
        """What was decided, for the model's record."""
        return {"decided": [each.as_dict() for each in self.decisions]} if self.decisions else {}

    def save(self, folder: Path) -> None:
        """Keep the decisions beside a run's checkpoints."""
        files.prepare_folder(folder)
        if self.decisions:
            files.write_json(folder / DECIDED, [each.as_dict() for each in self.decisions])
        else:
            (folder / DECIDED).unlink(missing_ok=True)  # of a run that was never resumed

    def _read(self, path: Path) -> list[dict[str, Any]] | None:
        """What an interrupted run decided; None if it had not yet decided anything."""
        if not path.is_file():
            return None
        try:
            found = [Decision.from_dict(each) for each in files.read_json(path)]
            # What is given now stands. If it is not what was decided then, the checkpoint is another run's.
            known = [each for each in found if each.name in self.settings.undecided]
            self.settings.with_values({each.name: each.value for each in known})  # refuses invalid values
        except (TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: found no readable decisions ({error!r}); train again in another folder"
            ) from error
        return [each.as_dict() for each in known]


def _typical(counts: npt.NDArray[np.int64]) -> float:
    """The most documents that the labels have that make up half of all labels of documents."""
    ordered = np.sort(counts)
    if not ordered.sum():
        return math.inf
    return float(ordered[np.searchsorted(ordered.cumsum(), ordered.sum() / 2)])
