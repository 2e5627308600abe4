"""The losses: means over the documents of a batch, as functions of scorer, output and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from circlet import kernels
from circlet.codebooks import Codebook
from circlet.network.batch import LabelSets
from circlet.network.scorer import Scorer
from circlet.network.spectral_bce import spectral_binary_loss
from circlet.network.table_bce import table_binary_loss
from circlet.settings.network import LOSSES as LEARNED

__all__ = [
    "LOSSES",
    "Loss",
    "absolute_cosine",
    "binary_cross_entropy",
    "cosine",
    "mean_binary_cross_entropy",
    "softmax_cross_entropy",
]


def cosine(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """The paper's equation 4: the sum of 1 − similarity over a document's labels.

    By linearity it is |Y| − scale · ⟨output, Σ codes⟩: one superposition per document, at a cost that does not
    depend on the number of labels.
    """
    book = _codebook(scorer)
    target = book.superpose(labels.ids, labels.starts, labels.weights, check=False)
    n_positives = len(labels.ids) if labels.weights is None else labels.weights.sum()
    # Divided, because multiplying by the rounded book.scale would change the last digit.
    return (n_positives - (output * target).sum() / (1 / book.scale)) / max(len(labels), 1)


def absolute_cosine(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """The sum of 1 − |similarity| over a document's labels, as the authors' scripts have it.

    It is not linear, so the similarity of each label is needed, but still only of a document's own labels.
    """
    book = _codebook(scorer)
    codes = book.codes(labels.ids, check=False)
    similarities = (output[labels.documents] * codes).sum(dim=1) * book.scale
    return labels.sum(1 - similarities.abs()) / max(len(labels), 1)


def _codebook(scorer: Scorer) -> Codebook:
    if scorer.codebook is None:
        raise TypeError("this loss compares codes, and this scorer has no codebook")
    return scorer.codebook


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


def mean_binary_cross_entropy(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """Binary cross-entropy of every label, averaged over labels, as torch does it by default."""
    return binary_cross_entropy(scorer, output, labels) / scorer.n_labels


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


_FUNCTIONS = {
    "cosine": cosine,
    "absolute-cosine": absolute_cosine,
    "bce": binary_cross_entropy,
    "mean-bce": mean_binary_cross_entropy,
    "softmax": softmax_cross_entropy,
}
LOSSES: dict[str, Loss] = {name: Loss(function, *LEARNED[name]) for name, function in _FUNCTIONS.items()}
