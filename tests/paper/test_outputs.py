"""Tables, claims and pictures from made-up numbers."""

from __future__ import annotations

import pytest

from circlet_paper import outputs
from circlet_paper.outputs import Measured, Settings
from circlet_paper.training_cells import TrainingCell


def output_of(cell: TrainingCell) -> str:
    other = getattr(cell, "output", None)
    return other or ("independent" if cell.settings()["codebook"] == "independent" else "spectral")


def spectral_is_best(cell: TrainingCell, metric: str) -> float:
    level = {"spectral": 40, "independent": 30, "hadamard": 35, "mach": 20, "low-rank": 38}[output_of(cell)]
    return level + (0.01 * cell.settings()["dim"] if output_of(cell) == "independent" else 0)


class TestCells:
    def test_every_output_has_as_many_seeds_and_dimensions(self):
        planned = outputs.cells(Settings())
        assert len(planned) == 2 * 5 * 4 * 3
        assert {output_of(cell) for cell in planned} == set(outputs.OUTPUTS)
        assert {cell.settings()["dim"] for cell in planned} == {50, 100, 200, 400}

    def test_only_the_output_differs(self):
        for dim in (50, 400):
            same = [cell.settings() for cell in outputs.cells(Settings()) if cell.settings()["dim"] == dim]
            for key in ("hidden", "loss", "dropout", "batch_size", "optimizer", "lr"):
                assert len({str(settings[key]) for settings in same}) == 1


class TestClaims:
    def test_hold_where_the_numbers_do(self, made_up, verdicts):
        assert list(verdicts(outputs, made_up(outputs, spectral_is_best)).values()) == ["yes"] * 5

    def test_fail_where_the_numbers_do_not_hold(self, made_up, verdicts):
        result = made_up(outputs, lambda cell, metric: -spectral_is_best(cell, metric))
        assert list(verdicts(outputs, result).values()) == ["no"] * 5

    def test_one_seed_that_disagrees_is_no_lead(self, made_up, verdicts):
        def score(cell, metric):
            return 50.0 if output_of(cell) == "mach" and cell.seed == 1 else spectral_is_best(cell, metric)

        found = verdicts(outputs, made_up(outputs, score))
        assert found["Models with spectral codes tag better than MACH with as many outputs"] == "no"

    def test_seeds_are_paired(self, made_up):
        result = made_up(outputs, spectral_is_best, only=("delicious",))
        result["cells"] = [
            cell for cell in result["cells"] if "hadamard" not in cell["cell"] or cell["about"]["seed"] == 2
        ]
        gaps = Measured(result).gaps("delicious", "spectral", "hadamard", "P@5")
        assert gaps == {dim: [pytest.approx(5)] for dim in (50, 100, 200, 400)}

    def test_a_missing_dataset(self, made_up):
        result = made_up(outputs, spectral_is_best, only=("delicious",))
        tables = {table.title: table for table in outputs.tables(result)}
        assert len(tables["Delicious, %"].rows) == 20
        assert "not available" in tables["EURLex-4K, %"].note
        assert len(outputs.claims(result)) == 5


def test_page_and_picture(made_up, rendered):
    result = made_up(outputs, spectral_is_best)
    for cell in result["cells"]:
        if cell["about"].get("output") == "mach":
            cell["decided"] = [{"setting": "hashes", "value": 4 + 6 * (cell["about"]["seed"] % 2)}]
    page = rendered(result)
    assert "| MACH | 100 | 4, 10 |" in page
    assert "points ahead with 100, 200, 400, 800 outputs" in page
