"""Tables, claims and pictures from made-up numbers."""

from __future__ import annotations

from circlet_paper import convergence
from circlet_paper.convergence import BATCHES, EPOCHS, RATES, Settings
from circlet_paper.training_cells import TrainingCell


def as_the_paper_says(cell: TrainingCell, metric: str) -> float:
    """CHRR is better, the more the larger k; a higher rate is a little better."""
    settings = cell.settings()
    chrr = settings["head"] == "chrr"
    return 20 + settings["lr"] + chrr * (10 + 2 * int(metric.partition("@")[2]))


class TestCells:
    def test_every_rate_with_all_seeds_but_on_the_largest_set(self):
        cells = convergence.cells(Settings())
        assert len(cells) == 2 * 3 * (5 + 5 + 1)
        assert {cell.settings()["lr"] for cell in cells if cell.seed == 4} == set(RATES)
        assert {cell.dataset for cell in cells if cell.seed == 4} == {"eurlex-4k", "wordnet"}

    def test_lengths(self):
        for cell in convergence.cells(Settings()):
            settings = cell.settings()
            assert settings["epochs"] == EPOCHS[cell.dataset]
            assert settings["batch_size"] == BATCHES[cell.dataset]


class TestClaims:
    def test_hold_where_the_numbers_do(self, made_up, verdicts):
        assert list(verdicts(convergence, made_up(convergence, as_the_paper_says)).values()) == ["yes"] * 2

    def test_fail_where_the_numbers_do_not_hold(self, made_up, verdicts):
        result = made_up(convergence, lambda cell, metric: 110 - as_the_paper_says(cell, metric))
        assert list(verdicts(convergence, result).values()) == ["no"] * 2

    def test_held_out_rows_choose_the_rate(self, made_up):
        result = made_up(convergence, as_the_paper_says)
        for cell in result["cells"]:
            rate = cell["about"]["settings"]["lr"]
            cell["history"]["nDCG@5"] = [0.5, 0.9 if rate == RATES[0] else 0.6]
        compared = convergence.tables(result)[1]
        assert [row[1:3] for row in compared.rows] == [(f"{RATES[0]:g}", f"{RATES[0]:g}")] * len(EPOCHS)

    def test_a_verdict_says_what_has_not_converged(self, made_up):
        result = made_up(convergence, as_the_paper_says)
        for cell in result["cells"]:
            late = 0.1 * (cell["about"]["dataset"] == "wordnet")
            cell["history"]["nDCG@5"] = [0.5] * 9 + [0.5 + late]
        assert convergence.claims(result)[0].evidence.endswith("; not converged: WordNet")

    def test_none_without_numbers(self, made_up):
        assert convergence.claims(made_up(convergence, as_the_paper_says, only=())) == []


def test_page_and_picture(made_up, rendered):
    page = rendered(made_up(convergence, as_the_paper_says))
    assert "| YSO Finna | CHRR | 3 | 2 | +33.00 |" in page
