"""How stored matrices multiply rows: mapped from the file, and converted only where they are stored in fewer bits.

The first layer is the largest part of a model, and a document touches a few hundred of its rows. So it stays in
the file as it is, and only the rows that are needed are read and converted. All other layers are used whole at
every prediction: they are converted once, or stay in the file if they are float32 there.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError
from circlet.features.entries import Entries
from circlet.folder.precision import Stored
from circlet.runtime.parallel import in_parallel, steps
from circlet.threads import worker_count

__all__ = ["FeatureWeights", "Floats", "Linear"]

Floats: TypeAlias = "npt.NDArray[np.float32]"

#: Numbers of a matrix that are gathered or converted at a time: 4 MB, which stay in the cache.
BLOCK = 1 << 20
#: Numbers that are converted at a time for many rows, 64 MB: the more rows, the more of them share their features.
CONVERTED = 1 << 24
#: With more features than this, multiplying a sparse matrix of one row is faster than copying their weights.
GATHERED = 512
#: The fewest rows that are worth a thread of their own.
FEWEST = 64


def checked(out: Floats) -> Floats:
    """A layer's outputs, if all of them are finite; otherwise a `DataError`.

    Whatever comes next could turn infinity into a plausible number. To find a damaged weight where it matters
    takes far less time than to look at all weights before.
    """
    if not np.isfinite(out).all():
        raise DataError(
            "found a non-finite number in the output of a layer: the document has numbers too large for this "
            "model, or the model is damaged (circlet info MODEL --verify says whether it is)"
        )
    return out


class Linear:
    """A linear layer: `(n, inputs)` to `(n, outputs)`.

    Parameters
    ----------
    weight : Stored of shape (outputs, inputs)
    bias : Stored of shape (outputs,)
    """

    def __init__(self, weight: Stored, bias: Stored) -> None:
        # Transposed but not copied: in this layout, the product of one row or many reads the matrix in its order.
        self.weight: Floats = weight.read().T
        self.bias: Floats = bias.read().copy()

    def __call__(self, rows: Floats) -> Floats:
        """The layer's outputs for dense rows."""
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
        #: Features whose rows fit into a block.
        self._step = max(1, BLOCK // self.outputs)

    def __call__(self, rows: Entries) -> Floats:
        """The layer's outputs for sparse rows."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            if rows.n == 1 and (self.weight.rounded or len(rows.columns) <= GATHERED):
                out = self._of_one(rows)
            else:
                out = self._of_many(rows)
            out += self.bias
        return checked(out)

    def _of_one(self, rows: Entries) -> Floats:
        _, columns, values = rows
        if len(columns) <= self._step:
            return self._gathered(columns, values)
        out = np.zeros((1, self.outputs), dtype=np.float32)
        for start, end in steps(len(columns), self._step):
            out += self._gathered(columns[start:end], values[start:end])
        return out

    def _gathered(self, columns: npt.NDArray[np.integer], values: Floats) -> Floats:
        """The product of one row, from copies of the weights that it touches."""
        scales = self.weight.scales
        if scales is None:
            touched = self.weight.read(columns)
        else:
            # A scale belongs to a feature, and so it may as well multiply the feature's value.
            values = values * scales[columns]
            touched = self.weight.integers(columns)
        product: Floats = values[None, :] @ touched
        return product

    def _of_many(self, rows: Entries) -> Floats:
        size = max(FEWEST, -(-rows.n // worker_count()))
        if self.weight.rounded and self.n_features > CONVERTED // self.outputs:
            size = max(1, min(size, CONVERTED // self.outputs * rows.n // max(1, len(rows.columns))))
        parts = in_parallel(lambda first, last: self._product(rows.part(first, last)), rows.n, size)
        return np.concatenate(parts) if parts else np.zeros((0, self.outputs), dtype=np.float32)

    def _product(self, rows: Entries) -> Floats:
        weight, n_rows = self.weight.numbers, self.n_features
        if self.weight.rounded:  # each row that is touched is converted once
            touched, places = np.unique(rows.columns, return_inverse=True)
            rows = Entries(rows.starts, places.astype(np.int32), rows.values)
            weight, n_rows = self.weight.read(touched), len(touched)
        product: Floats = rows.matrix(n_rows) @ weight
        return product
