"""Tables, claims and pictures from made-up numbers."""

from __future__ import annotations

from typing import ClassVar

from circlet_paper import ablation
from circlet_paper.training_cells import TrainingCell


class TestAblation:
    POINTS: ClassVar[dict[str, float]] = {
        "chrr": 50,
        "chrr-half": 49.5,
        "chrr-sin": 45,
        "chrr-tanh": 44,
        "chrr-amplitude": 52,
        "all-labels": 53,
    }

    def score(self, cell: TrainingCell, metric: str) -> float:
        settings = cell.settings()
        return self.POINTS["all-labels" if settings["loss"] == "bce" else settings["head"]]

    def test_claims(self, monkeypatch, made_up, verdicts):
        assert list(verdicts(ablation, made_up(ablation, self.score)).values()) == ["yes"] * 4
        monkeypatch.setattr(self, "POINTS", dict.fromkeys(self.POINTS, 50.0) | {"chrr-half": 40}, raising=False)
        assert list(verdicts(ablation, made_up(ablation, self.score)).values()) == ["no"] * 4

    def test_rows_have_the_parameters(self, made_up):
        table = ablation.tables(made_up(ablation, self.score))[0]
        assert table.rows[0][:4] == ("CHRR, d = 800, h = 768", "0.2 M", "1.2 M", "50.1 ± 0.1")


def test_page_and_picture(made_up, rendered):
    page = rendered(made_up(ablation, lambda cell, metric: 30.0 + int(metric.partition("@")[2])))
    assert "31.1 ± 0.1" in page
