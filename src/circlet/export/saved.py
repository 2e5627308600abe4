"""What is exported: everything in a model's folder that an ONNX graph needs, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import ParameterError
from circlet.features.rows import Scaling
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer
from circlet.folder import contents
from circlet.folder.members import Member as Described
from circlet.folder.members import hidden_layers, output_layers
from circlet.folder.tensors import Stored
from circlet.runtime import RuntimeModel
from circlet.runtime.codebooks import Codebook, CodesInBlocks, SpectralCodebook
from circlet.runtime.scorers import Scorer
from circlet.settings import NetworkSettings
from circlet.settings.network import FEATURES

__all__ = ["LARGEST_TABLE", "Layer", "Member", "Saved", "Series", "Table", "read"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

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
    label_uris: list[str] | None
    vectorizer: TextVectorizer | None


def read(folder: Path, *, large_table: bool = False) -> Saved:
    """Read a model's folder; if anything is wrong with it, a `DataError` says what.

    Parameters
    ----------
    folder : Path
    large_table : bool
        Whether a table of codes may be larger than `LARGEST_TABLE`.
    """
    with contents.explained(folder):
        found = contents.read(folder, whole=True)
        model, weights = RuntimeModel.restore(folder, found, used=False), found.tensors
    settings = model.members[0].settings
    if settings.reads_texts or isinstance(model.vectorizer, Tokenizer):
        raise ParameterError(
            f"{folder}: found encoder {settings.encoder}; only models with encoder {FEATURES} can be exported"
        )
    return Saved(
        [_member(*each, weights, large_table) for each in zip(model.members, model.scorers, strict=True)],
        model.scaling,
        model.n_features,
        model.n_labels,
        model.sparse,
        model.calibration,
        model.label_names,
        model.label_uris,
        model.vectorizer,
    )


def _member(described: Described, scorer: Scorer, weights: Mapping[str, Stored], large_table: bool) -> Member:
    settings = described.settings

    def layer(name: str) -> Layer:
        weight, bias = described.layer(weights, name)
        if weight.numbers.dtype == np.int8 and weight.scales is not None:
            return Layer(np.asarray(weight.numbers), bias.read(), weight.scales)
        return Layer(weight.read(), bias.read())

    encoder = [layer(name) for name in hidden_layers(settings)]
    head = [layer(name) for name in output_layers(settings)]
    codes = None if scorer.codebook is None else _codes(scorer.codebook, settings, large_table)
    return Member(settings, encoder, head, codes, scorer.scale, scorer.bias, described.calibration)


def _codes(book: Codebook, settings: NetworkSettings, large_table: bool) -> Series | Table:
    ids = np.arange(book.n_labels)
    if isinstance(book, SpectralCodebook):
        return Series(book.frequencies, book.slots(ids), book.length)
    assert isinstance(book, CodesInBlocks)
    size = 4 * book.n_labels * book.width
    if size > LARGEST_TABLE and not large_table:
        raise ParameterError(
            f"found codebook {settings.codebook_name}, whose codes of {book.n_labels:,} labels would take "
            f"{size / 1e6:,.0f} MB in the file; wanted at most {LARGEST_TABLE / 1e6:,.0f} MB: train a "
            "circular head with codebook spectral, which needs no table, or allow a large one (--large-table)"
        )
    return Table(book.codes(ids), float(book.scale))
