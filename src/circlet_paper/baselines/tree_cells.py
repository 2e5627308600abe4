"""Cells that grow a forest on a dataset and rank its test rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data import Dataset
from circlet.data.catalog import ENTRIES
from circlet.errors import DataError
from circlet.metrics import evaluate, inverse_propensity
from circlet_paper.baselines.fastxml import FastXML
from circlet_paper.baselines.pfastrexml import PfastreXML
from circlet_paper.baselines.trees import TreeSettings
from circlet_paper.cells import Result, Workplace
from circlet_paper.paired import pack_hits, right
from circlet_paper.training_cells import DEPTHS, FIXED, TrainingCell

if TYPE_CHECKING:
    from circlet.training import Reporter

__all__ = ["MODELS", "TreeCell"]

#: The forests by the names that cells have, and by those of tables.
MODELS = {"fastxml": "FastXML", "pfastrexml": "PfastreXML"}


@dataclass(frozen=True)
class TreeCell:
    """Grow a forest with one seed and rank the test rows.

    Parameters
    ----------
    dataset : str
    model : str
        One of `MODELS`.
    settings : TreeSettings
    seed : int
    rows, split : int or None
        As in `circlet_paper.training_cells.TrainingCell`.
    """

    dataset: str
    model: str
    settings: TreeSettings = field(default_factory=TreeSettings)
    seed: int = 0
    rows: int | None = None
    split: int | None = None

    @property
    def name(self) -> str:
        quick = "quick-" if self.rows is not None else ""
        split = f"-split{self.split}" if self.split is not None else ""
        scaling = self.settings.scaling
        scaled = "" if scaling == TreeSettings.scaling else f"-scaling-{scaling}"
        trees = f"trees{self.settings.trees}"
        return f"{quick}{self.dataset}/{self.model}-{trees}{scaled}{split}-seed{self.seed}"

    def about(self) -> Result:
        return {
            "dataset": self.dataset,
            "split": self.split,
            "rows": self.rows,
            "model": self.model,
            "settings": asdict(self.settings),
            "seed": self.seed,
        }

    @property
    def _same_rows(self) -> TrainingCell:
        return TrainingCell(self.dataset, FIXED, rows=self.rows, split=self.split)

    def missing(self, workplace: Workplace) -> str | None:
        return self._same_rows.missing(workplace)

    def measure(self, workplace: Workplace, reporter: Reporter | None) -> Result:
        import torch

        dataset = self._same_rows.load(workplace)
        train, test = _sparse_rows(dataset)
        known = ENTRIES.get(self.dataset)
        weights = inverse_propensity(dataset.train.Y, *((known.a, known.b) if known else ()))
        # As many processes as torch would use threads: `run_cells` divides them among its jobs.
        options = {"seed": self.seed, "processes": torch.get_num_threads()}
        model = (
            FastXML(self.settings, **options)
            if self.model == "fastxml"
            else PfastreXML(weights, self.settings, **options)
        )
        if reporter is not None:
            reporter.plan(self.settings.trees, 1)
        started = time.perf_counter()
        model.fit(train, dataset.train.Y, _reported(reporter))
        trained = time.perf_counter()
        scores = model.scores(test)
        ranked = time.perf_counter()
        assert dataset.test is not None
        truth = dataset.test.Y
        ids = best_labels(scores, min(max(DEPTHS), truth.shape[1]))
        found = evaluate(truth, ids, weights, DEPTHS, metrics=("P", "PSP"))
        return {
            "metrics": {metric: round(100 * value, 3) for metric, value in found.items()},
            "hits": pack_hits(right(truth, ids)),
            "bytes": model.nbytes,
            "nodes": sum(len(tree.children) for tree in model.forest_.trees),
            "shapes": {
                "features": int(train.shape[1]),
                "labels": int(truth.shape[1]),
                "train": int(train.shape[0]),
                "test": int(test.shape[0]),
            },
            "device": "cpu",
            "training_seconds": round(trained - started, 2),
            "ranking_seconds": round(ranked - trained, 2),
        }


def _sparse_rows(dataset: Dataset) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    assert dataset.test is not None
    both = [part.X for part in (dataset.train, dataset.test)]
    if not all(sp.issparse(X) for X in both):
        raise DataError(f"{dataset.source}: found {dataset.format}; trees want sparse feature rows")
    train, test = (sp.csr_matrix(X, dtype=np.float64) for X in both)
    return train, test


def best_labels(scores: sp.csr_matrix, k: int) -> npt.NDArray[np.int64]:
    """Ids of the best labels of each row, `(n, k)`; −1 where no more labels have a score."""
    scores = scores.sorted_indices()
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((-scores.data, row))  # stable, so equal scores stay in the order of their ids
    place = np.arange(scores.nnz) - scores.indptr[row]
    ids = np.full((scores.shape[0], k), -1, dtype=np.int64)
    ids[row[place < k], place[place < k]] = scores.indices[order[place < k]]
    return ids


def _reported(reporter: Reporter | None) -> Callable[[int], None] | None:
    """Report each tree as an epoch."""
    return None if reporter is None else lambda done: reporter.record({"epoch": done})
