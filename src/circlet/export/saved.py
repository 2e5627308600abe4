"""What is exported: everything in a model's folder, as NumPy arrays.

This is the only module of the package that knows torch, in which folders and codebooks still give their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from circlet.errors import CircletError, DataError, ParameterError
from circlet.features.scaling import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.model import folder as folders
from circlet.model import precision
from circlet.model.model import ARRAYS, COUNTS
from circlet.network.network import make_codebook
from circlet.settings import NetworkSettings

__all__ = ["LARGEST_TABLE", "Layer", "Member", "Saved", "Series", "Table", "read"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Value = TypeVar("Value")

#: Bytes that a table of codes may take unless a larger one is asked for.
LARGEST_TABLE = 256_000_000


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear layer.

    Parameters
    ----------
    weight : float32 or int8 ndarray of shape (outputs, inputs)
        The first layer of sparse rows has it transposed, `(n_features, outputs)`.
    bias : ndarray of shape (outputs,)
    scales : ndarray of shape (rows of the weight,) or None
        What the rows of an int8 weight are multiplied by.
    """

    weight: Array
    bias: Floats
    scales: Floats | None = None


@dataclass(frozen=True, eq=False)
class Series:
    """Circular codes as in `circlet.codebooks.spectral`: angle j of label y is 2π · slots[y] · frequencies[j] / M.

    Parameters
    ----------
    frequencies : int64 ndarray of shape (dim,)
    slots : int64 ndarray of shape (n_labels,)
    length : int
        M, the number of slots.
    """

    frequencies: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    length: int


@dataclass(frozen=True, eq=False)
class Table:
    """Codes without structure: a similarity is `scale` times an inner product with a row of `codes`.

    Parameters
    ----------
    codes : ndarray of shape (n_labels, width)
    scale : float
    """

    codes: Floats
    scale: float


@dataclass(frozen=True, eq=False)
class Member:
    """A network.

    Parameters
    ----------
    settings : NetworkSettings
        The same for all networks of a model; what differs follows from the other parameters.
    encoder, head : list of Layer
    codes : Series, Table or None
        None if the head's outputs are scores already.
    scale : float
        What similarities are multiplied by.
    bias : ndarray of shape (n_labels,) or None
        What is then added.
    calibration : (slope, intercept)
        The logistic curve from its scores to probabilities; only the mean of several networks uses it.
    """

    settings: NetworkSettings
    encoder: list[Layer]
    head: list[Layer]
    codes: Series | Table | None
    scale: float
    bias: Floats | None
    calibration: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Saved:
    """A model; the parameters are those of `circlet.model.Model`, with all networks in `members`."""

    members: list[Member]
    scaling: Scaling
    n_features: int
    n_labels: int
    sparse: bool
    calibration: tuple[float, float]
    label_names: list[str] | None
    vectorizer: TextVectorizer | None


def read(folder: Path, *, large_table: bool = False) -> Saved:
    """Read a model's folder; if anything is wrong with it, a `DataError` says what.

    Parameters
    ----------
    folder : Path
    large_table : bool
        Whether a table of codes may be larger than `LARGEST_TABLE`.
    """
    contents = folders.read(folder)
    config, stored = contents.config, _stored(contents)
    stored.pop(COUNTS, None)
    features = {name: tensor.numbers for name, tensor in _taken(stored, ARRAYS).items()}
    with _explained(folder):
        settings = NetworkSettings(**config["network"])
        scaling = Scaling.restore(config["scaling"], features, config["n_features"])
    several = config["format"] == folders.SEVERAL
    described = config["members"] if several else [{"codebook": config["codebook"]}]
    members = []
    for i, each in enumerate(described):
        tensors = _taken(stored, f"members.{i}." if several else "")
        members.append(_MemberReader(folder, config, settings, tensors).member(each, large_table))
    if stored:
        raise DataError(f"{folder / folders.WEIGHTS}: found {min(stored)}; wanted {len(members)} networks")
    return Saved(
        members,
        scaling,
        config["n_features"],
        config["n_labels"],
        config["sparse"],
        _curve(config),
        contents.label_names,
        contents.vectorizer,
    )


class _Stored(NamedTuple):
    """A tensor as the file has it, with the scales of its rows if it is in int8."""

    numbers: Array
    scales: Floats | None = None


def _stored(contents: folders.Contents) -> dict[str, _Stored]:
    """All tensors by name; those in bf16 are float32 already."""
    tensors = contents.tensors
    if contents.config["store"] == "int8":
        # They were read as float32, but rounding them again gives the same integers.
        tensors = precision.packed(tensors, "int8")
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    scales = _taken(arrays, precision.SCALES)
    return {name: _Stored(array, scales.get(name)) for name, array in arrays.items()}


def _taken(by_name: dict[str, Value], prefix: str) -> dict[str, Value]:
    """What has this prefix, which is removed from the names, and from `by_name`."""
    names = [name for name in by_name if name.startswith(prefix)]
    return {name.removeprefix(prefix): by_name.pop(name) for name in names}


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (TypeError, RuntimeError, CircletError) as error:  # the first two: unknown settings, impossible sizes
        reason = str(error).splitlines()[0]
        raise DataError(f"{folder / folders.CONFIG}: found a damaged configuration ({reason})") from error


class _MemberReader:
    """Takes the parts of one network from its tensors, and checks that nothing is missing or left over."""

    def __init__(
        self, folder: Path, config: dict[str, Any], settings: NetworkSettings, tensors: dict[str, _Stored]
    ) -> None:
        self.folder, self.config, self.settings, self.tensors = folder, config, settings, tensors

    def member(self, described: dict[str, Any], large_table: bool) -> Member:
        settings, n_labels, state = self.settings, self.config["n_labels"], described["codebook"]
        encoder, head, coded = self._encoder(), self._head(), settings.codes is not None
        scale, bias = 1.0, None
        if coded and settings.loss != "cosine":
            scale = math.exp(float(self._tensor("loss.log_scale", ()).numbers))
        if coded and settings.loss == "bce":
            # Labels that may be added later already have their biases.
            capacity = (state or {}).get("length", n_labels)
            bias = self._tensor("loss.bias", (capacity,)).numbers[:n_labels]
        if self.tensors:
            raise DataError(f"{self._weights}: found {min(self.tensors)}; wanted only what {settings.head} has")
        return Member(settings, encoder, head, self._codes(state, large_table), scale, bias, _curve(described))

    def _encoder(self) -> list[Layer]:
        widths, n_features = self.settings.hidden, self.config["n_features"]
        first = (n_features, widths[0]) if self.config["sparse"] else (widths[0], n_features)
        shapes = [first, *((after, before) for before, after in pairwise(widths))]
        # Between two linear layers there are an activation and dropout.
        return [
            self._layer(f"encoder.layers.{3 * i}", shape, width)
            for i, (shape, width) in enumerate(zip(shapes, widths, strict=True))
        ]

    def _head(self) -> list[Layer]:
        settings = self.settings
        names = ["output", "second"] if settings.head == "chrr-half" else ["output"]
        per_dim = 2 if settings.head in ("chrr", "chrr-amplitude") else 1
        outputs = self.config["n_labels"] if settings.codes is None else per_dim * settings.dim
        inputs = settings.hidden[-1] // len(names)
        return [self._layer(f"head.{name}", (outputs, inputs), outputs) for name in names]

    def _layer(self, name: str, shape: tuple[int, int], outputs: int) -> Layer:
        weight, bias = self._tensor(f"{name}.weight", shape), self._tensor(f"{name}.bias", (outputs,))
        return Layer(weight.numbers, bias.numbers, weight.scales)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> _Stored:
        found = self.tensors.pop(name, None)
        if found is None or found.numbers.shape != shape:
            what = f"no {name}" if found is None else f"{name} of shape {found.numbers.shape}"
            custom = "; a custom encoder can't be exported" if name.startswith("encoder.") else ""
            raise DataError(f"{self._weights}: found {what}; wanted the shape {shape}{custom}")
        return found

    def _codes(self, state: dict[str, Any] | None, large_table: bool) -> Series | Table | None:
        settings, n_labels = self.settings, self.config["n_labels"]
        with _explained(self.folder):
            if (state is None) != (settings.codes is None):
                raise DataError(f"found the codebook {state} for head {settings.head}")
            book = make_codebook(settings, n_labels, state)
            if book is None:
                return None
            if (book.n_labels, book.dim) != (n_labels, settings.dim):
                raise DataError(f"found {book}; wanted {n_labels} labels and dim {settings.dim}")
            slots = book.slots_on(torch.device("cpu"))
        if slots is not None:
            return Series(slots.frequencies.numpy(), slots.of_labels.long().numpy(), slots.length)
        size = 4 * n_labels * book.width
        if size > LARGEST_TABLE and not large_table:
            raise ParameterError(
                f"found codebook {settings.codebook_name}, whose codes of {n_labels:,} labels would take "
                f"{size / 1e6:,.0f} MB in the file; wanted at most {LARGEST_TABLE / 1e6:,.0f} MB: train a "
                "circular head with codebook spectral, which needs no table, or allow a large one (--large-table)"
            )
        return Table(np.concatenate([codes.numpy() for codes in book.blocks()]), book.scale)

    @property
    def _weights(self) -> Path:
        return self.folder / folders.WEIGHTS


def _curve(described: dict[str, Any]) -> tuple[float, float]:
    slope, intercept = described.get("calibration", (1.0, 0.0))
    return float(slope), float(intercept)
