"""Synthetic sets have the shapes of real ones; tables, claims and pictures from made-up numbers."""

from __future__ import annotations

import pytest

from circlet.data import catalog
from circlet_paper import manylabels
from circlet_paper.cells import Workplace
from circlet_paper.manylabels import SHAPES, Settings, SyntheticCell
from circlet_paper.synthetic import make_rows
from circlet_paper.training_cells import TrainingCell


class TestShapes:
    @pytest.mark.parametrize("name", SHAPES)
    def test_are_those_of_the_real_sets(self, name):
        shape, real = SHAPES[name], catalog.ENTRIES[name]
        assert (shape.train, shape.test) == (real.train_points, real.test_points)
        assert (shape.features, shape.labels) == (real.features, real.labels)
        rows = make_rows(
            0, 2000, shape.features, shape.labels, seed=0, labels_per_row=shape.drawn, words_per_row=shape.words
        )
        assert rows.Y.nnz / rows.n == pytest.approx(real.labels_per_point, rel=0.03)


class TestCell:
    def test_makes_its_data(self, tmp_path):
        given = {"head": "chrr", "dim": 20, "hidden": (16,), "epochs": 2, "batch_size": 64}
        cell = SyntheticCell("wiki10-31k", "paper", given, rows=100)
        place = Workplace(tmp_path, "cpu")
        assert cell.missing(place) is None
        assert cell.name == "quick-synthetic-wiki10-31k/paper-chrr-d20-h16-seed0"
        measured = cell.measure(place, None)
        assert measured["shapes"] == {
            "features": 101_938 // 20, "labels": 30_938 // 20, "train": 95, "validation": 5, "test": 50
        }  # fmt: skip
        assert cell.about()["synthetic"]["labels"] == 30_938 // 20
        assert measured["metrics"]["P@5"] >= 0

    def test_names_tell_synthetic_sets_from_real_ones(self):
        cells = manylabels.cells(Settings())
        assert len({cell.name for cell in cells}) == len(cells)
        for cell in cells:
            assert cell.name.startswith("synthetic-") == isinstance(cell, SyntheticCell)
        large = [cell for cell in cells if cell.name.startswith("synthetic-delicious-200k/")]
        assert {cell.seed for cell in large} == {0}
        assert {cell.settings()["batch_size"] for cell in large} == {256}
        assert "fc" not in {cell.settings()["head"] for cell in large}


def as_the_paper_says(cell: TrainingCell, metric: str) -> float:
    settings = cell.settings()
    if settings["head"] != "chrr":
        return 20.0
    return 30 + 2 * int(metric.partition("@")[2])


class TestClaims:
    def test_hold_where_the_numbers_do(self, made_up, verdicts):
        assert list(verdicts(manylabels, made_up(manylabels, as_the_paper_says)).values()) == ["yes"] * 3

    def test_fail_where_the_numbers_do_not_hold(self, made_up, verdicts):
        result = made_up(manylabels, lambda cell, metric: 100 - as_the_paper_says(cell, metric))
        assert list(verdicts(manylabels, result).values()) == ["no"] * 3

    def test_a_gap_that_documents_do_not_tell_from_none_is_no_lead(self, made_up, verdicts):
        def score(cell, metric):
            return 20.25 if cell.settings()["head"] == "chrr" else 20.0

        found = verdicts(manylabels, made_up(manylabels, score, only=("wiki10-31k",)))
        assert found["CHRR is better than HRR of the same dimension"] == "no"


def test_page_and_picture(made_up, rendered):
    result = made_up(manylabels, as_the_paper_says)
    result["cells"] = [cell for cell in result["cells"] if cell["cell"].startswith("synthetic-")]
    page = rendered(result)
    assert "Synthetic, in the shape of Wiki10-31K, %" in page
    assert "CHRR, d = 1600 (synthetic) | 3 |" in page
    assert "Not measured: the dataset was not available." in page
    assert "say nothing about the real set" in page
