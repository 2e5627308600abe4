"""The losses: means over the documents of a batch, as functions of scorer, output and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from circlet import kernels
from circlet.network.batch import LabelSets
from circlet.network.scorer import Scorer
from circlet.network.spectral_bce import spectral_binary_loss
from circlet.network.table_bce import table_binary_loss
from circlet.settings.network import LOSSES as LEARNED

__all__ = ["LOSSES", "Loss", "binary_cross_entropy", "cosine", "softmax_cross_entropy"]


def cosine(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """The paper's equation 4: the sum of 1 − similarity over a document's labels.

    By linearity it is |Y| − scale · ⟨output, Σ codes⟩: one superposition per document, at a cost that does not
    depend on the number of labels.
    """
    book = scorer.codebook
    if book is None:
        raise TypeError("loss cosine compares codes, and this scorer has no codebook")
    target = book.superpose(labels.ids, labels.starts, labels.weights, check=False)
    n_positives = len(labels.ids) if labels.weights is None else labels.weights.sum()
    # Divided, because multiplying by the rounded book.scale would change the last digit.
    return (n_positives - (output * target).sum() / (1 / book.scale)) / max(len(labels), 1)


def binary_cross_entropy(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """Binary cross-entropy of every label, summed over labels."""
    book = scorer.codebook
    if book is not None and scorer.bias is not None and scorer.log_scale is not None:
        book.check_prediction(output)
        bias = scorer.bias[: scorer.n_labels]
        if book.cache and kernels.run_on(output.device):
            codes = book.half_table_on(output.device)
            total = table_binary_loss(codes, book.scale, output, scorer.log_scale, bias, labels)
            return total / max(len(labels), 1)
        slots = book.slots_on(output.device)
        if slots is not None:
            total = spectral_binary_loss(slots, output, scorer.log_scale, bias, labels)
            return total / max(len(labels), 1)
    logits = scorer.logits(output)
    # −log σ(x) of a document's label is softplus(x) − x, so targets need no (batch, labels) matrix.
    positive = logits[labels.documents, labels.ids]
    return (torch.nn.functional.softplus(logits).sum() - labels.sum(positive)) / max(len(labels), 1)


def softmax_cross_entropy(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """Cross-entropy against the uniform distribution over a document's labels."""
    logs = scorer.logits(output).log_softmax(dim=1)
    counts = labels.counts().clamp(min=1)
    return -labels.sum(logs[labels.documents, labels.ids] / counts[labels.documents]) / max(len(labels), 1)


class Loss(NamedTuple):
    """A loss function, and what it needs from the scorer."""

    function: Callable[[Scorer, Tensor, LabelSets], Tensor]
    #: Whether similarities are scaled before they compete.
    scaled: bool
    #: Whether each label has a bias.
    biased: bool


_FUNCTIONS = {"cosine": cosine, "bce": binary_cross_entropy, "softmax": softmax_cross_entropy}
LOSSES: dict[str, Loss] = {name: Loss(function, *LEARNED[name]) for name, function in _FUNCTIONS.items()}
