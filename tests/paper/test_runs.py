from __future__ import annotations

import pytest

from circlet_paper.runs import Runs, millions, runs, shown, verdict
from circlet_paper.training_cells import Recipe, Settings


def test_mean_and_deviation_by_hand():
    cells = [
        {"cell": f"a-{i}", "metrics": {"P@1": v}, "parameters": {"total": 7}} for i, v in enumerate((1, 2, 6))
    ]
    these = Runs(cells)
    assert these.mean("P@1") == 3
    assert these.sd("P@1") == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert these.show("P@1") == "3.0 ± 2.6"
    assert these.parameters == 7
    assert Runs(cells[:1]).show("P@1") == "1.0"
    assert shown(75.24, 0.31) == "75.2 ± 0.3"
    assert millions(5_123_456) == "5.1 M"
    assert millions(999) == "0.001 M"


def test_runs_are_found_by_their_cells():
    recipe = Recipe("CHRR", "paper")
    cells = recipe.cells("delicious", Settings())
    result = {"cells": [{"cell": cells[1].name}, {"cell": "another"}]}
    assert runs(result, cells).cells == [{"cell": cells[1].name}]
    assert runs(result, recipe.cells("eurlex-4k", Settings())) is None


def test_a_claim_without_a_comparison_is_not_judged():
    assert [verdict(0, 0), verdict(2, 2), verdict(1, 2), verdict(0, 2)] == ["not measured", "yes", "partly", "no"]
