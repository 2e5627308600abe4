"""How good a network is on rows that it does not learn from."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch

from circlet.metrics import evaluate
from circlet.network import Ensemble, Network
from circlet.network.batch import label_sets
from circlet.network.ensemble import outputs_of, top_k
from circlet.settings.training import LEAST_LOSS
from circlet.training.distributed import ALONE, World

__all__ = ["VALIDATION_LOSS", "mean_loss", "measured", "watched", "worth"]

#: The name of the loss on held-out rows, in the records of epochs, which have the loss in training too.
VALIDATION_LOSS = "validation_loss"


def watched(metric: str) -> str:
    """The name that a metric of the settings has in the records of epochs."""
    return VALIDATION_LOSS if metric == LEAST_LOSS else metric


def worth(metric: str, value: float) -> float:
    """A measured value, turned so that the highest is the best."""
    return -value if metric == LEAST_LOSS else value


def measured(network: Network, X: Any, Y: sp.csr_matrix, metric: str, world: World = ALONE) -> dict[str, float]:
    """A metric of scaled rows with these labels, by the name that it has in records.

    Of several processes, each takes its share of the rows, and all get the same result.
    """
    share = world.share(X.shape[0])
    own = X if world.size == 1 else X[share.rows]
    if metric == LEAST_LOSS:
        labels = Y if world.size == 1 else Y[share.rows]
        (total,) = world.sum(mean_loss(network, own, labels) * share.weight)
        return {VALIDATION_LOSS: total}
    name, _, depth = metric.partition("@")
    ids = torch.from_numpy(top_k(Ensemble([network]), own, int(depth))[0])
    everything = torch.cat(world.gather(ids if share.weight else ids[:0]))
    return evaluate(Y, everything.numpy(), k=int(depth), metrics=(name,))


def mean_loss(network: Network, X: Any, Y: sp.csr_matrix) -> float:
    """The mean loss of rows with these labels."""
    total, start = 0.0, 0
    for output in outputs_of(Ensemble([network]), X):
        labels = label_sets(Y[start : start + len(output)]).to(network.device)
        start += len(output)
        with torch.no_grad():
            total += float(network.loss(output, labels)) * len(labels)
    return total / max(int(X.shape[0]), 1)
