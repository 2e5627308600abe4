"""The experiment on codebooks: its cells in small cases, and its pages from made-up numbers."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import circlet_paper
from circlet.algebra import circular
from circlet.cli import app
from circlet.codebooks import IndependentCodebook, SpectralCodebook
from circlet_paper import codebooks, table, training_cells
from circlet_paper.cells import Workplace
from circlet_paper.codebooks import (
    FOUR,
    INDEPENDENT,
    N_LABELS,
    SETS,
    SLOTS,
    SPECTRAL,
    STORED,
    TWO,
    CapacityCell,
    InOrder,
    ScoringCell,
    Settings,
    capacity_books,
    kept_bytes,
    label_sets,
    retrieved,
    scoring_books,
)


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
        angles = 2 * math.pi * ids[:, None] * torch.from_numpy(book.frequencies) / 24
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
        monkeypatch.setattr(codebooks, "TABLE_BYTES", 100 * 16 * 4 - 1)
        assert "table" not in scoring_books(100, 8, seed=0)
        assert "table" in scoring_books(99, 8, seed=0)

    def test_cell(self, monkeypatch):
        monkeypatch.setattr(codebooks, "ENOUGH_SECONDS", 0.0)
        monkeypatch.setattr(codebooks, "TURN_SECONDS", 1e-6)
        found = ScoringCell((50, 200), dim=16).measure(Workplace(device="cuda"), None)
        assert found["device"] == "cpu"  # even if another device is asked for
        for n in ("50", "200"):
            assert set(found["sizes"][n]) == set(codebooks.SCORING)
            assert all(way["milliseconds"] > 0 and way["rounds"] == 3 for way in found["sizes"][n].values())
        assert found["sizes"]["50"]["spectral"]["definition_bytes"] < 100


class TestPlan:
    def test_cells(self):
        planned = codebooks.cells(Settings())
        names = [cell.name for cell in planned]
        assert len(set(names)) == len(names) == 2 * 7 * 3 + 3 * 3 + 1
        assert {"codebooks/capacity-d256-seed2", "codebooks/scoring"} <= set(names)
        assert sum("-slots64000-" in name for name in names) == 3
        assert Settings().books * Settings().trials >= 100
        assert all(json.dumps(cell.about()) and "seed" in cell.about() for cell in planned)

    def test_the_first_are_cells_of_the_table(self):
        theirs = {cell.name for cell in table.cells(Settings()) if cell.protocol == training_cells.FIXED}
        ours = {cell.name for cell in codebooks.recipes("eurlex-4k")[0].cells("eurlex-4k", Settings())}
        assert ours <= theirs

    @pytest.mark.parametrize(("dataset", "labels"), [("delicious", 983), ("eurlex-4k", 3993)])
    def test_slots_are_allowed_and_near_their_titles(self, dataset, labels):
        for times, slots in zip((2, 4, 16), SLOTS[dataset], strict=True):
            assert SpectralCodebook(labels, 800, length=slots).length == pytest.approx(times * labels, rel=0.05)


#: P@k and percentages retrieved, made up so that every claim holds.
LEVELS = {INDEPENDENT: 70.0, FOUR: 70.2, TWO: 66.0, SPECTRAL: 71.0}
HELD = {"independent": 80.0, "four-phase": 79.8, "two-phase": 50.0, "in-order": 90.0}


def stored(cell, **content) -> dict:
    machine = {"processor": "Abacus", "threads": 2, "gpu": None}
    return {
        "cell": cell.name,
        "about": json.loads(json.dumps(cell.about())),
        "seconds": 2.0,
        "provenance": {"command": "circlet x", "versions": {"torch": "2"}, "machine": machine},
        **content,
    }


def trained(levels=LEVELS, datasets=("delicious", "eurlex-4k")) -> list[dict]:
    return [
        stored(
            cell,
            metrics=dict.fromkeys(codebooks.METRICS, levels[recipe.title] + cell.seed),
            shapes={"labels": 983},
            parameters={"total": 1},
        )
        for dataset in datasets
        for recipe in codebooks.recipes(dataset)
        if recipe.title in levels
        for cell in recipe.cells(dataset, Settings())
    ]


def held(levels=HELD, ordered: float = 40.0) -> list[dict]:
    def percent(book: str, kind: str) -> float:
        return ordered if book == "in-order" and SETS[kind] else levels.get(book, 90.0)

    return [
        stored(
            cell,
            retrieved={
                book: {kind: {str(k): percent(book, kind) + cell.seed for k in STORED} for kind in SETS}
                for book in codebooks.HOLDING
            },
            M={"spectral": 1000},
        )
        for cell in codebooks.cells(Settings())
        if isinstance(cell, CapacityCell)
    ]


def timed() -> list[dict]:
    cell = next(cell for cell in codebooks.cells(Settings()) if isinstance(cell, ScoringCell))
    sizes = {
        str(n): {
            way: {
                "milliseconds": n / 1e5 * (1 + place),
                "rounds": 3,
                "definition_bytes": 41,
                "kept_bytes": 100 if way == "spectral" else 2_500_000 if way == "table" else 0,
            }
            for place, way in enumerate(codebooks.SCORING)
            if way != "table" or n < 100_000
        }
        for n in cell.sizes
    }
    return [stored(cell, device="cpu", sizes=sizes)]


def result(*cells: list[dict]) -> dict:
    return {
        "experiment": "codebooks",
        "settings": asdict(Settings()),
        "cells": [c for these in cells for c in these],
    }


class TestTables:
    def test_accuracy(self):
        made = codebooks.tables(result(trained(datasets=["delicious"])))
        assert [t.title for t in made] == ["Delicious: precision, %", "EURLex-4K: precision, %"]
        rows = {row[0]: row[1:] for row in made[0].rows}
        assert rows[SPECTRAL] == (1620, *["72.0 ± 1.0"] * 4)
        assert rows[TWO] == (None, *["67.0 ± 1.0"] * 4)
        assert "Not measured: spectral, M ≈ 2 L;" in made[0].note
        assert made[1].note == "Not measured: the dataset was not available."

    def test_slots_and_missing_seeds(self):
        cells = trained({"spectral, M ≈ 4 L": 70.0}, ["delicious"])[:2]
        (made, _) = codebooks.tables(result(cells))
        assert made.rows == [("spectral, M ≈ 4 L", 4000, *["70.5 ± 0.7"] * 4)]
        assert "Fewer so far: spectral, M ≈ 4 L 2." in made.note

    def test_capacity(self):
        made = {t.title.split(":")[0]: t for t in codebooks.tables(result(held()))}
        rows = made["Capacity, consecutive ids"].rows
        assert len(rows) == 3 * len(codebooks.HOLDING)
        assert rows[0] == (INDEPENDENT, 128, None, *["81.0 ± 1.0"] * 3)
        assert rows[3] == ("spectral, least M", 128, 1000, *["91.0 ± 1.0"] * 3)
        assert rows[-1][1] == 512
        assert rows[-1][3] == "41.0 ± 1.0"
        assert "3 seeds, each with 20 codebooks and 20 label sets" in made["Capacity, random ids"].note

    def test_time_and_bytes(self):
        times, sizes = codebooks.tables(result(timed()))[2:]
        rows = {row[0]: list(row[1:]) for row in times.rows}
        assert rows[SPECTRAL] == ["0.04", "0.16", "0.64", "2.56"]
        assert rows["independent, from a table"] == ["0.12 (3 ×)", "0.48 (3 ×)", "1.92 (3 ×)", None]
        rows = {row[0]: list(row[1:]) for row in sizes.rows}
        assert rows[SPECTRAL][:2] == [41, "0.1 kB"]
        assert rows["independent, from a table"] == [41, *["2.5 MB"] * 3, None]
        assert rows[INDEPENDENT][1] == "0"


class TestClaims:
    def test_none_without_numbers(self):
        assert codebooks.claims(result()) == []

    def test_all_hold(self):
        made = codebooks.claims(result(trained(), held(), timed()))
        assert [claim.holds for claim in made] == ["yes"] * 6
        spectral, order, four, two, tagging, time = (claim.evidence for claim in made)
        assert "91.0 against 81.0 (d = 128, k = 10)" in spectral
        assert "-50.0 points on average" in order
        assert "on random sets +0.0 on average" in order
        # 3 dimensions × 3 sets × 3 k, and 2 datasets × 4 metrics.
        assert "at most one point behind in 35 of 35" in four
        assert "capacity -30.0 points" in two
        assert "EURLex-4K P@1 -4.0" in two
        assert "Delicious PSP@5 +1.0" in tagging
        assert "L = 4,000: 3 times as fast with 1 / 25,000 of the bytes" in time

    def test_follow_the_numbers(self):
        levels = {**LEVELS, FOUR: 60.0, TWO: 75.0, SPECTRAL: 69.0}
        percents = {**HELD, "independent": 95.0, "four-phase": 90.0, "two-phase": 96.0}
        made = codebooks.claims(result(trained(levels), held(percents, ordered=88.0)))
        assert [claim.holds for claim in made] == ["no"] * 5

    def test_partly(self):
        # As good in capacity, which is most of the comparisons, but worse in tagging.
        made = codebooks.claims(result(trained({**LEVELS, FOUR: 60.0}), held()))
        assert made[2].holds == "partly"
        assert "in 27 of 35" in made[2].evidence

    def test_nothing_is_compared_where_everything_is_retrieved(self):
        cells = held()
        for cell in cells:
            if cell["about"]["dim"] == 512:
                for kinds in cell["retrieved"].values():
                    kinds["random ids"] = dict.fromkeys(map(str, STORED), 100.0)
        claim = codebooks.claims(result(cells))[0]
        assert claim.holds == "yes"
        assert "d = 512" not in claim.evidence


class TestPage:
    def test_repeats(self, tmp_path):
        whole = result(trained(), held(), timed())
        for name in ("a", "b"):
            circlet_paper.render("codebooks", whole, tmp_path / name)
        for end in (".md", ".png"):
            assert (tmp_path / f"a{end}").read_bytes() == (tmp_path / f"b{end}").read_bytes()
        axes = codebooks.draw(whole).axes
        assert [axis.get_title() for axis in axes] == [
            "Capacity, d = 128, random ids",
            "Capacity, d = 256, random ids",
            "Capacity, d = 512, random ids",
            "Capacity, d = 256, consecutive ids",
            "Tagging: P@5",
            "Scoring all labels, d = 800, CPU",
        ]
        assert all(axis.axison for axis in axes)

    def test_parts_that_were_not_measured_are_left_blank(self):
        axes = codebooks.draw(result(held())).axes
        assert [axis.axison for axis in axes] == [True] * 4 + [False] * 2
        assert not any(axis.axison for axis in codebooks.draw(result()).axes)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(codebooks, "ENOUGH_SECONDS", 0.0)
    folder, random = tmp_path / "data" / "delicious", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, n in (("trn", 40), ("tst", 20)):
        Y = (random.random((n, 30)) < 0.1).astype(np.float32)
        sp.save_npz(folder / f"X.{part}.npz", sp.csr_matrix(Y @ random.random((30, 40)).astype(np.float32)))
        sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix(Y))
    options = [
        "--quick",
        "--seeds",
        "1",
        "--data",
        str(tmp_path / "data"),
        "--device",
        "cpu",
        "--output",
        str(tmp_path),
    ]
    app(["reproduce", "codebooks", *options], standalone_mode=False)
    printed = capsys.readouterr()
    assert "Capacity, random ids" in printed.out
    assert printed.err.count("eurlex-4k: found no folder") == 1
    names = {path.relative_to(tmp_path / "cells").as_posix() for path in (tmp_path / "cells").rglob("*.json")}
    assert len(names) == 7 + 2 + 1
    assert all(name.startswith(("quick-delicious/", "quick-codebooks/")) for name in names)
    page = (tmp_path / "quick-codebooks.md").read_text(encoding="utf-8")
    assert "A quick run" in page
    assert "seeds 0" in page
