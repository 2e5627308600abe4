"""The smallest copy of a model that is still as good, or the best one that fits into so many bytes.

Weights are rounded to multiples of a step and deflated (`circlet.folder.deflated`). Coarser steps give smaller
models and worse rankings; how much worse is measured on rows that were held out.

A copy that is luckier than a finer one is not chosen: the search goes on to coarser steps only as long as each of
them is good enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.data import Dataset
from circlet.data.mapped import is_mapped
from circlet.errors import DataError, ParameterError
from circlet.features.entries import Entries
from circlet.folder import deflated
from circlet.folder.compress import size_without_weights
from circlet.folder.contents import Contents, read
from circlet.folder.layout import WEIGHTS
from circlet.folder.manifest import located
from circlet.folder.precision import Array, Stored
from circlet.folder.sample import Sample
from circlet.metrics import evaluate
from circlet.metrics.evaluation import in_label_space
from circlet.runtime.model import RuntimeModel

__all__ = ["METRIC", "Found", "Tried", "best_that_fits", "sample_from", "smallest_within"]

#: What is compared.
METRIC = "nDCG@5"
#: Coarsenesses from fine to coarse, each a quarter of an octave from the next, and where a search starts.
LADDER = [2 ** (step / 4) for step in range(-16, 9)]
START = LADDER.index(1.0)


@dataclass(frozen=True)
class Tried:
    """A copy that was tried.

    Parameters
    ----------
    coarseness : float
        See `circlet.folder.deflated.rounded`.
    bytes : int
        The size of the whole folder; some bytes too much, maybe.
    metric : float
        Of the copy on the sample.
    loss : float
        How many points of the metric the copy loses; a point is a hundredth.
    """

    coarseness: float
    bytes: int
    metric: float
    loss: float


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Parameters
    ----------
    weights : dict
        What to write with `circlet.folder.compress.write_copy`.
    chosen : Tried
    tried : list of Tried
        All that were tried, from fine to coarse.
    metric : float
        Of the model itself on the sample.
    config : dict
        Of the model.
    """

    weights: dict[str, Array]
    chosen: Tried
    tried: list[Tried]
    metric: float
    config: dict[str, Any]


def smallest_within(
    folder: Path, sample: Sample, loss: float, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """The smallest copy of a model that loses at most so many points on a sample.

    Parameters
    ----------
    folder : Path
    sample : Sample
    loss : float
    watch : callable
        Called with each copy that was tried.
    """
    if not loss >= 0:
        raise ParameterError(f"`loss` must be a number of points >= 0, got {loss!r}")
    search = _Search(folder, sample, watch)
    chosen = search.coarsest(lambda tried: tried.loss <= loss)
    if chosen is None:
        least = search.found()[0]
        raise ParameterError(
            f"found no copy of {folder} that loses at most {loss:g} points of {METRIC}; the finest loses "
            f"{least.loss:.2f}: allow more with --loss, or choose --store int8 or bf16"
        )
    return search.result(chosen)


def best_that_fits(
    folder: Path, sample: Sample, size: int, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """The copy of a model with the finest steps whose folder has at most so many bytes; see `smallest_within`."""
    search = _Search(folder, sample, watch)
    chosen = search.finest(lambda tried: tried.bytes <= size)
    if chosen is None:
        least = search.found()[-1]
        raise ParameterError(f"found no copy of {folder} in {size:,} bytes; the smallest takes {least.bytes:,}")
    return search.result(chosen)


def sample_from(model: RuntimeModel, dataset: Dataset) -> Sample:
    """The test rows of a dataset, or all rows if it has no test part, as a model sees them."""
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

    def __init__(self, folder: Path, sample: Sample, watch: Callable[[Tried], None]) -> None:
        self.folder, self.sample, self.watch = folder, sample, watch
        saved = read(folder, whole=True)
        self.saved: Contents[Stored] = saved
        self.metric = measured(RuntimeModel.restore(folder, saved), sample)
        self.whole = {name: each.read() for name, each in saved.tensors.items()}
        self.rest = size_without_weights(folder, saved.config)
        self.tried: dict[int, Tried] = {}
        #: The weights of the copy that was tried last, and of the one before, one of which will be chosen.
        self.weights: dict[int, dict[str, Array]] = {}

    def coarsest(self, holds: Callable[[Tried], bool]) -> int | None:
        """The last step of the ladder before one for which a condition does not hold; from START either way."""
        if holds(self[START]):
            return next(
                (step - 1 for step in range(START + 1, len(LADDER)) if not holds(self[step])), len(LADDER) - 1
            )
        return next((step for step in range(START - 1, -1, -1) if holds(self[step])), None)

    def finest(self, holds: Callable[[Tried], bool]) -> int | None:
        """The same in the other direction."""
        if holds(self[START]):
            return next((step + 1 for step in range(START - 1, -1, -1) if not holds(self[step])), 0)
        return next((step for step in range(START + 1, len(LADDER)) if holds(self[step])), None)

    def __getitem__(self, step: int) -> Tried:
        if step not in self.tried:
            try:
                rounded = deflated.rounded(self.whole, LADDER[step])
            except DataError as error:
                raise DataError(f"{located(self.folder, self.saved.config, WEIGHTS)}: {error}") from error
            metric = measured(RuntimeModel.restore(self.folder, replace(self.saved, tensors=rounded)), self.sample)
            weights = deflated.packed(rounded)
            size = self.rest + _file_size(weights)
            self.tried[step] = Tried(LADDER[step], size, metric, 100 * (self.metric - metric))
            self.weights = {**dict(list(self.weights.items())[-1:]), step: weights}
            self.watch(self.tried[step])
        return self.tried[step]

    def found(self) -> list[Tried]:
        """What was tried, from fine to coarse."""
        return [self.tried[step] for step in sorted(self.tried)]

    def result(self, chosen: int) -> Found:
        return Found(self.weights[chosen], self.tried[chosen], self.found(), self.metric, self.saved.config)


def measured(model: RuntimeModel, sample: Sample) -> float:
    """How well a model ranks the labels of a sample."""
    name, _, depth = METRIC.partition("@")
    k = int(depth)
    rows: Any = Entries.of(sample.rows) if sp.issparse(sample.rows) else sample.rows
    ids: npt.NDArray[np.int64] = model.best_of_rows(rows, k)
    # A model with fewer labels leaves places empty, which count as wrong.
    ids = np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)
    return float(evaluate(sample.labels, ids, k=k, metrics=(name,))[METRIC])


def _file_size(weights: Mapping[str, Array]) -> int:
    """The most bytes that a safetensors file with these arrays has."""
    numbers = sum(array.nbytes for array in weights.values())
    return numbers + sum(len(name.encode()) + 100 for name in weights) + 16
