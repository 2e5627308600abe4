"""Kernels of decoding, against plain torch: on a GPU, or anywhere with TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from circlet import kernels as _kernels
from circlet.codebooks import SpectralCodebook, fourier
from circlet.codebooks import decoding as decode
from circlet.network.scorer import Scorer

pytest.importorskip("triton", reason="there is no Triton here")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("there is no GPU here", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(_kernels, "run_on", lambda device: device.type == DEVICE)
    # Not the cache of a CPU.
    monkeypatch.setattr(decode, "MEMORY", 1 << 30)


@pytest.fixture
def short_parts(monkeypatch):
    """Split transforms where they are short already."""
    monkeypatch.setattr(fourier, "LONGEST_PAIR", 50)
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
