"""Rehearsals: of few documents, a network is trained without some first, which then say how good the next one is.

The next one learns from all documents. Its calibration, its threshold, and what it loses if its weights are
rounded, are those of the first one, which has the same sizes and is thrown away.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.folder.deflated import rounded, steps_of
from circlet.folder.history import LOST, METRIC
from circlet.folder.members import hidden_layers
from circlet.model.calibration import calibration_record
from circlet.model.model import as_arrays, as_tensors
from circlet.model.sharing import share_weights
from circlet.network import Ensemble, Network
from circlet.network.encoders import Encoder
from circlet.settings import TrainingSettings
from circlet.training import Reporter, train
from circlet.training.validation import measured

__all__ = ["lost_by_rounding", "rehearse"]

#: The coarsenesses that are tried, in half octaves: the finest, the first, and the coarsest.
FINEST, FIRST, COARSEST = -4, 3, 6
#: Points: once so few are lost, nothing finer is tried, and once so many are, nothing coarser.
FEW, MANY = 0.1, 1.0


def rehearse(
    network: Network,
    rows: Any,
    Y: sp.csr_matrix,
    held_out: npt.NDArray[np.int64],
    validation: tuple[Any, sp.csr_matrix],
    settings: TrainingSettings,
    *,
    aim: str,
    sparse: bool,
    reporter: Reporter,
    **options: Any,
) -> dict[str, Any]:
    """Train a network like this one without the held-out rows.

    Parameters
    ----------
    network : Network
        It has not learned anything yet, and is left alone.
    rows : scaled rows
    Y : csr_matrix
    held_out : ndarray of int64
    validation : tuple
        The held-out rows, as new ones would come, and their labels.
    aim : str
        What its threshold shall be best for; see `circlet.settings.run`.
    sparse : bool
        Whether rows are sparse.
    settings, reporter, **options
        See `circlet.training.train`.

    Returns
    -------
    dict
        Its metric on the held-out rows, its calibration and threshold, and what rounding costs it, as a record
        has them.
    """
    custom = copy.deepcopy(network.encoder) if network.custom else None
    trained = Network(network.settings, rows.shape[1], network.n_labels, sparse=sparse, encoder=custom)
    learned = np.delete(np.arange(Y.shape[0]), held_out)
    reporter.rehearsal(len(learned))
    train(trained, rows[learned], Y[learned], settings, reporter=reporter, **options)
    share_weights(trained, rows[learned])
    metrics = measured(trained, *validation, settings.metric)
    reporter.rehearsed(metrics)
    found = {**metrics, **calibration_record(Ensemble([trained]), *validation, aim)}
    if not isinstance(trained.encoder, Encoder):
        return found  # the runtime, which measures smaller copies, can run no other encoder
    return {**found, LOST: lost_by_rounding(trained, *validation)}


def lost_by_rounding(network: Network, rows: Any, Y: sp.csr_matrix) -> list[list[float]]:
    """Points of `METRIC` that a network loses on rows if its weights are rounded: pairs of coarseness and points.

    From fine to coarse: what lies between a loss of `FEW` points and one of `MANY`.
    """
    whole = measured(network, rows, Y, METRIC)[METRIC]
    weights = as_arrays(network.weights())
    steps, sparse = steps_of(weights, "a smaller copy"), bool(sp.issparse(rows))
    if sparse:
        # Of the features, which may be many, only those that these rows have matter.
        first, touched = f"{hidden_layers(network.settings)[0]}.weight", np.unique(rows.indices)
        rows = rows[:, touched]
        weights[first], steps[first] = weights[first][touched], steps[first][touched]
    codes = None if network.codebook is None else network.codebook.state()
    sizes = int(rows.shape[1]), network.n_labels
    copied = Network(network.settings, *sizes, sparse=sparse, codebook=codes, blank=True).to(network.device)

    def lost(half: int) -> float:
        copied.load_weights(as_tensors(rounded(weights, steps, 2 ** (half / 2))))
        return 100 * (whole - measured(copied, rows, Y, METRIC)[METRIC])

    found = {FIRST: lost(FIRST)}
    while found[last := max(found)] < MANY and last < COARSEST:
        found[last + 1] = lost(last + 1)
    while found[last := min(found)] > FEW and last > FINEST:
        found[last - 1] = lost(last - 1)
    return [[2 ** (half / 2), found[half]] for half in sorted(found)]
