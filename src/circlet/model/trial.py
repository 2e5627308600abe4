"""A short trial: small networks, trained on some of the rows, show which optimizer suits the first layer.

On most sparse data SGD is better, because Adam learns rare words by heart. Where documents are a handful of words
each, rare words are all there is, and Adam is better. Nothing simpler than a trial has told the two apart.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from circlet.metrics import evaluate
from circlet.network import Ensemble, Network
from circlet.network.ensemble import top_k
from circlet.settings import Decision, NetworkSettings, RunSettings, TrainingSettings
from circlet.training import train

__all__ = ["FEWEST_ROWS", "first_layer"]

#: A trial on fewer rows tells nothing.
FEWEST_ROWS = 1000
#: The most rows that a trial trains on, and that it ranks labels of.
MOST_ROWS, MOST_RANKED = 2500, 1000
#: Small and quick, but long enough for the slower learner to be ahead if it is the better one.
WIDTH, DIM = 256, 400
SHORT = TrainingSettings(epochs=4, batch_size=64)
#: How much better AdamW must be to be chosen, since it takes longer and needs more memory.
MARGIN = 0.003


def first_layer(
    rows: Any,
    Y: sp.csr_matrix,
    learned: npt.NDArray[np.int64],
    evaluated: tuple[Any, sp.csr_matrix],
    settings: RunSettings,
    device: torch.device | None,
) -> Decision:
    """Try out both optimizers of the first layer.

    Parameters
    ----------
    rows, Y
        Scaled rows and their labels.
    learned : int64 ndarray
        The rows that may be trained on.
    evaluated : (rows, labels)
        Rows to rank labels of.
    settings : RunSettings
        Of the run that the trial is for; its seed determines the trial.
    device : torch.device or None
    """
    started = time.perf_counter()
    seed = settings.network.seed
    some = np.sort(np.random.default_rng([seed, 1]).permutation(learned)[:MOST_ROWS])
    X, labels = rows[some], Y[some]
    judged, right = evaluated[0][:MOST_RANKED], evaluated[1][:MOST_RANKED]
    found = {}
    for optimizer in ("sgd", "same"):
        network = Network(_small(settings.network), X.shape[1], labels.shape[1], sparse=True)
        training = replace(SHORT, first_layer=optimizer, optimizer=settings.training.optimizer)
        train(network, X, labels, training, device=device)
        ids, _ = top_k(Ensemble([network]), judged, 5)
        found[optimizer] = evaluate(right, ids, k=5, metrics=("nDCG",))["nDCG@5"]
    best = "same" if found["same"] > found["sgd"] + MARGIN else "sgd"
    shown = f"SGD {100 * found['sgd']:.1f}, {settings.training.optimizer} {100 * found['same']:.1f}"
    why = f"nDCG@5 of a trial on {len(some):,} rows, which took {time.perf_counter() - started:.1f} s: {shown}"
    return Decision("first_layer", best, why, tried=True)


def _small(network: NetworkSettings) -> NetworkSettings:
    """The settings of a small network of the same kind."""
    hidden = tuple(min(width, WIDTH) for width in network.hidden)
    return replace(network, hidden=hidden, dim=min(network.dim, DIM), dropout=0.0, slots=None)
