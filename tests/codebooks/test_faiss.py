from __future__ import annotations

import sys

import pytest
import torch

from circlet.algebra import circular
from circlet.codebooks.base import HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.codebooks.decoding import top_k
from circlet.codebooks.faiss import FaissIndex, recall
from circlet.errors import MissingExtraError, ParameterError, ShapeError
from circlet.network.losses import make_loss

L, DIM = 600, 32
BOOKS = (SpectralCodebook, IndependentCodebook, HolographicCodebook)


def superposed(book, n: int = 40) -> torch.Tensor:
    """Predictions such as a network makes: of three labels each."""
    ids = torch.randint(book.n_labels, (3 * n,), generator=torch.Generator().manual_seed(0))
    sums = book.superpose(ids, torch.arange(0, 3 * n, 3))
    if isinstance(book, HolographicCodebook):
        return torch.nn.functional.normalize(sums, dim=1)
    return circular.pack(circular.unpack(sums))


def a_loss(name: str, book):
    loss = make_loss(name, book, book.n_labels)
    if name == "bce":
        loss.bias.data.normal_(generator=torch.Generator().manual_seed(1))
    return loss


class TestIndex:
    @pytest.fixture(autouse=True)
    def _faiss(self):
        pytest.importorskip("faiss", reason="the extra faiss is not installed")

    @pytest.mark.parametrize("make", [*BOOKS, lambda n, d: HolographicCodebook(n, d, projected=False)])
    @pytest.mark.parametrize("name", ["cosine", "softmax", "bce"])
    def test_flat_is_exact(self, make, name):
        loss = a_loss(name, make(L, DIM))
        outputs = superposed(loss.codebook)
        ids, scores = FaissIndex(loss).top_k(outputs, 5)
        exact, close = top_k(loss, outputs, L, 5)
        assert torch.equal(ids, exact)
        torch.testing.assert_close(scores, close, atol=1e-4, rtol=1e-4)

    def test_of_a_codebook(self):
        book = SpectralCodebook(L, DIM)
        ids, scores = FaissIndex(book).top_k(book.codes(torch.tensor([7, 599])), 1)
        assert ids.tolist() == [[7], [599]]
        torch.testing.assert_close(scores, torch.ones(2, 1))

    @pytest.mark.parametrize("kind", ["hnsw", "ivf"])
    @pytest.mark.parametrize("name", ["cosine", "bce"])
    def test_approximate_kinds_find_most_with_enough_effort(self, kind, name):
        loss = a_loss(name, IndependentCodebook(L, DIM))
        outputs = superposed(loss.codebook)
        exact, _ = top_k(loss, outputs, L, 5)
        index = FaissIndex(loss, kind, effort=400)
        ids, scores = index.top_k(outputs, 5)
        assert recall(ids, exact) > 0.9
        assert (scores.diff(dim=1) <= 0).all()

    def test_less_effort_finds_less(self):
        book = IndependentCodebook(L, DIM)
        exact, _ = top_k(book, superposed(book), L, 5)
        found = [
            recall(FaissIndex(book, "ivf", effort=n).top_k(superposed(book), 5)[0], exact) for n in (2, 8, 15)
        ]
        assert found == sorted(found)
        assert found[0] < found[-1] == 1

    def test_what_is_not_found_is_no_label(self):
        book = IndependentCodebook(200, DIM)
        ids, scores = FaissIndex(book, "ivf", effort=2).top_k(superposed(book), 200)
        assert (ids == -1).any()
        assert torch.equal(scores == -torch.inf, ids == -1)
        assert (ids[:, 0] >= 0).all()

    @pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
    def test_edges(self, kind):
        book = SpectralCodebook(1, 4)
        index = FaissIndex(book, kind)
        assert index.top_k(book.codes(torch.tensor([0])), 9)[0].tolist() == [[0]]
        ids, scores = index.top_k(torch.zeros(0, 8), 9)
        assert ids.shape == scores.shape == (0, 1)

    def test_equal_scores_by_id(self):
        ids, _ = FaissIndex(IndependentCodebook(4, 3)).top_k(torch.zeros(1, 6), 4)
        assert ids.tolist() == [[0, 1, 2, 3]]

    def test_mistakes(self):
        index = FaissIndex(SpectralCodebook(20, 4))
        with pytest.raises(ShapeError, match=r"outputs must have shape \(batch, 8\), got \(2, 3\)"):
            index.top_k(torch.zeros(2, 3), 1)
        with pytest.raises(ParameterError, match="`k` must be a whole number >= 1, got 0"):
            index.top_k(torch.zeros(2, 8), 0)


class TestMistakes:
    def test_kind(self):
        with pytest.raises(ParameterError, match="`kind` must be one of flat, hnsw, ivf, got 'tree'"):
            FaissIndex(SpectralCodebook(20, 4), "tree")

    @pytest.mark.parametrize("name", ["links", "effort"])
    def test_numbers(self, name):
        with pytest.raises(ParameterError, match=f"`{name}` must be a whole number >= 2, got 0"):
            FaissIndex(SpectralCodebook(20, 4), "hnsw", **{name: 0})

    def test_a_head_without_codes(self):
        with pytest.raises(ParameterError, match="head fc has no codes to search"):
            FaissIndex(make_loss("bce", None, 20))

    def test_without_faiss(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(
            MissingExtraError, match=r"needs faiss, which is not installed: pip install 'circlet\[faiss\]'"
        ):
            FaissIndex(SpectralCodebook(20, 4))


class TestRecall:
    def test_by_hand(self):
        found = torch.tensor([[4, 2, -1], [0, 1, 2]])
        assert recall(found, torch.tensor([[2, 3, 4], [2, 1, 0]])) == pytest.approx(5 / 6)

    def test_missing_labels_are_not_asked_for(self):
        assert recall(torch.tensor([[4, -1]]), torch.tensor([[4, -1]])) == 1
        assert recall(torch.zeros(0, 2), torch.zeros(0, 2)) == 1

    def test_rows_must_fit(self):
        with pytest.raises(ShapeError, match="found has 1 rows and exact 2; wanted as many"):
            recall(torch.zeros(1, 2), torch.zeros(2, 2))
