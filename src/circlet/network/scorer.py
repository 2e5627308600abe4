"""The scorer as a module that learns scale and bias; `circlet.scoring.scorers` says what the scores are.

Similarities lie between −1 and 1. If all labels compete in the loss, a learned scale and, for binary
cross-entropy, a learned bias per label turn them into logits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from circlet.codebooks import Codebook
from circlet.errors import ParameterError
from circlet.scoring import scorers

__all__ = ["Scorer", "log_odds"]


class Scorer(nn.Module, scorers.Scorer):
    """Scores labels: scale · similarity + bias, or the output itself for head `fc`, which has no codes.

    Parameters
    ----------
    codebook : Codebook or None
        None if outputs are scores already.
    n_labels : int
    scaled : bool
        Whether there is a learned scale. Without a codebook there is neither scale nor bias: the head has its own.
    biased : bool
        Whether there is a learned bias per label.
    absolute : bool
        Whether similarities lose their sign.
    """

    codebook: Codebook | None

    def __init__(
        self, codebook: Codebook | None, n_labels: int, *, scaled: bool, biased: bool, absolute: bool = False
    ) -> None:
        super().__init__()
        self.codebook, self.n_labels, self.absolute = codebook, n_labels, absolute
        self.log_scale: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if codebook is not None and scaled:
            # Similarities of unrelated codes have deviation 1/√(2d), so at first this gives logits of about 1.
            self.log_scale = nn.Parameter(torch.tensor(math.log(math.sqrt(2 * codebook.dim))))
        if codebook is not None and biased:
            # If the codebook has a capacity, labels that may be added later already have their biases.
            self.bias = nn.Parameter(torch.zeros(codebook.capacity or n_labels))

    @property
    def scale(self) -> Any:
        """What similarities are multiplied by."""
        return 1.0 if self.log_scale is None else self.log_scale.exp()

    top_k = torch.no_grad()(scorers.Scorer.top_k)

    def _biases(self, offsets: Tensor | None) -> Tensor | None:
        bias = None if self.bias is None else self.bias[: self.n_labels].float()
        return offsets if bias is None else bias if offsets is None else bias + offsets

    def start_from(self, counts: Tensor, n: int) -> None:
        """Initialize biases from label frequencies: `counts` has how many of n documents have each label."""
        # For each label that is true, thousands are false: learning that from zero biases takes epochs.
        if self.bias is not None:
            with torch.no_grad():
                self.bias.fill_(math.log(0.5 / (n + 0.5)))
                self.bias[: len(counts)] = log_odds(counts, n)

    def grow(self, n_labels: int) -> None:
        """Add labels; no weight changes its shape, and the scores of the old labels stay the same."""
        if self.codebook is None:
            raise ParameterError("head fc has one output per label and can't take new labels: choose another head")
        if self.bias is not None and n_labels > len(self.bias):
            raise ParameterError(
                f"loss bce has a bias for {len(self.bias)} labels and can't take {n_labels}: "
                "train a new model, or choose loss cosine or softmax"
            )
        self.codebook.grow(n_labels)
        self.n_labels = n_labels


def log_odds(counts: Tensor, n: int) -> Tensor:
    """Smoothed log-odds of labels that occur in `counts` of n documents."""
    return ((counts + 0.5) / (n - counts + 0.5)).log()
