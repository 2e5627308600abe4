"""Decide the open settings of a run: by rules, then by a short trial, or from the record of an interrupted run.

**The trial.** Small networks, trained on some of the rows, show which optimizer suits the first layer. On most
sparse data SGD is better, because Adam overfits rare words. If documents have only a handful of words, rare words
are the only evidence, and Adam is better. No simpler criterion has distinguished the two cases.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from circlet import files
from circlet.data.dataset import Split
from circlet.data.sparse import column_counts, is_mapped
from circlet.errors import DataError
from circlet.metrics import evaluate
from circlet.network import Ensemble, Network
from circlet.network.ensemble import top_k
from circlet.settings import Decision, Facts, RunSettings, TrainingSettings
from circlet.settings.auto import effort_of
from circlet.storage.layout import DECIDED
from circlet.training import train
from circlet.training.distributed import ALONE, World

__all__ = ["Decider", "Trial", "first_layer"]


class Trial(NamedTuple):
    """The size of a trial: quick, but long enough for the slower optimizer to win if it is better."""

    #: With fewer rows, a trial shows nothing.
    fewest_rows: int = 1000
    #: The most rows for training, and for evaluation.
    most_rows: int = 2500
    most_ranked: int = 1000
    #: The largest hidden layer and code dimension.
    width: int = 256
    dim: int = 400
    training: TrainingSettings = TrainingSettings(epochs=4, batch_size=64)
    #: How much better AdamW must be to be chosen, since it takes longer and needs more memory.
    margin: float = 0.003


class Decider:
    """Decides the open settings of one run.

    Parameters
    ----------
    split : Split
        All rows, or texts.
    settings : RunSettings
    resumed : Path, optional
        Folder of an interrupted run, whose decisions are kept.
    world : World
        The processes that train together; the first one decides for all.
    trial : Trial

    Attributes
    ----------
    settings : RunSettings
        The settings, with all decisions so far.
    decisions : list of Decision
    """

    def __init__(
        self,
        split: Split,
        settings: RunSettings,
        *,
        resumed: Path | None = None,
        world: World = ALONE,
        trial: Trial = Trial(),  # noqa: B008 (it can't be changed)
    ) -> None:
        self.split, self.settings, self.world, self.trial = split, settings, world, trial
        self.decisions: list[Decision] = []
        self._may_try = "first_layer" in settings.undecided and effort_of(settings.preset).trial
        path = None if resumed is None else resumed / DECIDED
        try:
            # None if there is no such run, or it has no decisions yet.
            found = world.from_first(
                lambda: None if path is None or not path.is_file() else {"decided": files.read_json(path)}
            )
            if found is not None:
                # Settings given now take precedence. If they differ from the decisions, the checkpoint does not
                # fit.
                decided = [Decision.from_dict(each) for each in found["decided"]]
                self.decisions = [each for each in decided if each.name in settings.undecided]
                self.settings = settings.with_values({each.name: each.value for each in self.decisions})
                self._may_try = False
        except (TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: found no readable decisions ({error!r}); train again in another folder"
            ) from error

    def by_rule(self) -> RunSettings:
        """Apply the rules and return the settings."""
        X, Y = self.split.X, self.split.Y
        documents, labels = Y.shape
        facts = Facts(
            documents,
            labels,
            texts=X is None,
            sparse=X is None or bool(sp.issparse(X) or is_mapped(X)),
            adam=self.settings.training.optimizer in ("adam", "adamw"),
            features=None if X is None else int(X.shape[1]),
            typical=_typical(column_counts(Y)),
            joins=self.settings.joins,
        )
        self.settings, decided = self.settings.decided(facts)
        self.decisions += decided
        return self.settings

    def tries(self, held_out: npt.NDArray[np.int64] | None) -> bool:
        """Whether a trial decides the optimizer of the first layer: not if the rule has chosen AdamW."""
        ruled = self.settings.training.first_layer == "sgd"
        enough = held_out is not None and self.split.n - len(held_out) >= self.trial.fewest_rows
        return self._may_try and ruled and enough

    def by_trial(
        self,
        rows: Any,
        held_out: npt.NDArray[np.int64],
        evaluated: tuple[Any, sp.csr_matrix],
        device: torch.device | None = None,
    ) -> RunSettings:
        """Choose the optimizer of the first layer by a trial on scaled rows, and return the settings."""
        learned = np.delete(np.arange(self.split.n), held_out)
        # Each process runs the whole trial, so that it does not depend on the number of processes.
        own = first_layer(rows, self.split.Y, learned, evaluated, self.settings, device, self.trial)
        found = Decision.from_dict(self.world.from_first(own.as_dict))
        self.decisions = [found if each.name == found.name else each for each in self.decisions]
        self.settings = self.settings.with_values({found.name: found.value})
        return self.settings

    def record(self) -> dict[str, Any]:
        """Return the decisions, for the model's record."""
        return {"decided": [each.as_dict() for each in self.decisions]} if self.decisions else {}

    def save(self, folder: Path) -> None:
        """Save the decisions beside a run's checkpoints."""
        files.prepare_folder(folder)
        if self.decisions:
            files.write_json(folder / DECIDED, self.record()["decided"])
        else:
            (folder / DECIDED).unlink(missing_ok=True)  # left by a run that was never resumed


def _typical(counts: npt.NDArray[np.int64]) -> float:
    """Return the document count of a typical label: half of all assignments are to labels with at most so many."""
    ordered = np.sort(counts)
    if not ordered.sum():
        return math.inf
    return float(ordered[np.searchsorted(ordered.cumsum(), ordered.sum() / 2)])


def first_layer(
    rows: Any,
    Y: sp.csr_matrix,
    learned: npt.NDArray[np.int64],
    evaluated: tuple[Any, sp.csr_matrix],
    settings: RunSettings,
    device: torch.device | None,
    size: Trial,
) -> Decision:
    """Compare both optimizers of the first layer in a trial.

    Parameters
    ----------
    rows, Y
        Scaled rows and their labels.
    learned : int64 ndarray
        The rows that may be trained on.
    evaluated : (rows, labels)
        Rows for evaluation.
    settings : RunSettings
        Settings of the run; the seed determines the trial.
    device : torch.device or None
    size : Trial
    """
    started, given = time.perf_counter(), settings.network
    hidden = tuple(min(width, size.width) for width in given.hidden)
    small = replace(given, hidden=hidden, dim=min(given.dim, size.dim), dropout=0.0, slots=None)
    some = np.sort(np.random.default_rng([given.seed, 1]).permutation(learned)[: size.most_rows])
    X, labels = rows[some], Y[some]
    judged, right = (each[: size.most_ranked] for each in evaluated)
    found = {}
    for optimizer in ("sgd", "same"):
        network = Network(small, X.shape[1], labels.shape[1], sparse=True)
        training = replace(size.training, first_layer=optimizer, optimizer=settings.training.optimizer)
        train(network, X, labels, training, device=device)
        ids, _ = top_k(Ensemble([network]), judged, 5)
        found[optimizer] = evaluate(right, ids, k=5, metrics=("nDCG",))["nDCG@5"]
    best = "same" if found["same"] > found["sgd"] + size.margin else "sgd"
    shown = f"SGD {100 * found['sgd']:.1f}, {settings.training.optimizer} {100 * found['same']:.1f}"
    why = f"nDCG@5 of a trial on {len(some):,} rows, which took {time.perf_counter() - started:.1f} s: {shown}"
    return Decision("first_layer", best, why, tried=True)
