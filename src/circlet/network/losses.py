"""What is minimised, one small class each.

A loss takes the head's output and the batch's labels. Where all labels compete (`bce`, `softmax`), it turns
similarities, which lie in −1…1, into logits with a learned scale and, for `bce`, a learned bias per label.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from circlet.codebooks.base import Codebook, SpectralCodebook
from circlet.errors import ParameterError
from circlet.network.spectral_bce import spectral_binary_loss

__all__ = ["LOSSES", "LabelSets", "Loss", "make_loss"]


@dataclass(frozen=True)
class LabelSets:
    """The labels of a batch of documents, ragged: those of document i start at ``starts[i]``.

    `documents` names for each label the document it belongs to. `weights` are 0 for labels that only fill a set
    up to the size of the others, and 1 for the rest; None if there is nothing of that kind.
    """

    ids: Tensor
    starts: Tensor
    documents: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of a value for each label."""
        return values.sum() if self.weights is None else values @ self.weights

    def counts(self) -> Tensor:
        """Labels of each document, `(n,)`."""
        ones = torch.ones_like(self.ids, dtype=torch.float32) if self.weights is None else self.weights
        return ones.new_zeros(len(self)).index_add_(0, self.documents, ones)

    def to(self, device: torch.device) -> LabelSets:
        """The same labels on a device."""
        parts = (getattr(self, field.name) for field in fields(self))
        moved: list[Any] = [None if part is None else part.to(device, non_blocking=True) for part in parts]
        return LabelSets(*moved)


class Loss(nn.Module, ABC):
    """Takes the head's output `(batch, width)`; `codebook` is None where the output is scores already (`fc`)."""

    def __init__(self, codebook: Codebook | None, n_labels: int) -> None:
        super().__init__()
        self.codebook, self.n_labels = codebook, n_labels

    @abstractmethod
    def forward(self, output: Tensor, labels: LabelSets) -> Tensor:
        """Mean loss of the batch's documents."""

    def grow(self, n_labels: int) -> None:
        """Take more labels in."""
        if self.codebook is None:
            raise ParameterError("head fc has one output per label and can't take new labels: choose another head")
        self.codebook.grow(n_labels)
        self.n_labels = n_labels

    def start_from(self, counts: Tensor, n: int) -> None:
        """Begin with what label frequencies alone say: `counts` of each label in n documents."""

    def logits(self, output: Tensor) -> Tensor:
        """Scores of all labels by which they are ranked, `(batch, n_labels)`."""
        return output if self.codebook is None else self.codebook.scores(output)


class CosineLoss(Loss):
    """The paper's equation 4: Σ over a document's labels of 1 − similarity.

    By linearity it is |Y| − ⟨output, Σ codes⟩ / scale: one superposition per document, and nothing that depends on
    how many labels there are.
    """

    def forward(self, output: Tensor, labels: LabelSets) -> Tensor:
        assert self.codebook is not None
        target = self.codebook.superpose(labels.ids, labels.starts, labels.weights, check=False)
        # Packed phasors have norm √d, real vectors norm 1.
        scale = self.codebook.dim if self.codebook.width == 2 * self.codebook.dim else 1
        n_positives = len(labels.ids) if labels.weights is None else labels.weights.sum()
        return (n_positives - (output * target).sum() / scale) / max(len(labels), 1)


class BinaryLoss(Loss):
    """Binary cross-entropy of every label, summed over labels."""

    def __init__(self, codebook: Codebook | None, n_labels: int) -> None:
        super().__init__(codebook, n_labels)
        if codebook is not None:
            # Similarities of unrelated codes have deviation 1/√(2d): at first this is a logit of about 1.
            self.log_scale = nn.Parameter(torch.tensor(math.log(math.sqrt(2 * codebook.dim))))
            # One for each slot of a spectral codebook, so that labels to come have theirs.
            self.bias = nn.Parameter(torch.zeros(getattr(codebook, "length", n_labels)))

    def grow(self, n_labels: int) -> None:
        if self.codebook is not None and n_labels > len(self.bias):
            raise ParameterError(
                f"loss bce has a bias for {len(self.bias)} labels and can't take {n_labels}: "
                "train anew, or choose loss cosine or softmax"
            )
        super().grow(n_labels)

    def start_from(self, counts: Tensor, n: int) -> None:
        # Thousands of labels are false for each one that is true: learning that from zero takes epochs.
        if self.codebook is not None:
            with torch.no_grad():
                self.bias.fill_(math.log(0.5 / (n + 0.5)))
                self.bias[: len(counts)] = log_odds(counts, n)

    def forward(self, output: Tensor, labels: LabelSets) -> Tensor:
        if isinstance(self.codebook, SpectralCodebook):
            bias = self.bias[: self.n_labels]
            total = spectral_binary_loss(self.codebook, output, self.log_scale, bias, labels)
            return total / max(len(labels), 1)
        logits = self.logits(output)
        # −log σ(x) of a positive is softplus(x) − x, so targets need no (batch, labels) matrix.
        positive = logits[labels.documents, labels.ids]
        return (torch.nn.functional.softplus(logits).sum() - labels.sum(positive)) / max(len(labels), 1)

    def logits(self, output: Tensor) -> Tensor:
        scores = super().logits(output)
        if self.codebook is None:
            return scores
        return torch.addcmul(self.bias[: self.n_labels], scores, self.log_scale.exp())


class SoftmaxLoss(Loss):
    """Cross-entropy against the uniform distribution over a document's labels."""

    def __init__(self, codebook: Codebook | None, n_labels: int) -> None:
        super().__init__(codebook, n_labels)
        if codebook is not None:
            self.log_scale = nn.Parameter(torch.tensor(math.log(math.sqrt(2 * codebook.dim))))

    def forward(self, output: Tensor, labels: LabelSets) -> Tensor:
        logs = self.logits(output).log_softmax(dim=1)
        counts = labels.counts().clamp(min=1)
        return -labels.sum(logs[labels.documents, labels.ids] / counts[labels.documents]) / max(len(labels), 1)

    def logits(self, output: Tensor) -> Tensor:
        scores = super().logits(output)
        return scores if self.codebook is None else scores * self.log_scale.exp()


LOSSES: dict[str, type[Loss]] = {"cosine": CosineLoss, "bce": BinaryLoss, "softmax": SoftmaxLoss}


def log_odds(counts: Tensor, n: int) -> Tensor:
    """Logits of labels that so many of n documents have."""
    return ((counts + 0.5) / (n - counts + 0.5)).log()


def make_loss(name: str, codebook: Codebook | None, n_labels: int) -> Loss:
    """Make a loss by its name."""
    if name not in LOSSES:
        raise ParameterError(f"`loss` must be one of {', '.join(LOSSES)}, got {name!r}")
    if codebook is None and name == "cosine":
        raise ParameterError("loss cosine compares codes, and head fc has none: choose bce or softmax for fc")
    return LOSSES[name](codebook, n_labels)
