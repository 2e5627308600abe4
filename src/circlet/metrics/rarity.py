"""How much more a rare label is worth than a frequent one: its inverse propensity, as in PSP@k."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from circlet.checks import is_real
from circlet.errors import DataError, ParameterError
from circlet.metrics import inverse_propensity_of_counts

__all__ = ["check_favor_rare", "log_weights"]


def check_favor_rare(favor_rare: object) -> None:
    """Raise `ParameterError` unless it is a number between 0 and 1."""
    if not (is_real(favor_rare) and 0 <= favor_rare <= 1):  # type: ignore[operator]
        raise ParameterError(f"`favor_rare` must be between 0 and 1, got {favor_rare!r}")


def log_weights(
    counts: npt.NDArray[np.int64] | None, documents: int, n_labels: int, favor_rare: float
) -> npt.NDArray[np.float64]:
    """τ log w of each label, `(n_labels,)`: w is its inverse propensity, and τ is `favor_rare`.

    Parameters
    ----------
    counts : int64 ndarray or None
        How many of the documents have each label. Labels beyond its end have never occurred; None is unknown.
    documents, n_labels : int
    favor_rare : float
        0 for weights of 1, 1 for inverse propensities.
    """
    if counts is None:
        raise DataError(
            "found a model of an older version, which did not save how often each label occurred; wanted these "
            "counts, to favor rare labels: train it again, or leave `favor_rare` out"
        )
    if documents < 3:
        raise DataError(
            f"found a model that has seen {documents} documents; wanted at least 3, to know which labels are "
            "rare: train it on more, or leave `favor_rare` out"
        )
    padded = np.zeros(n_labels, dtype=np.int64)
    padded[: len(counts)] = counts
    return favor_rare * np.log(inverse_propensity_of_counts(padded, documents))
