"""Binary cross-entropy over all labels whose scores are a Fourier series: loss and gradient in one pass.

In the order of the slots, a logit is a value of the series plus a bias, which is −∞ where a slot has no label.
Softplus and sigmoid of −∞ are 0, so values can stay in the order of the slots. The gradient with respect to a
logit is σ(logit), minus 1 for the labels of a document. Transforming it back to the frequencies gives the gradient
with respect to the prediction. On a CPU, a few rows at a time go through all this while they are in the cache, and
no (batch, labels) array ever exists.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from circlet.codebooks import fourier
from circlet.codebooks.base import Slots
from circlet.network.batch import LabelSets

__all__ = ["spectral_binary_loss"]

#: Logits at a time on a CPU: they, their spectrum and that of their gradient stay in its cache.
LOGITS = 1 << 19


def spectral_binary_loss(
    slots: Slots, output: Tensor, log_scale: Tensor, bias: Tensor, labels: LabelSets
) -> Tensor:
    """Sum over documents and labels of the cross-entropy of σ(similarity · e^log_scale + bias).

    Parameters
    ----------
    slots : Slots
        On the device of the other tensors.
    output : Tensor of shape (batch, 2 dim)
        Packed predictions.
    log_scale : Tensor of shape ()
    bias : Tensor of shape (n_labels,)
    labels : LabelSets
    """
    if output.dtype in (torch.float16, torch.bfloat16):
        output = output.float()
    loss: Tensor = _SpectralBinaryLoss.apply(output, log_scale, bias, slots, labels)  # type: ignore[no-untyped-call]
    return loss


class _SpectralBinaryLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, log_scale: Tensor, bias: Tensor, slots: Slots, labels: LabelSets
    ) -> Tensor:
        (frequencies, of_labels, length), dim = slots, output.shape[1] // 2
        scale = log_scale.exp()
        offsets = bias.new_full((length,), -math.inf).index_copy_(0, of_labels.long(), bias)
        # Similarities are means over the dimensions, and a real transform adds each coefficient's conjugate.
        coefficients = fourier.coefficients(output * (scale / (2 * dim)))
        places, weights = of_labels[labels.ids].long(), labels.weights
        loss, by_slot, gradient = output.new_zeros(()), torch.zeros_like(offsets), torch.empty_like(output)
        # Parts of equal size: a part of a few rows would cost nearly as much as a whole one.
        parts = 1 if output.is_cuda else math.ceil(len(output) * length / LOGITS)
        rows = max(1, math.ceil(len(output) / max(1, parts)))
        room = coefficients.new_zeros(min(rows, len(output)), length // 2 + 1)
        for start in range(0, len(output), rows):
            part = slice(start, min(start + rows, len(output)))
            here = slice(None) if rows >= len(output) else _labels_of_rows(labels, part)
            own = labels.documents[here] - start, places[here]
            weight = loss.new_ones(()) if weights is None else weights[here].to(loss.dtype)
            logits = fourier.evaluate(coefficients[part], frequencies, length, room).add_(offsets)
            loss -= (logits[own] * weight).sum()
            if output.is_cuda:
                loss += torch.nn.functional.softplus(logits).sum()
                by_logit = logits.sigmoid_()
            else:
                loss += logits.clamp(min=0).sum()
                by_logit = logits.sigmoid_()
                loss -= _sum_of_logs(by_logit)
            by_logit.index_put_(own, -weight, accumulate=True)
            by_slot += by_logit.sum(dim=0)
            gradient[part] = fourier.project(by_logit, frequencies)
        gradient *= scale / dim
        # The loss depends on the scale only through its product with the output.
        ctx.save_for_backward(gradient, (gradient * output).sum(), by_slot[of_labels.long()])
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradients[0] * own for own in ctx.saved_tensors), None, None


def _sum_of_logs(probabilities: Tensor) -> Tensor:
    """Sum of log max(p, 1 − p): what is missing from max(x, 0) to softplus(x) = log(1 + eˣ), if p = σ(x).

    The numbers lie between 1/2 and 1, so one logarithm does for the product of eight. On a CPU, a logarithm takes
    ten times as long as a product.
    """
    numbers = (probabilities - 0.5).abs_().add_(0.5).flatten()
    n = len(numbers) // 8
    products, rest = numbers[: 8 * n].view(8, n), numbers[8 * n :]
    for half in (4, 2, 1):
        products = products[:half] * products[half:]
    return products.log_().sum() + rest.log().sum()


def _labels_of_rows(labels: LabelSets, rows: slice) -> slice:
    first = int(labels.starts[rows.start])
    return slice(first, int(labels.starts[rows.stop]) if rows.stop < len(labels) else len(labels.ids))
