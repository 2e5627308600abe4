"""The losses: means over the documents of a batch, as functions of scorer, output and labels.

**Binary cross-entropy over all labels whose scores are a Fourier series** takes one pass for loss and gradient. In
the order of the slots, a logit is a value of the series plus a bias, which is −∞ where a slot has no label.
Softplus and sigmoid of −∞ are 0, so values can stay in the order of the slots. The gradient with respect to a
logit is σ(logit), minus 1 for the labels of a document. Transforming it back to the frequencies gives the gradient
with respect to the prediction. On a CPU, a few rows at a time go through all this while they are in the cache, and
no (batch, labels) array ever exists.

**On a GPU with a table of codes**, the same takes two matrix products in bfloat16. A GPU multiplies matrices so
fast that, up to some hundred thousand labels, two products with the codes take a fraction of the time of two
transforms, which move many more bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from circlet import kernels
from circlet.codebooks import fourier
from circlet.codebooks.base import Slots
from circlet.network.encoders import LabelSets
from circlet.scoring.scorers import Scorer
from circlet.settings.network import LOSSES as LEARNED

__all__ = [
    "LOSSES",
    "Loss",
    "absolute_cosine",
    "binary_cross_entropy",
    "cosine",
    "mean_binary_cross_entropy",
    "softmax_cross_entropy",
    "spectral_binary_loss",
    "table_binary_loss",
]


def cosine(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """The paper's equation 4: the sum of 1 − similarity over a document's labels.

    By linearity it is |Y| − scale · ⟨output, Σ codes⟩: one superposition per document, at a cost that does not
    depend on the number of labels.
    """
    book = scorer.codebook
    target = book.superpose(labels.ids, labels.starts, labels.weights, check=False)
    n_positives = len(labels.ids) if labels.weights is None else labels.weights.sum()
    # Divided, because multiplying by the rounded book.scale would change the last digit.
    found: Tensor = (n_positives - (output * target).sum() / (1 / book.scale)) / max(len(labels), 1)
    return found


def absolute_cosine(scorer: Scorer, output: Tensor, labels: LabelSets) -> Tensor:
    """The sum of 1 − |similarity| over a document's labels, as the authors' scripts have it.

    It is not linear, so the similarity of each label is needed, but still only of a document's own labels.
    """
    book = scorer.codebook
    codes = book.codes(labels.ids, check=False)
    similarities = (output[labels.documents] * codes).sum(dim=1) * book.scale
    return labels.sum(1 - similarities.abs()) / max(len(labels), 1)


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
