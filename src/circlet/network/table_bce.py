"""Binary cross-entropy over all labels on a GPU, with a table of their codes: two matrix products in bfloat16.

A GPU multiplies matrices so fast that, up to some hundred thousand labels, two products with the codes take a
fraction of the time of two transforms, which move many more bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from circlet.network.batch import LabelSets

__all__ = ["table_binary_loss"]


def table_binary_loss(
    codes: Tensor, scale: float, output: Tensor, log_scale: Tensor, bias: Tensor, labels: LabelSets
) -> Tensor:
    """Sum over documents and labels of the cross-entropy of σ(similarity · e^log_scale + bias).

    Parameters
    ----------
    codes : Tensor of shape (at least n_labels, width), bfloat16
        As `Codebook.half_table_on` has them.
    scale : float
        The factor that turns the inner product of a prediction and a code into a similarity.
    output : Tensor of shape (batch, width)
        Predictions.
    log_scale : Tensor of shape ()
    bias : Tensor of shape (n_labels,)
    labels : LabelSets
    """
    loss: Tensor = _TableBinaryLoss.apply(output, log_scale, bias, codes, scale, labels)  # type: ignore[no-untyped-call]
    return loss


class _TableBinaryLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, log_scale: Tensor, bias: Tensor, codes: Tensor, scale: float, labels: LabelSets
    ) -> Tensor:
        from circlet.kernels.triton import binary_loss

        factor = log_scale.exp() * scale
        weights = torch.ones_like(labels.ids, dtype=torch.float32) if labels.weights is None else labels.weights
        found = binary_loss(
            output.bfloat16(), codes, factor, bias.contiguous(), labels.ids, labels.documents, weights
        )
        ctx.save_for_backward(torch.mm(found.by_logit, codes), factor, found.by_log_factor, found.by_label)
        return found.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_code, factor, by_log_factor, by_label = ctx.saved_tensors
        (own,) = gradients
        return by_code.float().mul_(own * factor), own * by_log_factor, own * by_label, None, None, None
