"""Kernels of decoding, against plain torch: on a GPU, or anywhere with TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet import kernels as _kernels
from circlet.codebooks import SpectralCodebook, fourier
from circlet.network import Scorer
from circlet.scoring import tensors

pytest.importorskip("triton", reason="there is no Triton here")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("there is no GPU here", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(_kernels, "run_on", lambda device: device.type == DEVICE)
    # Not the cache of a CPU.
    monkeypatch.setattr(tensors, "MEMORY", 1 << 30)


@pytest.fixture
def short_parts(monkeypatch):
    """Split transforms where they are short already."""
    monkeypatch.setattr(fourier, "LONGEST", 50)
    monkeypatch.setattr(fourier, "SHORTEST", 4)


def plain(book: SpectralCodebook, outputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return book.scores(outputs.double()).float()


def predictions(n: int, dim: int) -> torch.Tensor:
    return torch.randn(n, 2 * dim, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def check(book: SpectralCodebook, outputs: torch.Tensor, ids: torch.Tensor, scores: torch.Tensor) -> None:
    """The best of all labels, each once, in descending order, but for rounding."""
    every, k = plain(book, outputs), ids.shape[1]
    torch.testing.assert_close(scores, every.topk(k).values, atol=2e-6, rtol=0)
    torch.testing.assert_close(scores, every.gather(1, ids), atol=2e-6, rtol=0)
    assert (scores.diff(dim=1) <= 0).all()
    assert (ids.sort(dim=1).values.diff(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("n_labels", "dim", "length"),
    [
        (1, 3, None),  # fewer slots than anything is made for
        (50, 8, None),
        (400, 300, None),  # coefficients share places
        (3_000, 40, None),
        (9_000, 60, None),
        (9_000, 60, 2 * 5_003),  # a prime
        (2_000, 5, 2 * 1_024),
    ],
)
@pytest.mark.parametrize("k", [1, 10, 3_000])
def test_best_labels(n_labels, dim, length, k):
    book = SpectralCodebook(n_labels, dim, seed=1, length=length)
    outputs = predictions(9, dim)
    ids, scores = book.top_k(outputs, k)
    assert isinstance(book.series_on(outputs.device), fourier.PairedSeries)
    assert ids.shape == (9, min(k, n_labels))
    check(book, outputs, ids, scores)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(("n_labels", "dim"), [(1, 1), (400, 300), (1_111, 40), (3_000, 40)])
def test_short_transforms(n_labels, dim):
    book = SpectralCodebook(n_labels, dim)
    outputs = predictions(5, dim)
    check(book, outputs, *book.top_k(outputs, 7))
    assert n_labels < 1_000 or book.series_on(outputs.device).parts > 20


@pytest.mark.parametrize("n_labels", [300, 5_000])
@pytest.mark.parametrize("k", [1, 10, 70])
def test_equal_scores_go_by_id(n_labels, k):
    # Nothing is predicted: the bias ranks, of few different values, −0 among them.
    bias = np.random.default_rng(0).integers(-2, 3, n_labels).astype(np.float32)
    loss = Scorer(SpectralCodebook(n_labels, 16), n_labels, scaled=True, biased=True)
    for values in (bias, np.zeros_like(bias), np.where(bias > 0, 0.0, -0.0), np.where(bias > 1, np.inf, bias)):
        loss.bias.data[:n_labels] = torch.from_numpy(values)
        ids, scores = loss.to(DEVICE).top_k(torch.zeros(2, 32, device=DEVICE), k)
        expected = np.argsort(-values, kind="stable")[:k]
        np.testing.assert_array_equal(ids.cpu(), [expected, expected])
        np.testing.assert_array_equal(scores.cpu(), [values[expected]] * 2)


def test_masks():
    book = SpectralCodebook(2_000, 30)
    outputs = predictions(3, 30)
    every, values = book.top_k(outputs, 2_000)
    allowed = torch.arange(2_000) % 4 == 0
    ids, scores = book.top_k(outputs, 2_000, allowed=allowed)
    fourth = every % 4 == 0
    assert torch.equal(ids[:, :500], every[fourth].view(3, 500))
    assert torch.equal(scores[:, :500], values[fourth].view(3, 500))
    assert (ids[:, 500:] == -1).all()
    assert (book.top_k(outputs, 3, allowed=allowed & False)[0] == -1).all()


def test_same_whatever_the_batch():
    book = SpectralCodebook(3_000, 40)
    outputs = predictions(20, 40)
    ids, scores = book.top_k(outputs, 10)
    for size, memory in ((20, 1), (20, 300_000), (3, None), (1, None)):
        found = [book.top_k(some, 10, memory=memory) for some in torch.split(outputs, size)]
        check(book, outputs, *map(torch.cat, zip(*found, strict=True)))
        torch.testing.assert_close(torch.cat([close for _, close in found]), scores, atol=1e-6, rtol=0)
        # What differs from batch to batch are last digits.
        apart = (scores.diff(dim=1) < -1e-5).all(dim=1)
        assert apart.any()
        assert torch.equal(torch.cat([same for same, _ in found])[apart], ids[apart])


def test_more_labels_later():
    book = SpectralCodebook(20, 8, length=60)
    book.top_k(predictions(1, 8), 3)
    book.grow(50)
    assert book.top_k(book.codes(torch.tensor([44], device=DEVICE)), 1)[0].item() == 44


@pytest.mark.skipif(INTERPRETED, reason="there is no GPU here")
@pytest.mark.parametrize("k", [10, 1_000])
@pytest.mark.parametrize("scale", [0.0, 1.0])  # all scores equal, and hardly any
def test_the_budget_is_kept(k, scale):
    book = SpectralCodebook(300_000, 64)
    outputs, budget = predictions(256, 64) * scale, 1 << 27
    book.top_k(outputs[:1], k)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    book.top_k(outputs, k, memory=budget)
    assert budget // 4 < torch.cuda.max_memory_allocated() - before < budget + (8 << 20)


@pytest.mark.parametrize(("rows", "labels", "width"), [(1, 1, 2), (5, 130, 70), (200, 300, 130)])
def test_the_binary_loss_and_its_gradients_are_torchs(rows, labels, width):
    from circlet.kernels.triton import binary_loss

    generator = torch.Generator().manual_seed(rows)
    # Triton's interpreter has no products of bfloat16.
    kind = torch.float32 if INTERPRETED else torch.bfloat16
    outputs, codes = (torch.randn(n, width, generator=generator).to(DEVICE, kind) for n in (rows, labels))
    bias = torch.randn(labels, generator=generator).to(DEVICE)
    true = (torch.rand(rows, labels, generator=generator) < 0.05).to(DEVICE)
    documents, ids = true.nonzero(as_tuple=True)
    # The last label of each set once more, with weight 0, as if to fill the set up.
    weights = torch.cat([torch.ones(len(ids)), torch.zeros(len(ids))]).to(DEVICE)
    factor = torch.tensor(0.7, device=DEVICE)
    padded = torch.cat([codes, torch.zeros_like(codes[:1])])
    found = binary_loss(outputs, padded, factor, bias, ids.repeat(2), documents.repeat(2), weights)
    assert not found.by_logit[:, labels:].any()
    scores = (0.7 * outputs.double() @ codes.double().T).requires_grad_()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores + bias, true.double(), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(found.value.double(), loss.detach(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found.by_logit[:, :labels].double(), gradient, rtol=0.01, atol=1e-5)
    torch.testing.assert_close(found.by_label.double(), gradient.sum(dim=0), rtol=1e-4, atol=1e-3)
    expected = (gradient * scores).sum().detach()
    torch.testing.assert_close(found.by_log_factor.double(), expected, rtol=1e-4, atol=1e-3)


def test_the_documents_of_one_document_may_be_one_number_expanded():
    from circlet.kernels.triton import binary_loss

    one, codes, ids = (
        torch.ones(1, 8, device=DEVICE),
        torch.ones(4, 8, device=DEVICE),
        torch.arange(3, device=DEVICE),
    )
    rest = torch.ones((), device=DEVICE), torch.zeros(4, device=DEVICE), ids
    expanded = torch.zeros(1, dtype=torch.int64, device=DEVICE).expand(3)
    found, expected = (
        binary_loss(one, codes, *rest, documents, torch.ones(3, device=DEVICE))
        for documents in (expanded, torch.zeros_like(ids))
    )
    torch.testing.assert_close(found, expected)


def test_rows_of_a_sparse_matrix_are_written_out():
    from circlet.kernels.triton import write_rows

    numbers = np.random.default_rng(0).normal(size=(20, 700)) * (np.arange(700) % 2)
    numbers[3] = 0
    matrix = sp.csr_matrix(numbers.astype(np.float32))
    rows = torch.tensor([3, 19, 0, 7, 3], device=DEVICE)
    counts = np.diff(matrix.indptr)
    parts = [matrix.indptr[:-1].astype(np.int64), counts.astype(np.int64), matrix.indices.astype(np.int64)]
    starts, counted, columns = (torch.from_numpy(part).to(DEVICE) for part in parts)
    values = torch.from_numpy(matrix.data).to(DEVICE)
    dense = torch.zeros(len(rows), 700, device=DEVICE)
    found = write_rows(rows, starts, counted, columns, values, int(counts.max()), dense)
    np.testing.assert_array_equal(found.cpu().numpy(), matrix.toarray()[rows.cpu().numpy()])
