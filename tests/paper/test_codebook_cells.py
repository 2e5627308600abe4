"""The cells of the experiment on codebooks, in small cases."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.algebra import circular
from circlet.codebooks import IndependentCodebook, SpectralCodebook
from circlet_paper import codebook_cells, codebooks
from circlet_paper.cells import Workplace
from circlet_paper.codebook_cells import (
    N_LABELS,
    SETS,
    STORED,
    CapacityCell,
    InOrder,
    ScoringCell,
    capacity_books,
    kept_bytes,
    label_sets,
    retrieved,
    scoring_books,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestCapacity:
    @settings(max_examples=25)
    @given(st.sampled_from(list(SETS)), st.sampled_from(STORED), st.integers(0, 1000))
    def test_sets_are_different_labels_with_their_step(self, kind, k, seed):
        sets = label_sets(kind, 3, k, seeded(seed))
        assert sets.shape == (3, k)
        assert int(sets.min()) >= 0
        assert int(sets.max()) < N_LABELS
        assert all(len(set(row)) == k for row in sets.tolist())
        if SETS[kind] is not None:
            assert (sets.diff() == SETS[kind]).all()

    def test_slots_in_order_by_the_algebra(self):
        book = InOrder(20, 5, seed=3, length=24)
        ids = torch.tensor([0, 1, 19])
        angles = 2 * math.pi * ids[:, None] * book.frequencies / 24
        torch.testing.assert_close(book.codes(ids), circular.pack(angles), atol=1e-5, rtol=0)
        # Codes are powers of the first label's code: binding goes from one id to the next.
        codes = circular.unpack(book.codes(torch.arange(20)))
        stepped = circular.bind(codes[:-1], codes[1:2])
        torch.testing.assert_close(circular.similarity(stepped, codes[1:]), torch.ones(19))
        # Scores are one series, read in the order of the ids.
        spectrum = torch.zeros(1, 13, dtype=torch.complex64)
        spectrum[0, book.frequencies] = torch.polar(torch.ones(5), -codes[7]) / 10
        series = torch.fft.irfft(spectrum, n=24, norm="forward")[:, :20]
        torch.testing.assert_close(book.scores(book.codes(torch.tensor([7]))), series, atol=1e-5, rtol=0)

    def test_every_codebook_retrieves_one_label(self):
        sets = torch.arange(30)[:, None]
        for name, book in capacity_books(64, seed=1).items():
            assert book.n_labels == N_LABELS
            assert retrieved(book, sets, seeded()) == 100, name

    def test_retrieved_by_hand(self):
        class Fixed(IndependentCodebook):
            """Known scores: the lower the id, the higher the score."""

            def scores(self, predicted):
                return -torch.arange(10.0).expand(len(predicted), -1)

        sets = torch.tensor([[0, 1], [1, 2], [8, 9]])
        # Both labels of the first set, one of the second, none of the third.
        assert retrieved(Fixed(10, 4), sets, seeded()) == pytest.approx(50)

    def test_ties_are_broken_at_random(self):
        class Flat(IndependentCodebook):
            def scores(self, predicted):
                return torch.zeros(len(predicted), 10)

        sets = torch.tensor([[0, 1]]).expand(2000, -1)
        assert retrieved(Flat(10, 4), sets, seeded()) == pytest.approx(20, abs=3)

    def test_spectral_lengths(self):
        for dim, least in ((128, 1000), (512, 1026)):
            books = capacity_books(dim, seed=0).items()
            lengths = {name: book.length for name, book in books if isinstance(book, SpectralCodebook)}
            assert lengths["spectral"] == lengths["in-order"] == least
            assert lengths["spectral-4n"] == 4000
            assert lengths["spectral-16d"] == 16 * dim
            assert lengths["spectral-default"] > 1026

    def test_cell_repeats_and_shows_what_is_claimed(self):
        cell = CapacityCell(128, seed=0, books=2, trials=10)
        found = cell.measure(Workplace(), None)
        assert found == cell.measure(Workplace(), None)
        assert found != CapacityCell(128, seed=1, books=2, trials=10).measure(Workplace(), None)
        assert cell.missing(Workplace()) is None
        share = found["retrieved"]
        assert share["spectral"]["random ids"]["25"] > share["independent"]["random ids"]["25"] + 3
        assert share["two-phase"]["random ids"]["25"] < share["independent"]["random ids"]["25"] - 15
        assert share["in-order"]["consecutive ids"]["25"] < share["spectral"]["consecutive ids"]["25"] - 20
        assert json.loads(json.dumps(found)) == found


class TestScoring:
    def test_bytes(self):
        books = scoring_books(100, 8, seed=0)
        assert kept_bytes(books["spectral"]) == 8 * 8 + 4 * 100
        assert kept_bytes(books["table"]) == 100 * 16 * 4
        assert kept_bytes(books["four-phase"]) == 0
        books["table"].codes(torch.tensor([0]))
        assert books["table"]._table.nbytes == kept_bytes(books["table"])

    def test_too_large_a_table_is_left_out(self, monkeypatch):
        monkeypatch.setattr(codebook_cells, "TABLE_BYTES", 100 * 16 * 4 - 1)
        assert "table" not in scoring_books(100, 8, seed=0)
        assert "table" in scoring_books(99, 8, seed=0)

    def test_cell(self, monkeypatch):
        monkeypatch.setattr(codebook_cells, "ENOUGH_SECONDS", 0.0)
        monkeypatch.setattr(codebook_cells, "TURN_SECONDS", 1e-6)
        found = ScoringCell((50, 200), dim=16).measure(Workplace(device="cuda"), None)
        assert found["device"] == "cpu"  # even if another device is asked for
        for n in ("50", "200"):
            assert set(found["sizes"][n]) == set(codebooks.SCORING)
            assert all(way["milliseconds"] > 0 and way["rounds"] == 3 for way in found["sizes"][n].values())
        assert found["sizes"]["50"]["spectral"]["definition_bytes"] < 100
