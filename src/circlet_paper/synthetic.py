"""Synthetic datasets of any size, for growth curves: power-law labels that can be learned from words.

Every random number is a hash of the seed and its purpose (such as row and draw, or label and word). So each row is
independent of which other rows are made, and no table of labels or words is needed.

Each label has `WORDS_OF_A_LABEL` words. A row draws labels from a power law. Half of its words, on average, belong
to its labels; the rest are noise from the same law. Labels and words are numbered by falling frequency.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import is_integer, is_real
from circlet.data import Dataset, Split
from circlet.errors import ParameterError

WORDS_OF_A_LABEL = 6
#: Number of the first test row; it is fixed, so that test rows do not depend on the number of training rows.
TEST = 1 << 48
_LARGEST = 2**31 - 1  # of SciPy's 32-bit indices

Hashes = npt.NDArray[np.uint64]


def make_multilabel(
    n: int,
    n_features: int,
    n_labels: int,
    *,
    seed: int,
    n_test: int = 0,
    labels_per_row: int = 5,
    words_per_row: int = 40,
    exponent: float = 1.0,
) -> Dataset:
    """Make a dataset.

    Parameters
    ----------
    n : int
        Training rows. A smaller dataset is the beginning of a larger one.
    n_features : int
        Number of words, the columns of X.
    n_labels : int
        Number of labels, the columns of Y.
    seed : int
        Seed that determines all rows.
    n_test : int
        Test rows; the same for any n.
    labels_per_row : int
        Mean number of labels drawn for a row: from 1 to 2 * labels_per_row - 1; repeated labels count once.
    words_per_row : int
        Words drawn for a row; X counts how often each was drawn.
    exponent : float
        The r-th label is drawn about r ** -exponent times as often as the first; with 0, all equally often.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> made = make_multilabel(1000, 5000, 300, seed=0, n_test=100)
    >>> made.train.X.shape, made.test.Y.shape
    ((1000, 5000), (100, 300))
    """
    _check_integers({"n": (n, 1, TEST), "n_test": (n_test, 0, TEST)})
    options: dict[str, Any] = {"labels_per_row": labels_per_row, "words_per_row": words_per_row}
    options |= {"seed": seed, "exponent": exponent}
    train = make_rows(0, n, n_features, n_labels, **options)
    test = make_rows(TEST, TEST + n_test, n_features, n_labels, **options) if n_test else None
    return Dataset(f"synthetic-{n_labels}", train, test, format="made up")


def make_rows(
    start: int,
    stop: int,
    n_features: int,
    n_labels: int,
    *,
    seed: int,
    labels_per_row: int = 5,
    words_per_row: int = 40,
    exponent: float = 1.0,
    chunk: int = 1 << 18,
) -> Split:
    """Make the rows from `start` to `stop` of the infinite dataset that `make_multilabel` samples.

    About `chunk` draws are made at a time: enough to keep NumPy efficient, few enough for the CPU's cache.
    """
    _check_integers(
        {
            "start": (start, 0, 2 * TEST),
            "stop": (stop, start, 2 * TEST),
            "n_features": (n_features, 1, _LARGEST),
            "n_labels": (n_labels, 1, _LARGEST),
            "seed": (seed, 0, math.inf),
            "labels_per_row": (labels_per_row, 1, 1 << 16),
            "words_per_row": (words_per_row, 1, 1 << 20),
        }
    )
    if not is_real(exponent) or not 0 <= exponent <= 10:
        raise ParameterError(f"`exponent`: found {exponent!r}; wanted a number from 0 to 10")
    step = max(1, chunk // (2 * labels_per_row + words_per_row))
    parts = []
    for begin in range(start, stop, step) or (start,):
        rows = np.arange(begin, min(begin + step, stop), dtype=np.uint64)
        labels, counts = _labels(rows, n_labels, seed, labels_per_row, float(exponent))
        words = _words(rows, labels, counts, n_features, seed, words_per_row, float(exponent))
        kept = np.arange(labels.shape[1]) < counts[:, None]
        Y = _matrix(np.repeat(np.arange(len(rows)), counts), labels[kept], (len(rows), n_labels))
        Y.data[:] = 1
        X = _matrix(np.repeat(np.arange(len(rows)), words_per_row), words.ravel(), (len(rows), n_features))
        parts.append((X, Y))
    X, Y = (sp.vstack(matrices, format="csr") for matrices in zip(*parts, strict=True))
    return Split(X, Y)


def _labels(
    rows: Hashes, n_labels: int, seed: int, labels_per_row: int, exponent: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw labels `(rows, most)`, and the number of them that each row has, `(rows,)`."""
    most = 2 * labels_per_row - 1
    counts = 1 + (_hash(_key(seed, 0), rows) % np.uint64(most)).astype(np.int64)
    drawn = _hash(_hash(_key(seed, 1), rows)[:, None], np.arange(most, dtype=np.uint64))
    return _zipf(drawn, n_labels, exponent), counts


def _words(
    rows: Hashes,
    labels: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    n_features: int,
    seed: int,
    words_per_row: int,
    exponent: float,
) -> npt.NDArray[np.int64]:
    """Draw words, `(rows, words_per_row)`."""
    draws = np.arange(words_per_row, dtype=np.uint64)
    kind, drawn = (_hash(_hash(_key(seed, stream), rows)[:, None], draws) for stream in (2, 3))
    words = _zipf(drawn, n_features, exponent)
    row, column = np.nonzero(_uniform(kind) < 0.5)  # half of the words belong to labels
    # The draw that noise does not need chooses the label and one of its words.
    which, left = np.divmod(drawn[row, column], np.uint64(WORDS_OF_A_LABEL))
    label = labels[row, (which % counts[row].astype(np.uint64)).astype(np.int64)]
    own = _hash(_hash(_key(seed, 4), label.astype(np.uint64)), left)
    words[row, column] = (own % np.uint64(n_features)).astype(np.int64)
    return words


def _zipf(hashes: Hashes, size: int, exponent: float) -> npt.NDArray[np.int64]:
    """Draw numbers 0…size−1: r has the probability of the interval from r + 1 to r + 2 under x ** -exponent.

    This distribution function has a closed-form inverse, so no table of `size` numbers is needed. Zipf's law would
    need a table, and differs only in the first few ranks.
    """
    u, log_end = _uniform(hashes), math.log(size + 1)
    rest = 1 - exponent
    # expm1 and log1p are exact near exponent 1, where the inverse becomes (size + 1) ** u.
    logs = u * log_end if rest == 0 else np.log1p(u * math.expm1(rest * log_end)) / rest
    return np.minimum(np.exp(logs).astype(np.int64), size) - 1


def _matrix(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_matrix:
    """Count how often each (row, column) occurs, in float32."""
    made = sp.csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
    made.sum_duplicates()
    return made


def _key(seed: int, stream: int) -> Hashes:
    return np.random.SeedSequence((seed, stream)).generate_state(1, np.uint64).astype(np.uint64)


def _hash(key: Hashes, numbers: Hashes) -> Hashes:
    """Hash key and numbers to 64 bits: combine them, then mix as SplitMix64 does (Stafford's variant 13)."""
    x: Hashes = key + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # an odd factor loses no bits
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _uniform(hashes: Hashes) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = (hashes >> np.uint64(11)) * 2.0**-53
    return numbers


def _check_integers(arguments: dict[str, tuple[Any, int, float]]) -> None:
    for name, (value, least, most) in arguments.items():
        if not is_integer(value, least) or value > most:
            limit = f"from {least} to {most}" if most < math.inf else f">= {least}"
            raise ParameterError(f"`{name}`: found {value!r}; wanted an integer {limit}")
