"""How good a network is on rows that it does not learn from."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from circlet.metrics import evaluate
from circlet.network import Network
from circlet.network.inference import mean_loss, top_k
from circlet.settings.training import LEAST_LOSS

__all__ = ["VALIDATION_LOSS", "measured", "watched", "worth"]

#: The name of the loss on held-out rows, in the records of epochs, which have the loss in training too.
VALIDATION_LOSS = "validation_loss"


def watched(metric: str) -> str:
    """The name that a metric of the settings has in the records of epochs."""
    return VALIDATION_LOSS if metric == LEAST_LOSS else metric


def worth(metric: str, value: float) -> float:
    """A measured value, turned so that the highest is the best."""
    return -value if metric == LEAST_LOSS else value


def measured(network: Network, X: Any, Y: sp.csr_matrix, metric: str) -> dict[str, float]:
    """A metric of scaled rows with these labels, by the name that it has in records."""
    if metric == LEAST_LOSS:
        return {VALIDATION_LOSS: mean_loss(network, X, Y)}
    name, _, depth = metric.partition("@")
    ids, _ = top_k(network, X, int(depth))
    return evaluate(Y, ids, k=int(depth), metrics=(name,))
