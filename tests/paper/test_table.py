"""The paper's table from made-up numbers, and its formulas computed by hand."""

from __future__ import annotations

from dataclasses import asdict

import pytest

import circlet_paper
from circlet_paper import table, training_cells
from circlet_paper.table import compression_table, model_size
from circlet_paper.training_cells import DEPTHS, Settings


def stored(cell, level: float) -> dict:
    """A cell as it is stored: P@k is `level` plus the seed minus k, and PSP@k is half of that."""
    values = {k: level + cell.seed - k for k in DEPTHS}
    machine = {"processor": "Abacus", "threads": 2, "gpu": None}
    return {
        "cell": cell.name,
        "about": cell.about(),
        "metrics": {**{f"P@{k}": v for k, v in values.items()}, **{f"PSP@{k}": v / 2 for k, v in values.items()}},
        "parameters": {"total": 4_000_000 if cell.settings()["head"] == "fc" else 1_000_000},
        "shapes": {"features": 500, "labels": 983, "train": 12_920, "validation": 0, "test": 3_185},
        "seconds": 2.0,
        "provenance": {"command": "circlet x", "versions": {"torch": "2"}, "machine": machine},
    }


def result(levels: dict, datasets=("delicious",)) -> dict:
    settings = Settings()
    cells = [
        stored(cell, level)
        for dataset in datasets
        for recipe, level in levels.items()
        for cell in next(r for r in table.ALL if r.title == recipe).cells(dataset, settings)
    ]
    return {"experiment": "table", "settings": asdict(settings), "cells": cells}


FC, HRR, CHRR = training_cells.FC.title, training_cells.HRR.title, training_cells.CHRR.title


def test_plan():
    planned = table.cells(Settings())
    names = [cell.name for cell in planned]
    assert len(set(names)) == len(names) == 4 * 8 * 3 + (5 + 4) * 3 + 2 * 4 * 3 + 2 * 10
    assert "eurlex-4k/paper-chrr-d800-h768-seed0" in names
    assert "delicious/paper-chrr-d800-h768-split10-seed0" in names
    assert all(name.startswith("quick-") for name in (cell.name for cell in table.cells(Settings.quick())))
    # All of the paper's protocol, where it applies.
    paper = next(cell for cell in planned if cell.name == "delicious/paper-hrr-d800-h768-seed1").settings()
    assert (paper["hidden"], paper["batch_size"], paper["epochs"], paper["lr"]) == ((768, 768), 64, 100, 1.0)


def test_rows_are_published_and_measured_side_by_side():
    made = {t.title: t for t in table.tables(result({FC: 60, CHRR: 70}))}
    precision = made["Delicious: precision, %"]
    rows = {row[0]: row[1:] for row in precision.rows}
    assert list(rows) == [
        "FastXML (published)", "PfastreXML (published)", "FC (published)", FC, "CHRR (published)", CHRR,
    ]  # fmt: skip
    assert rows["CHRR (published)"] == (None, "71.2", None, "59.3", None, None)
    assert rows[CHRR] == ("1.0 M", "70.0 ± 1.0", "68.0 ± 1.0", "66.0 ± 1.0", "61.0 ± 1.0", "51.0 ± 1.0")
    assert "Not measured: FC, h = 1024;" in precision.note
    assert "12,920 training rows" in precision.note
    assert made["Delicious: propensity-scored precision, %"].rows[-1][2] == "35.0 ± 0.5"
    assert made["Wiki10-31K: precision, %"].note == "Not measured: the dataset was not available."
    assert not any(title.startswith("WordNet") for title in made)


def test_fewer_seeds_than_planned_are_reported():
    partial = result({CHRR: 70})
    partial["cells"] = partial["cells"][:2]
    assert f"Fewer so far: {CHRR} 2." in table.tables(partial)[1].note


def test_the_correction_has_its_own_rows():
    made = {t.title: t for t in table.tables(result({CHRR: 70}, ["eurlex-4k"]))}
    rows = {row[0]: row[2:] for row in made["EURLex-4K: precision, %"].rows}
    assert rows["FastXML (published)"][0] == "76.4"
    assert rows["FastXML (corrected †)"][:3] == ("71.4", "59.9", "50.4")
    assert "†" in made["EURLex-4K: precision, %"].note
    psp = [row[0] for row in made["EURLex-4K: propensity-scored precision, %"].rows]
    assert "PfastreXML (corrected †)" in psp
    assert "FastXML (corrected †)" not in psp


def test_stand_ins_say_what_they_are():
    made = {t.title: t for t in table.tables(result({CHRR: 70}, ["yso-finna-en"]))}
    assert "every model trained 10 epochs with batches of 256" in made["YSO Finna: precision, %"].note


def test_splits():
    whole = result({CHRR: 70})
    assert not any("splits" in t.title for t in table.tables(whole))
    splits = [cell for cell in table.cells(Settings()) if cell.split is not None]
    whole["cells"] += [stored(cell, 60 + cell.split) for cell in splits]
    made = table.tables(whole)[-1]
    rows = {row[:2]: row[2:] for row in made.rows}
    for way in table.SPLIT_WAYS:
        assert rows["mean of the splits", way][0] == "64.5 ± 3.0"  # 61 … 70, less 1
        assert (rows["lowest", way][0], rows["highest", way][0]) == ("60.0", "69.0")
        assert rows["the first split", way][0] == "60.0"
    assert rows["Mulan's split", table.SPLIT_WAYS[0]][0] == "70.0 ± 1.0"
    assert rows["published", "learning rate 1"] == ("71.2", "59.3", "34.3", "35.9")


class TestClaims:
    def test_none_without_numbers(self):
        assert table.claims(result({})) == []
        assert len(table.claims(result({CHRR: 70, HRR: 60}))) == 2

    def test_follow_the_numbers(self):
        better, grows, comparable = table.claims(result({FC: 70.5, HRR: 60, CHRR: 70}))
        assert better.holds == "yes"
        assert "in 10 of 10" in better.evidence
        assert "Delicious +10.0 at k = 1" in better.evidence
        assert grows.holds == "no"  # ten points at every k
        assert comparable.holds == "yes"
        assert "25 % of the parameters" in comparable.evidence
        worse, _, behind = table.claims(result({FC: 80, HRR: 75, CHRR: 70}))
        assert (worse.holds, behind.holds) == ("no", "no")

    def test_a_growing_gap(self):
        growing = result({HRR: 60, CHRR: 70})
        for cell in growing["cells"]:
            if "-chrr-" in cell["cell"]:
                cell["metrics"]["P@20"] += 5
        assert table.claims(growing)[1].holds == "partly"  # P does, PSP does not


def test_page_and_picture_repeat(tmp_path):
    whole = result(
        {FC: 70, HRR: 60, CHRR: 65, training_cells.CIRCLET.title: 75}, ["delicious", "eurlex-4k", "wordnet"]
    )
    for name in ("a", "b"):
        circlet_paper.render("table", whole, tmp_path / name)
    for end in (".md", ".png"):
        assert (tmp_path / f"a{end}").read_bytes() == (tmp_path / f"b{end}").read_bytes()
    figure = table.draw(whole)
    assert [axis.get_title() for axis in figure.axes] == ["Delicious", "EURLex-4K", "WordNet"]
    labels = figure.legends[0].get_texts()
    assert {text.get_text() for text in labels} >= {FC, HRR, CHRR, "FC, published", "CHRR, published"}


def test_model_size_by_hand():
    # Delicious: CHRR 384,000 + 589,824 + 1,228,800 + 786,400; FC 1,024,000 + 4,194,304 + 2,013,184.
    chrr, codes, full = 2_202_624, 786_400, 7_231_488
    assert model_size(500, 983) == pytest.approx(100 * (1 - (chrr + codes) / full))
    assert model_size(500, 983, stored_codes=False) == pytest.approx(100 * (1 - chrr / full))


def test_compression():
    shapes = {"features": 500, "labels": 983}
    measured = {"cells": [{"about": {"dataset": "delicious"}, "shapes": shapes}]}
    made = compression_table(measured, ["delicious", "wiki10-31k", "wordnet"])
    rows = {row[0]: row[1:] for row in made.rows}
    assert rows["Delicious"] == (500, 983, 59, "58.7", "69.5", 19, "18.6")
    assert rows["Wiki10-31K"][1] == 30_938  # from the catalog: it was not measured
    assert "WordNet" not in rows  # its shape is in no catalog
