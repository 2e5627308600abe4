"""A network that was trained, from scaled rows to a head's output: how stored matrices multiply rows, and heads.

The first layer is the largest part of a model, and a document touches a few hundred of its rows. So it stays in
the file as it is, and only the rows that are needed are read, and converted if they are stored in fewer bits. The
other layers are converted and transposed once.

A mapped page counts as the process's memory once it is touched, and systems map up to two megabytes around it.
With many features, a few documents would pull in most of a first layer of which they need a hundredth. So the rows
of a large one are read into memory of our own, each when it is first needed.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.encoders import RowPairs
from circlet.errors import DataError
from circlet.features.rows import Entries
from circlet.scoring import arrays
from circlet.scoring.arrays import checked
from circlet.scoring.heads import HEADS, hidden_vectors
from circlet.storage.network_spec import BESIDE, Member, hidden_layers
from circlet.storage.tensors import Stored, place_in_file, release
from circlet.threads import steps

__all__ = ["FeatureWeights", "Floats", "Linear", "Network", "RowCache", "Rows"]

#: Bytes of the rows that are kept. Smaller matrices are not worth it.
KEPT = 1 << 26


class RowCache:
    """Some rows of a mapped matrix; several threads can use it at once.

    Parameters
    ----------
    matrix : float32 ndarray of shape (n, columns)
        Over a mapped file.
    place : (descriptor, offset)
        Where the matrix is; see `circlet.storage.tensors.place_in_file`.

    Attributes
    ----------
    rows : float32 ndarray of shape (capacity, columns)
        The rows that were needed so far, in the order in which they were read.
    """

    def __init__(self, matrix: npt.NDArray[np.float32], place: tuple[int, int]) -> None:
        self._descriptor, self._offset = place
        self._row_bytes = matrix.strides[0]
        self._used, self._reading = 0, threading.Lock()
        #: The place of each row of the matrix among those that were read; −1 if it was not.
        self._places = np.full(len(matrix), -1, dtype=np.int32)
        # Pages that nobody has written to take no memory. NumPy's own memory would come in pages of 2 MB, and the
        # first use of such a page can take milliseconds.
        capacity = KEPT // self._row_bytes
        memory = mmap.mmap(-1, max(1, capacity) * self._row_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.rows = np.frombuffer(memory, np.float32).reshape(-1, matrix.shape[1])[:capacity]

    @classmethod
    def of(cls, matrix: npt.NDArray[np.float32]) -> RowCache | None:
        """A cache for a matrix if it is large and mapped from a file."""
        place = place_in_file(matrix) if matrix.nbytes > KEPT else None
        return None if place is None else cls(matrix, place)

    def find(self, wanted: npt.NDArray[np.integer]) -> npt.NDArray[np.int32] | None:
        """Where rows of the matrix are among `rows`, once they are all read; None if they are too many."""
        places: npt.NDArray[np.int32] = self._places[wanted]
        if places.min(initial=0) < 0:
            with self._reading:
                missing = np.unique(wanted[self._places[wanted] < 0])
                if self._used + len(missing) > len(self.rows):
                    return None
                self._read(missing)
            places = self._places[wanted]
        return places

    def _read(self, missing: npt.NDArray[np.integer]) -> None:
        for place, row in enumerate(missing.tolist(), self._used):
            found = os.preadv(self._descriptor, [self.rows[place]], self._offset + row * self._row_bytes)
            if found != self._row_bytes:
                raise DataError(
                    "found fewer weights than when the model was loaded: its file was changed; load it again"
                )
        end = self._used + len(missing)
        self._places[missing] = np.arange(self._used, end)  # only now, since others look without the lock
        self._used = end


Floats: TypeAlias = "npt.NDArray[np.float32]"
#: Scaled rows: sparse, dense, or sparse ones with an encoder's vectors beside them.
Rows: TypeAlias = "Entries | Floats | RowPairs"
Integers: TypeAlias = "npt.NDArray[np.integer]"

#: Numbers of a matrix that are converted at a time for one row: 4 MB, which stay in the cache.
BLOCK = 1 << 20
#: Numbers that are converted at a time for many rows, 64 MB: the more rows, the more of them share their features.
CONVERTED = 1 << 24
#: Outputs whose weights are transposed at a time.
TRANSPOSED = 64
#: With at most this share of inputs that are not zero, adding up their weights is faster than a whole product.
FEW = 0.5


class Linear:
    """A linear layer: `(n, inputs)` to `(n, outputs)`.

    Parameters
    ----------
    weight : Stored of shape (outputs, inputs)
    bias : Stored of shape (outputs,)
    """

    def __init__(self, weight: Stored, bias: Stored) -> None:
        outputs, inputs = weight.shape
        # A row for each input: most hidden units are not active, and then the rows of the others are not read.
        self.weight: Floats = np.empty((inputs, outputs), dtype=np.float32)
        for start, end in steps(outputs, TRANSPOSED):
            self.weight[:, start:end] = weight.read(slice(start, end)).T
            release(weight.numbers)  # or the layer would be in memory twice
        self.bias: Floats = bias.read().copy()

    def rows(self, inputs: Integers) -> Floats:
        """The weights of some inputs, `(m, outputs)`."""
        return self.weight[inputs]

    def __call__(self, rows: Floats) -> Floats:
        """The layer's outputs for dense rows."""
        if len(rows) == 1:
            active = (rows[0] != 0).nonzero()[0]  # a mask first, which takes a third of the time
            if len(active) <= FEW * rows.shape[1]:
                entries = Entries(np.array([0, len(active)]), active, rows[0, active])
                return checked(entries.times(self.weight, self.bias))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            out: Floats = rows @ self.weight
            out += self.bias
        return checked(out)


class FeatureWeights:
    """A linear layer over sparse rows: entries of `(n, n_features)` to `(n, outputs)`.

    Parameters
    ----------
    weight : Stored of shape (n_features, outputs)
        A row for each feature.
    bias : Stored of shape (outputs,)
    """

    def __init__(self, weight: Stored, bias: Stored) -> None:
        self.weight, self.bias = weight, bias.read().copy()
        self.n_features, self.outputs = weight.shape
        self._cache = None if weight.rounded else RowCache.of(weight.numbers)
        #: Features whose rows fit into a block.
        self._step = max(1, BLOCK // self.outputs)

    def rows(self, inputs: Integers) -> Floats:
        """The weights of some features, `(m, outputs)`."""
        found: Floats = self.weight.read(inputs)
        return found

    def __call__(self, rows: Entries) -> Floats:
        """The layer's outputs for sparse rows."""
        return checked(self._product(rows))

    def _product(self, rows: Entries) -> Floats:
        if self.weight.rounded:
            return self._of_one(rows) if rows.n == 1 else self._of_many(rows)
        cache = self._cache
        if cache is not None:
            places = cache.find(rows.columns)
            if places is not None:
                return Entries(rows.starts, places, rows.values).times(cache.rows, self.bias)
            self._cache = None  # documents need so many rows that the whole matrix may as well be mapped
        return rows.times(self.weight.numbers, self.bias)

    def _of_one(self, rows: Entries) -> Floats:
        """The outputs of one row, from copies of the weights that it touches."""
        out: Floats = self.bias[None, :].copy()
        for start, end in steps(len(rows.columns), self._step):
            columns, places = rows.columns[start:end], np.arange(end - start)
            some = Entries(np.array([0, end - start]), columns, rows.values[start:end])
            out = self._converted(some, columns, places, out[0])
        return out

    def _of_many(self, rows: Entries) -> Floats:
        """The outputs of many rows; of some of them at a time, each feature that they touch is converted once."""
        size = rows.n
        if self.n_features > CONVERTED // self.outputs:
            size = min(size, CONVERTED // self.outputs * rows.n // max(1, len(rows.columns)))
        parts = [rows.part(first, last) for first, last in steps(rows.n, max(1, size))]
        found = [self._converted(each, *np.unique(each.columns, return_inverse=True), self.bias) for each in parts]
        return np.concatenate(found) if found else np.zeros((0, self.outputs), dtype=np.float32)

    def _converted(self, rows: Entries, touched: Integers, places: Integers, bias: Floats) -> Floats:
        """Outputs of rows that touch some features, with the place of each entry's feature among them."""
        scales = self.weight.scales
        if scales is None:
            return Entries(rows.starts, places, rows.values).times(self.weight.read(touched), bias)
        # A scale belongs to a feature, and so it may as well multiply the feature's value.
        values = rows.values * scales[rows.columns]
        return Entries(rows.starts, places, values).times(self.weight.integers(touched), bias)


class Network:
    """The layers of a network.

    Parameters
    ----------
    member : Member
    weights : mapping of str to Stored
        Of this network and maybe of others; `circlet.storage.network_spec.check_shapes` has seen them.
    sparse : bool
        Whether its features are `Entries` or dense.
    """

    def __init__(self, member: Member, weights: Mapping[str, Stored], *, sparse: bool) -> None:
        first, *others = hidden_layers(member.settings)
        kind = FeatureWeights if sparse else Linear
        self.first: FeatureWeights | Linear = kind(*member.layer(weights, first))
        beside = f"{member.prefix}{BESIDE}.weight" in weights
        self.beside = Linear(*member.layer(weights, BESIDE)) if beside else None
        self.others = [Linear(*member.layer(weights, name)) for name in others]
        self.head, self.leak = HEADS[member.settings.head], member.settings.leak
        self.head_layers = [Linear(*member.layer(weights, name)) for name in self.head.parts]
        self._outputs = sum(len(layer.bias) for layer in self.head_layers)

    def __call__(self, rows: Rows) -> Floats:
        """The head's output for scaled rows, `(n, width)`."""
        return self.output(self.hidden(rows))

    def output(self, hidden: Floats) -> Floats:
        """The head's output for hidden vectors."""
        code: Floats = self.head.output(arrays, hidden, self.head_layers, self._outputs)
        return code

    def vectors(self, rows: Rows) -> Floats:
        """What tells documents apart: the head's output, or the last hidden layer if that is a score per label."""
        return self.hidden(rows) if self.head.codes is None else self(rows)

    @property
    def width(self) -> int:
        """How many numbers such a vector has."""
        if self.head.codes is None:
            return len(self.head_layers[0].weight)
        return self._outputs * self.head.width // self.head.outputs

    def hidden(self, rows: Rows) -> Floats:
        """The last hidden layer for scaled rows, `(n, h)`."""
        first = self.first if self.beside is None else self._sums
        hidden: Floats = hidden_vectors(arrays, rows, [first, *self.others], self.leak)
        return hidden

    def _sums(self, rows: Rows) -> Floats:
        """The first layer for scaled rows with an encoder's vectors beside them."""
        assert isinstance(rows, RowPairs)
        assert self.beside is not None
        sums: Floats = self.first(rows.features)
        sums += self.beside(rows.texts)
        return sums
