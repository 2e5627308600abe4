"""The loss with a table of codes against torch's own; the kernel itself is tested in tests/kernels."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from circlet import kernels
from circlet.codebooks import CODEBOOKS
from circlet.network.batch import LabelSets, label_sets
from circlet.network.losses import binary_cross_entropy, table_binary_loss
from circlet.network.scorer import Scorer

N, DIM = 9, 6
TRUE = torch.tensor([[0, 0, 0, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0, 1], [0] * 9], dtype=torch.float32)


def binary_loss(outputs, codes, factor, bias, ids, documents, weights):
    """What the kernel computes, in plain torch and without rounding."""
    scores = factor.double() * (outputs.double() @ codes[: len(bias)].double().T)
    logits = scores + bias
    by_logit = logits.sigmoid().index_put((documents, ids), -weights.double(), accumulate=True)
    loss = softplus(logits).sum() - (logits[documents, ids] * weights).sum()
    return SimpleNamespace(
        value=loss.float(),
        by_logit=torch.nn.functional.pad(by_logit, (0, len(codes) - len(bias))).bfloat16(),
        by_label=by_logit.sum(dim=0).float(),
        by_log_factor=(by_logit * scores).sum().float(),
    )


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    monkeypatch.setitem(sys.modules, "circlet.kernels.triton", SimpleNamespace(binary_loss=binary_loss))


def scorer_of(kind: str) -> tuple[Scorer, torch.Tensor]:
    book = CODEBOOKS[kind](N, DIM, seed=1)
    scorer = Scorer(book, N, scaled=True, biased=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        scorer.bias[:N] = torch.randn(N, generator=generator)
    output = (
        torch.nn.functional.normalize(torch.randn(3, book.width, generator=generator), dim=1) / book.scale**0.5
    )
    return scorer, output.requires_grad_()


@pytest.mark.parametrize("kind", sorted(CODEBOOKS))
def test_loss_and_gradients_are_torchs_up_to_the_rounding_of_bfloat16(kind, monkeypatch):
    scorer, output = scorer_of(kind)
    expected = binary_cross_entropy_with_logits(scorer.logits(output), TRUE, reduction="sum") / len(TRUE)
    scorer.codebook.cache = True
    monkeypatch.setattr(kernels, "run_on", lambda device: True)
    found = binary_cross_entropy(scorer, output, label_sets(sp.csr_matrix(TRUE.numpy())))
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0)
    parts = [output, scorer.log_scale, scorer.bias]
    for one, other in zip(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.01)


def test_labels_that_only_fill_sets_up_do_not_count():
    scorer, output = scorer_of("spectral")
    codes = scorer.codebook.half_table_on(torch.device("cpu"))
    bias = scorer.bias[:N]
    filled = LabelSets(
        *(torch.tensor(part) for part in ([0, 8, 3, 5], [0, 2], [0, 0, 1, 1])),
        weights=torch.tensor([1.0, 1, 1, 0]),
    )
    plain = label_sets(sp.csr_matrix(([1.0, 1, 1], ([0, 0, 1], [0, 8, 3])), shape=(2, N)))
    losses = [
        table_binary_loss(codes, scorer.codebook.scale, output[:2], scorer.log_scale, bias, sets)
        for sets in (filled, plain)
    ]
    torch.testing.assert_close(*losses)


def test_a_table_is_kept_until_the_codebook_grows():
    book = CODEBOOKS["spectral"](N, DIM, seed=1)
    device = torch.device("cpu")
    table = book.half_table_on(device)
    assert table is book.half_table_on(device)
    assert table.shape == (16, book.width)
    assert not table[N:].any()
    torch.testing.assert_close(table[:N].float(), book.codes(torch.arange(N)), rtol=0.01, atol=0.01)
    book.grow(N + 1)
    assert book.half_table_on(device)[N].any()
