"""Search for the smallest copy of a model that loses at most some points, or for the best copy of a given size.

Weights are rounded to multiples of a step and packed (`circlet.storage.packed_weights`). Coarser steps give
smaller models and worse rankings; the loss is measured on held-out rows. A model trained on all rows has the loss
of its calibration run in the history instead (`circlet.storage.history`).

The search for the smallest copy stops at the first step that loses too much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data import Dataset
from circlet.data.sparse import is_mapped
from circlet.errors import DataError, ParameterError
from circlet.features.rows import Entries
from circlet.metrics import evaluate
from circlet.metrics.evaluation import in_label_space
from circlet.runtime.model import RuntimeModel
from circlet.storage import packed_weights
from circlet.storage.compress import size_without_weights
from circlet.storage.contents import Contents, read
from circlet.storage.history import METRIC, Curve, curve_of, read_history
from circlet.storage.kept_rows import Sample, read_sample
from circlet.storage.layout import HISTORY, WEIGHTS, checked, located, reading
from circlet.storage.tensors import Array, Stored

__all__ = ["Found", "Tried", "best_that_fits", "kept", "sample_from", "smallest_within"]

#: Coarsenesses from fine to coarse, each a quarter of an octave from the next, and where a search starts.
LADDER = [2 ** (step / 4) for step in range(-16, 13)]
START = LADDER.index(2.0)


@dataclass(frozen=True)
class Tried:
    """A copy that was tried.

    Parameters
    ----------
    coarseness : float
        See `circlet.storage.packed_weights.rounded`.
    bytes : int
        Size of the whole folder; an upper bound, a few bytes too large.
    loss : float
        Points of the metric that the copy, or the calibration run, loses; a point is a hundredth.
    """

    coarseness: float
    bytes: int
    loss: float


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Parameters
    ----------
    weights : dict
        Weights for `circlet.storage.compress.write_copy`.
    chosen : Tried
    tried : list of Tried
        All copies that were tried, from fine to coarse.
    metric : float or None
        Metric of the model itself on the sample; None without a sample.
    config : dict
        Configuration of the model.
    """

    weights: dict[str, Array]
    chosen: Tried
    tried: list[Tried]
    metric: float | None
    config: dict[str, Any]


def smallest_within(
    folder: Path, known: Sample | Curve, loss: float, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """Find the smallest copy of a model that loses at most `loss` points.

    Parameters
    ----------
    folder : Path
    known : Sample or Curve
        Rows to measure on, or the loss of the calibration run.
    loss : float
    watch : callable
        Called with each copy tried.
    """
    if not loss >= 0:
        raise ParameterError(f"`loss` must be a number of points >= 0, got {loss!r}")
    search = _Search(folder, known, watch)
    if isinstance(known, Curve):
        return search.result(max(LADDER[0], known.coarsest(loss)))
    chosen = search.coarsest(lambda tried: tried.loss <= loss)
    if chosen is None:
        least = search.found()[0].loss
        raise ParameterError(
            f"found no copy of {folder} that loses at most {loss:g} points of {METRIC}; the finest loses "
            f"{least:.2f}: allow more with --loss, or choose --store int8 or bf16"
        )
    return search.result(chosen)


def best_that_fits(
    folder: Path, known: Sample | Curve, size: int, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """Find the copy with the finest steps whose folder has at most `size` bytes; see `smallest_within`."""
    search = _Search(folder, known, watch)
    chosen = search.finest(lambda tried: tried.bytes <= size)
    if chosen is None:
        least = search.found()[-1]
        raise ParameterError(f"found no copy of {folder} in {size:,} bytes; the smallest takes {least.bytes:,}")
    return search.result(chosen)


def kept(folder: Path) -> Sample | Curve | None:
    """Read a model's sample, or else the curve of its calibration run; None if it has neither."""

    def known(config: dict[str, Any]) -> Sample | Curve | None:
        history = checked(folder, config, HISTORY)
        return read_sample(folder, config) or curve_of(history, read_history(history))

    return reading(folder, known)


def sample_from(model: RuntimeModel, dataset: Dataset) -> Sample:
    """Return the scaled test rows of a dataset, or all rows if it has no test part, with labels of the model."""
    part = dataset.test or dataset.train
    documents: Any = part.texts if model.vectorizer is not None else part.X
    if documents is None:
        wanted = "texts" if model.vectorizer is not None else "feature rows"
        raise DataError(f"{dataset.source}: found {dataset.format}; this model wants {wanted}")
    if not part.Y.nnz:
        raise DataError(f"{dataset.source}: found no label in any document; wanted some to compare with")
    documents = model.checked(documents)
    rows = documents if model.vectorizer is None else model.vectorizer.transform(documents)
    scaled = model.scaling.transform(rows)
    return Sample(scaled[:] if is_mapped(rows) else scaled, in_label_space(model, dataset, part.Y))


class _Search:
    """Tries copies of a model, each once."""

    def __init__(self, folder: Path, known: Sample | Curve, watch: Callable[[Tried], None]) -> None:
        self.folder, self.known, self.watch = folder, known, watch
        saved = read(folder, whole=True)
        self.saved: Contents[Stored] = saved
        self.metric = None if isinstance(known, Curve) else measured(RuntimeModel.restore(folder, saved), known)
        self.whole = {name: each.read() for name, each in saved.tensors.items()}
        try:
            self.steps = packed_weights.steps_of(self.whole, packed_weights.DEFLATED)
        except DataError as error:
            raise DataError(f"{located(folder, saved.config, WEIGHTS)}: {error}") from error
        self.rest = size_without_weights(folder, saved.config)
        self.tried: dict[float, Tried] = {}
        #: The weights of the last two copies; one of them will be chosen.
        self.weights: dict[float, dict[str, Array]] = {}

    def coarsest(self, holds: Callable[[Tried], bool]) -> float | None:
        """Search from START for the coarsest step before the first one that violates a condition."""
        if holds(self[LADDER[START]]):
            above = zip(LADDER[START:], LADDER[START + 1 :], strict=False)
            return next((before for before, each in above if not holds(self[each])), LADDER[-1])
        return next((each for each in LADDER[:START][::-1] if holds(self[each])), None)

    def finest(self, holds: Callable[[Tried], bool]) -> float | None:
        """Search from START for the finest step before the first one that violates a condition."""
        if holds(self[LADDER[START]]):
            below = zip(LADDER[START:0:-1], LADDER[:START][::-1], strict=True)
            return next((before for before, each in below if not holds(self[each])), LADDER[0])
        return next((each for each in LADDER[START + 1 :] if holds(self[each])), None)

    def __getitem__(self, coarseness: float) -> Tried:
        if coarseness not in self.tried:
            rounded = packed_weights.rounded(self.whole, self.steps, coarseness)
            loss = self._loss(coarseness, rounded)
            weights = packed_weights.packed(rounded)
            # Upper bound on the size of a safetensors file with these arrays.
            numbers = sum(array.nbytes for array in weights.values())
            size = numbers + sum(len(name.encode()) + 100 for name in weights) + 16
            self.tried[coarseness] = Tried(coarseness, self.rest + size, loss)
            self.weights = {**dict(list(self.weights.items())[-1:]), coarseness: weights}
            self.watch(self.tried[coarseness])
        return self.tried[coarseness]

    def _loss(self, coarseness: float, rounded: dict[str, Stored]) -> float:
        if isinstance(self.known, Curve):
            return self.known.at(coarseness)
        copy = RuntimeModel.restore(self.folder, replace(self.saved, tensors=rounded))
        return 100 * ((self.metric or 0.0) - measured(copy, self.known))

    def found(self) -> list[Tried]:
        """Return the copies tried, from fine to coarse."""
        return [self.tried[coarseness] for coarseness in sorted(self.tried)]

    def result(self, chosen: float) -> Found:
        tried = self[chosen]
        return Found(self.weights[chosen], tried, self.found(), self.metric, self.saved.config)


def measured(model: RuntimeModel, sample: Sample) -> float:
    """Measure `METRIC` of a model on a sample."""
    name, _, depth = METRIC.partition("@")
    k = int(depth)
    rows: Any = Entries.of(sample.rows) if sp.issparse(sample.rows) else sample.rows
    ids: npt.NDArray[np.int64] = model.best_of_rows(rows, k)
    # A model with fewer labels leaves places empty; these count as wrong.
    ids = np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)
    return float(evaluate(sample.labels, ids, k=k, metrics=(name,))[METRIC])
