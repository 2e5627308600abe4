"""The primitives over NumPy arrays. They may overwrite what they are given: most of it is a temporary."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError

floor, log1p, sin, sqrt, subtract, tanh = np.floor, np.log1p, np.sin, np.sqrt, np.subtract, np.tanh
absolute, no_grad, where = np.abs, nullcontext, np.where

#: Single precision, except in explanations.
Floats: TypeAlias = "npt.NDArray[Any]"
Integers: TypeAlias = "npt.NDArray[np.int64]"
#: Ids and scores, `(n, k)` each; −1 and −∞ where there is no label.
Found: TypeAlias = "tuple[Integers, Floats]"

#: Added to the squared norm of a pair, to keep its gradient finite at (0, 0). Its square is still a normal
#: float32, far below any pair's norm.
TINY = 1e-12
#: The least norm that a vector is divided by, as in torch.
LEAST_NORM = 1e-12
_LOWEST = np.finfo(np.float32).min
#: Norms of outputs, scales and biases are below this, so that no score of any label overflows.
LARGEST = 1e15
#: Bytes for scores and temporaries at a time: more does not fit into the cache and is slower.
MEMORY = 1 << 26


def budget(memory: int | None, rows: Floats | None = None) -> int:
    """Bytes that scores of rows and temporaries may take at a time, if the caller allows `memory`."""
    return MEMORY if memory is None else min(int(memory), MEMORY)


def beside(numbers: Floats, rows: Floats) -> Floats:
    """The numbers on the device where the rows are."""
    return numbers


def arange(start: int, end: int, beside: npt.NDArray[Any]) -> Integers:
    """The integers from start to before end, on the device of others."""
    return np.arange(start, end)


def empty(n: int, width: int, beside: npt.NDArray[Any]) -> Floats:
    """An array that is not filled yet, `(n, width)`, on the device of others."""
    return np.empty((n, width), dtype=np.float32)


def split(rows: Floats, parts: int) -> list[Floats]:
    """The columns in so many equal parts."""
    return np.split(rows, parts, axis=1)


def concat(parts: list[Floats], axis: int = -1) -> Floats:
    """Arrays side by side, or one below the other with axis 0."""
    return np.concatenate(parts, axis=axis)


def unit(rows: Floats, norm: float = 1.0) -> Floats:
    """Rows with this norm."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.maximum(norms, LEAST_NORM)[:, None]
    if norm != 1:
        rows *= norm
    return rows


def unit_pairs(rows: Floats) -> Floats:
    """Each pair, of a number in the first half of a row and one in the second, divided by its norm."""
    dim = rows.shape[1] // 2
    x, y = rows[:, :dim], rows[:, dim:]
    norms = np.sqrt(x * x + y * y + TINY)
    x /= norms
    y /= norms
    return rows


def packed(half_turns: Floats) -> Floats:
    """Packed phasors of angles, given as parts of π."""
    return pack(half_turns * np.pi)


def pack(theta: Floats) -> Floats:
    """Packed phasors of angles, `[cos θ | sin θ]`."""
    return concat([np.cos(theta), np.sin(theta)])


def unit_spectrum(vectors: Floats) -> Floats:
    """Vectors with every Fourier coefficient on the unit circle; one that is zero becomes 1."""
    from scipy.fft import irfft, rfft  # which takes memory that most codebooks do not need

    spectrum = rfft(vectors)
    magnitude = np.abs(spectrum)
    unit_circle = np.where(magnitude > 0, spectrum / np.maximum(magnitude, np.finfo(np.float32).tiny), 1)
    found: Floats = irfft(unit_circle, n=vectors.shape[1])
    return found


def products(rows: Floats, codes: Floats) -> Floats:
    """Inner products of rows with codes, `(n, m)`, in the precision of the rows."""
    found: Floats = rows @ codes.T
    return found


def precise_products(rows: Floats, codes: Floats) -> Floats:
    """Inner products of each row with codes of its own, `(n, k)`; `codes` has those of all rows, `(n · k, width)`.

    They are computed in double precision, and rounded once.
    """
    own = codes.reshape(len(rows), -1, rows.shape[1]).astype(np.float64)
    return single(np.matmul(own, rows[:, :, None])[:, :, 0])


def single(numbers: Floats) -> Floats:
    """The numbers in single precision."""
    return numbers.astype(np.float32, copy=False)


def integers(numbers: npt.NDArray[Any]) -> Integers:
    """Integers of any kind as int64."""
    return numbers.astype(np.int64, copy=False)


def double(numbers: Floats) -> Floats:
    """The numbers in double precision."""
    return numbers.astype(np.float64)


def as_array(numbers: Floats) -> Floats:
    """The numbers as a NumPy array."""
    return numbers


def take(numbers: Floats, columns: Integers) -> Floats:
    """Some columns of each row; any for −1."""
    return np.take_along_axis(numbers, columns, axis=1)


def by_id(ids: Integers, scores: Floats) -> Integers:
    """The columns of each row ordered by id, and those with the same id by score, the highest first."""
    return np.lexsort((-scores, ids), axis=1)


def by_score(ids: Integers, scores: Floats) -> Integers:
    """The columns of each row ordered by score, the highest first, and those with the same score by id."""
    return np.lexsort((ids, -scores), axis=1)


def nothing(rows: Floats, k: int) -> Found:
    """Places for ids and scores of k labels of each row."""
    return np.zeros((len(rows), k), dtype=np.int64), np.zeros((len(rows), k), dtype=np.float32)


def numbered(outputs: list[Floats]) -> Integers:
    """The numbers of documents, from 0, of which there is an output of each network."""
    return np.arange(len(outputs[0]))


def scores(book: Any, outputs: Floats, scale: Any, bias: Floats | None) -> Floats:
    """Scale · similarity + bias of outputs and the codes of all labels."""
    found: Floats = book.scores(outputs * scale)
    if bias is not None:
        found += bias
    return found


def affine(x: Floats, slope: float, intercept: float) -> Floats:
    """Slope · x + intercept."""
    return x * slope + intercept


def rectified(x: Floats, leak: float) -> Floats:
    """(Leaky) ReLU."""
    found: Floats = np.maximum(x, x * leak if leak else 0, out=x)
    return found


def log_sigmoid(x: Floats) -> Floats:
    """Logarithms of probabilities, from their log-odds."""
    logs: Floats = np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))
    return logs


def log_sum(a: Floats, b: Floats) -> Floats:
    """The logarithm of the sum of two numbers, from their logarithms."""
    total: Floats = np.maximum(a, b) + np.log1p(np.exp(-np.abs(a - b)))
    return total


def best_columns(scores: Floats, k: int, labels: npt.NDArray[Any] | None = None) -> Found:
    """The k best columns of each row and their scores; columns of −∞ are left out.

    `labels` has each column's label, which is returned instead; they are distinct where scores are above −∞.
    """
    n, m = scores.shape
    # All scores that are at least as high as a k-th best one, or a little lower, are candidates: so are all ties.
    least = np.maximum(_below_k_best(scores, k), _LOWEST)
    places = np.flatnonzero(scores >= least[:, None])
    values = scores.reshape(-1)[places]
    if n == 1:
        ids = places if labels is None else labels[places].astype(np.int64)
        order = np.lexsort((ids, -values))[:k]
        if len(order) == k:
            return ids[order][None, :], values[order][None, :]
    rows, columns = np.divmod(places, m)
    ids = columns if labels is None else labels[columns]
    order = np.lexsort((ids, -values, rows))
    # The rows keep their order, so that a place in it minus the row's first place is a rank.
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
    order, rows, ranks = order[ranks < k], rows[ranks < k], ranks[ranks < k]
    best_ids, best = np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf, dtype=scores.dtype)
    best_ids[rows, ranks], best[rows, ranks] = ids[order], values[order]
    return best_ids, best


def _below_k_best(scores: Floats, k: int) -> Floats:
    """For each row, a number that at least k of its scores reach, and not many more."""
    n, m = scores.shape
    # Of all scores that are `groups` apart, only the largest is looked at: k of those are reached by k scores. The
    # maxima are those of whole rows of numbers, which is fast.
    size = 8 << max(0, m.bit_length() // 2 - 6)
    groups = m // size
    if groups >= 8 * k:
        scores = scores[:, : groups * size].reshape(n, size, groups).max(axis=1)
        m = groups
    return np.partition(scores, m - k, axis=1)[:, m - k]


def checked(out: Floats) -> Floats:
    """A layer's outputs `(n, outputs)`, or scores, if they are finite and no row is too large; else a `DataError`.

    Whatever comes next could turn infinity into a plausible number. To find a damaged weight where it matters
    takes far less time than to look at all weights before.
    """
    rows = out[:, None] if out.ndim == 1 else out
    squares = np.vdot(out, out) if len(out) == 1 else np.einsum("ij,ij->i", rows, rows).max(initial=0)
    if not squares < LARGEST**2:  # which is not less if it is NaN
        raise DataError(
            "found a non-finite or huge number in the output of a layer: the document has numbers too large for "
            "this model, or the model is damaged (circlet info MODEL --verify says whether it is)"
        )
    return out
