"""Make a smaller copy of a model: with a given store, of a given size, or with at most a given loss.

**Search.** Weights are rounded to multiples of a step and packed (`circlet.storage.packed_weights`). Coarser steps
give smaller models and worse rankings; the loss is measured on held-out rows. The search for the smallest copy
stops at the first step that loses too much.

**Calibration runs.** A model trained on all rows has no rows left to measure on. Before it, a calibration run
trained a network of the same size without some rows, and measured on these how many points of `METRIC` rounding
its weights loses (`losses_by_rounding`). The last record of each network in the history has the result as `lost`:
pairs of a coarseness (see `circlet.storage.packed_weights.rounded`) and points, from fine to coarse.

With a few hundred rows, each measurement has an error of about a tenth of a point. Rounding errors grow with the
step, and the loss grows with their square, so one curve through all points is much more accurate.
"""

from __future__ import annotations

import gzip
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from circlet import files
from circlet.checks import is_real
from circlet.data import Dataset
from circlet.data.dataset import is_mapped
from circlet.errors import DataError, OutputError, ParameterError
from circlet.features.rows import Entries
from circlet.metrics import evaluate
from circlet.metrics.evaluation import in_label_space
from circlet.runtime.model import RuntimeModel
from circlet.storage import packed_weights, tensors
from circlet.storage.card import model_card
from circlet.storage.contents import Contents, read, read_estimator, read_history, read_labels, read_weights
from circlet.storage.kept_rows import Sample, read_sample
from circlet.storage.layout import (
    CONFIG,
    ESTIMATOR,
    HISTORY,
    INDEX,
    LABELS,
    REMEMBERED,
    SAMPLE,
    TEXT_FILES,
    URIS,
    WEIGHTS,
    checked,
    located,
    reading,
)
from circlet.storage.network_spec import hidden_layers, members_of
from circlet.storage.packed_weights import DEFLATED
from circlet.storage.publish import Publication
from circlet.storage.tensors import Array, Stored

#: The metric of which a copy loses points; a point is a hundredth.
METRIC = "nDCG@5"


# Copies


def compress(folder: Path, output: Path, store: str) -> None:
    """Copy a model atomically to `output`, with its weights stored as `store`.

    This works on files, not on a network, so a model with a custom encoder does not need that encoder.
    """
    tensors.check_store(store)
    check_output(output)

    def copy(config: dict[str, Any]) -> None:
        whole = {name: each.read() for name, each in read_weights(folder, config).items()}
        try:
            smaller = tensors.packed(whole, store)
        except DataError as error:
            raise DataError(f"{located(folder, config, WEIGHTS)}: {error}") from error
        _write_copy(folder, output, smaller, {**config, "store": store})

    reading(folder, copy)


def check_output(output: Path) -> None:
    """Raise `ParameterError` if the output of a copy exists."""
    if output.exists():
        raise ParameterError(f"{output} exists already: choose another folder, or remove it")


def _write_copy(folder: Path, output: Path, weights: Mapping[str, Array], config: dict[str, Any]) -> None:
    """Copy a model atomically to `output`, with other weights.

    `config` is that of the model which the weights were made from, with the copy's store. If that model was
    replaced, nothing is copied.
    """
    check_output(output)
    files.prepare_folder(output.parent)
    files.remove_leftovers(output.parent, output.name)
    scratch = files.temporary_beside(output)
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process with the same id
    try:
        scratch.mkdir()
        new = Publication(scratch, 1)
        files.write_tensors(new.path(WEIGHTS), weights)
        for name in _copied(config):
            path = checked(folder, config, name)
            if name == ESTIMATOR:
                read_estimator(path)  # raises if the file is damaged
            content = files.read_bytes(path)
            if path.suffix == files.GZIPPED or (config["store"] == DEFLATED and name in ZIPPED):
                files.write_bytes(new.path(name, zipped=True), gzip.compress(content, mtime=0))
            else:
                files.write_bytes(new.path(name), content)
        new.commit(config, _card(folder, config))
        scratch.rename(output)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot copy {folder} to {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


#: The files that are gzipped if weights are deflated.
ZIPPED = (LABELS, URIS, *TEXT_FILES)


def _copied(config: dict[str, Any]) -> list[str]:
    """Return the names of the files that are copied unchanged or gzipped.

    Only further training of the original needs the samples, and the index would be the largest part of a copy.
    """
    return [name for name in config["files"] if name not in (WEIGHTS, SAMPLE, REMEMBERED, INDEX)]


def _card(folder: Path, config: dict[str, Any]) -> str:
    """Make the card of a copy; the original's card may be missing or edited."""
    named = config["named_labels"]
    labels = read_labels(checked(folder, config, LABELS), config["n_labels"]) if named else None
    return model_card(config, read_history(checked(folder, config, HISTORY)), labels)


def _size_without_weights(folder: Path, config: dict[str, Any]) -> int:
    """Return an upper bound on the bytes of a copy with deflated weights, without these weights."""
    copied = 0
    for name in _copied(config):
        path = located(folder, config, name)
        copied += len(gzip.compress(files.read_bytes(path))) if name in ZIPPED else path.stat().st_size
    card = len(_card(folder, {**config, "store": DEFLATED}).encode())
    return (folder / CONFIG).stat().st_size + 100 + card + copied  # config.json may grow a little


# What a copy loses


class Curve(NamedTuple):
    """Points lost as a function of coarseness: ``factor * coarseness ** 2``.

    Parameters
    ----------
    factor : float
        At least 0.
    most : float
        The largest coarseness that was tried.
    """

    factor: float
    most: float

    def at(self, coarseness: float) -> float:
        """Return the points that this coarseness loses."""
        return self.factor * coarseness**2

    def coarsest(self, loss: float) -> float:
        """Return the largest coarseness up to `most` that loses at most `loss` points."""
        return self.most if loss >= self.at(self.most) else math.sqrt(loss / self.factor)


def known_losses(folder: Path) -> Sample | Curve | None:
    """Read a model's held-out rows, or else the curve of its calibration run; None if it has neither."""

    def known(config: dict[str, Any]) -> Sample | Curve | None:
        history = checked(folder, config, HISTORY)
        return read_sample(folder, config) or curve_of(history, read_history(history))

    return reading(folder, known)


def curve_of(path: Path, history: list[dict[str, Any]]) -> Curve | None:
    """Fit the curve of a model with this history, read from `path`; None if it had no calibration run.

    A model that was trained further has no curve either, since the calibration run measured other weights. Of
    several networks, the one that loses most counts: together they hardly lose more.
    """
    last = {record.get("member", 1): record for record in history}.values()
    if not last or any("lost" not in record for record in last):
        return None
    curves = []
    for record in last:
        pairs = record["lost"]
        valid = isinstance(pairs, list) and all(isinstance(each, list) and len(each) == 2 for each in pairs)
        if not pairs or not valid or not all(is_real(x) and 0 < x < 1e6 and is_real(y) for x, y in pairs):
            raise DataError(f"{path}: found damaged `lost`; wanted pairs of coarseness and points")
        coarseness, lost = np.array(pairs, dtype=np.float64).T
        factor = float((lost * coarseness**2).sum() / (coarseness**4).sum())  # least squares
        curves.append(Curve(max(0.0, factor), float(coarseness.max())))
    return Curve(max(curve.factor for curve in curves), min(curve.most for curve in curves))


def losses_by_rounding(
    model: Contents[Array],
    sample: Sample,
    *,
    tried: tuple[int, int, int] = (-4, 3, 6),
    enough: tuple[float, float] = (0.1, 1.0),
) -> dict[str, list[list[float]]]:
    """Measure how many points of `METRIC` a model of one network loses on a sample when its weights are rounded.

    Parameters
    ----------
    model : Contents
    sample : Sample
    tried : (finest, first, coarsest)
        Range of the coarseness, in half octaves.
    enough : (few, many)
        Stop trying finer steps at a loss of `few` points, and coarser ones at `many`.

    Returns
    -------
    dict
        Entry for the last record of the network's history, which `known_losses` reads.
    """
    (finest, first, coarsest), (few, many) = tried, enough
    weights, config = dict(model.tensors), {**model.config, "files": {}}
    steps = packed_weights.steps_of(weights, "a smaller copy")
    if sp.issparse(sample.rows):
        # Only the features of these rows matter, which may be few of many.
        (member,), used = members_of(config), np.unique(sample.rows.indices)
        name = f"{member.prefix}{hidden_layers(member.settings)[0]}.weight"
        weights[name], steps[name] = weights[name][used], steps[name][used]
        config["n_features"], sample = len(used), sample._replace(rows=sample.rows[:, used])

    def metric(weights: dict[str, Stored]) -> float:
        copy: Any = replace(model, config=config, tensors=weights)  # type: ignore[arg-type]
        return _metric(RuntimeModel.restore(Path("model"), copy), sample)

    whole = metric({name: Stored(array) for name, array in weights.items()})

    def lost(half: int) -> float:
        return 100 * (whole - metric(packed_weights.rounded(weights, steps, 2 ** (half / 2))))

    found = {first: lost(first)}
    while found[last := max(found)] < many and last < coarsest:
        found[last + 1] = lost(last + 1)
    while found[last := min(found)] > few and last > finest:
        found[last - 1] = lost(last - 1)
    return {"lost": [[2 ** (half / 2), found[half]] for half in sorted(found)]}


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


def _metric(model: RuntimeModel, sample: Sample) -> float:
    """Measure `METRIC` of a model on a sample."""
    name, _, depth = METRIC.partition("@")
    k = int(depth)
    rows: Any = Entries.of(sample.rows) if sp.issparse(sample.rows) else sample.rows
    ids = model.best_of_rows(rows, k)
    # A model with fewer labels leaves places empty; these count as wrong.
    ids = np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)
    return float(evaluate(sample.labels, ids, k=k, metrics=(name,))[METRIC])


# The search


@dataclass(frozen=True)
class Tried:
    """A copy that was tried."""

    coarseness: float  # see `circlet.storage.packed_weights.rounded`
    bytes: int  # of the whole folder; an upper bound, a few bytes too large
    loss: float  # points of the metric that the copy, or the calibration run, loses


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    folder: Path  # of the model itself
    config: dict[str, Any]  # of the model itself
    weights: dict[str, Array]  # of the copy, packed
    chosen: Tried
    tried: list[Tried]  # all copies that were tried, from fine to coarse
    metric: float | None  # of the model itself on the sample; None without a sample

    def write(self, output: Path) -> None:
        """Write the copy atomically to a new folder."""
        _write_copy(self.folder, output, self.weights, {**self.config, "store": DEFLATED})


def smallest_within(
    folder: Path, known: Sample | Curve, loss: float, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """Find the smallest copy of a model that loses at most `loss` points; `watch` gets each copy tried.

    `known` are rows to measure on, or the loss of the calibration run.
    """
    if not loss >= 0:
        raise ParameterError(f"`loss`: found {loss!r}; wanted a number of points >= 0")
    search = _Search(folder, known, watch)
    if isinstance(known, Curve):
        return search.result(max(LADDER[0], known.coarsest(loss)))
    chosen = search.last(lambda tried: tried.loss <= loss, LADDER)
    if chosen is None:
        raise ParameterError(
            f"found no copy of {folder} that loses at most {loss:g} points of {METRIC}; the finest loses "
            f"{search.found()[0].loss:.2f}: allow more with --loss, or choose --store int8 or bf16"
        )
    return search.result(chosen)


def best_that_fits(
    folder: Path, known: Sample | Curve, size: int, watch: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """Find the copy with the finest steps whose folder has at most `size` bytes; see `smallest_within`."""
    search = _Search(folder, known, watch)
    chosen = search.last(lambda tried: tried.bytes <= size, LADDER[::-1])
    if chosen is None:
        least = search.found()[-1]
        raise ParameterError(f"found no copy of {folder} in {size:,} bytes; the smallest takes {least.bytes:,}")
    return search.result(chosen)


#: Coarsenesses from fine to coarse, each a quarter of an octave from the next; and where a search starts.
LADDER, START = [2 ** (step / 4) for step in range(-16, 13)], 2.0


class _Search:
    """Tries copies of a model, each once."""

    def __init__(self, folder: Path, known: Sample | Curve, watch: Callable[[Tried], None]) -> None:
        self.folder, self.known, self.watch = folder, known, watch
        self.saved: Contents[Stored] = read(folder, whole=True)
        self.metric: float | None = None
        if not isinstance(known, Curve):
            self.metric = _metric(RuntimeModel.restore(folder, self.saved), known)
        self.whole = {name: each.read() for name, each in self.saved.tensors.items()}
        try:
            self.steps = packed_weights.steps_of(self.whole, DEFLATED)
        except DataError as error:
            raise DataError(f"{located(folder, self.saved.config, WEIGHTS)}: {error}") from error
        self.rest = _size_without_weights(folder, self.saved.config)
        self.tried: dict[float, Tried] = {}
        #: The weights of the last two copies; one of them will be chosen.
        self.weights: dict[float, dict[str, Array]] = {}

    def last(self, holds: Callable[[Tried], bool], ladder: list[float]) -> float | None:
        """Climb a ladder from START; return the last step before the first one that violates a condition.

        If START violates it, return the first step below that does not; None if all do.
        """
        start = ladder.index(START)
        above = list(takewhile(lambda each: holds(self[each]), ladder[start:]))
        return above[-1] if above else next((each for each in ladder[:start][::-1] if holds(self[each])), None)

    def __getitem__(self, coarseness: float) -> Tried:
        if coarseness not in self.tried:
            rounded = packed_weights.rounded(self.whole, self.steps, coarseness)
            if isinstance(self.known, Curve):
                loss = self.known.at(coarseness)
            else:
                copy = RuntimeModel.restore(self.folder, replace(self.saved, tensors=rounded))
                loss = 100 * ((self.metric or 0.0) - _metric(copy, self.known))
            weights = packed_weights.packed(rounded)
            # Upper bound on the size of a safetensors file with these arrays.
            size = sum(array.nbytes + len(name.encode()) + 100 for name, array in weights.items()) + 16
            self.tried[coarseness] = Tried(coarseness, self.rest + size, loss)
            self.weights = {**dict(list(self.weights.items())[-1:]), coarseness: weights}
            self.watch(self.tried[coarseness])
        return self.tried[coarseness]

    def found(self) -> list[Tried]:
        """Return the copies tried, from fine to coarse."""
        return [self.tried[coarseness] for coarseness in sorted(self.tried)]

    def result(self, chosen: float) -> Found:
        tried = self[chosen]
        return Found(self.folder, self.saved.config, self.weights[chosen], tried, self.found(), self.metric)
