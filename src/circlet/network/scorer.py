"""From a head's output to the scores of all labels, and to the best of them.

Similarities lie between −1 and 1. If all labels compete in the loss, a learned scale and, for binary
cross-entropy, a learned bias per label turn them into logits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from circlet.codebooks import Codebook, decoding
from circlet.errors import ParameterError
from circlet.scoring import ranking, tensors

__all__ = ["Scorer", "log_odds"]


class Scorer(nn.Module):
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

    def logits(self, output: Tensor) -> Tensor:
        """The scores that labels are ranked by, `(batch, n_labels)`."""
        if self.codebook is None:
            return output
        scores = self.codebook.scores(output)
        if self.absolute:
            return scores.abs()
        if self.log_scale is None:
            return scores
        if self.bias is None:
            return scores * self.log_scale.exp()
        return torch.addcmul(self.bias[: self.n_labels], scores, self.log_scale.exp())

    @torch.no_grad()
    def top_k(
        self,
        output: Tensor,
        k: int,
        *,
        offsets: Tensor | None = None,
        memory: int | None = None,
        allowed: Tensor | None = None,
        threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Ids and scores of the k best labels of each output; see `circlet.codebooks.decoding.top_k`.

        `offsets`, `(n_labels,)`, are added to the scores.
        """
        if self.codebook is None:
            logits = self.logits if offsets is None else lambda part: self.logits(part) + offsets
            row_bytes = decoding.PER_SCORE * self.n_labels
            return decoding.top_k(
                lambda k, budget: decoding.of_rows(logits, output, row_bytes, allowed, k, budget),
                output,
                self.n_labels,
                k,
                memory=memory,
                allowed=allowed,
                threshold=threshold,
            )
        scale = 1.0 if self.log_scale is None else float(self.log_scale.exp())
        bias = None if self.bias is None else self.bias[: self.n_labels].float()
        if offsets is not None:
            bias = offsets if bias is None else bias + offsets
        options: dict[str, Any] = {"bias": bias, "memory": memory, "allowed": allowed, "threshold": threshold}
        found = self.codebook.top_k(output.float() * scale, k, **options)
        if not self.absolute:
            return found
        # |s| is the larger of s and −s, so the k best by |s| are among the k best of either sign.
        negated = self.codebook.top_k(output.float() * -scale, k, **options)
        best: tuple[Tensor, Tensor] = ranking.larger(tensors, found, negated)
        return best

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
