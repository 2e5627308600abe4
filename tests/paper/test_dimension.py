"""Tables, claims and pictures from made-up numbers."""

from __future__ import annotations

from circlet_paper import dimension
from circlet_paper.training_cells import TrainingCell


def depth(metric: str) -> int:
    return int(metric.partition("@")[2])


class TestDimension:
    @staticmethod
    def as_the_paper_says(cell: TrainingCell, metric: str) -> float:
        settings = cell.settings()
        if settings["head"] == "fc":
            return 40.0
        if settings["head"] == "hrr":
            return 20 + 0.01 * settings["dim"]
        return 35 + 0.005 * settings["dim"] + 0.1 * depth(metric)

    def test_claims_hold_where_the_numbers_do(self, made_up, verdicts):
        found = verdicts(dimension, made_up(dimension, self.as_the_paper_says))
        assert list(found.values()) == ["yes"] * 5

    def test_claims_fail_where_the_numbers_do_not_hold(self, made_up, verdicts):
        def other(cell, metric):
            settings = cell.settings()
            if settings["head"] == "fc":
                return 80.0
            return 60.0 if settings["head"] == "hrr" else 20 + 0.01 * settings["dim"] - 0.1 * depth(metric)

        assert list(verdicts(dimension, made_up(dimension, other)).values()) == ["no"] * 5

    def test_a_missing_dataset(self, made_up):
        result = made_up(dimension, self.as_the_paper_says, only=("delicious",))
        tables = {table.title: table for table in dimension.tables(result)}
        assert len(tables["Delicious, %"].rows) == 9
        assert not tables["WordNet, %"].rows
        assert "not available" in tables["WordNet, %"].note
        assert len(dimension.claims(result)) == 5


def test_page_and_picture(made_up, rendered):
    page = rendered(made_up(dimension, lambda cell, metric: 30.0 + int(metric.partition("@")[2])))
    assert "Delicious, %" in page
