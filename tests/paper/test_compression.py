from __future__ import annotations

import pytest

from circlet_paper.compression import compression_table, model_size

# Delicious: CHRR 384,000 + 589,824 + 1,228,800 + 786,400; FC 1,024,000 + 4,194,304 + 2,013,184.
CHRR, CODES, FC = 2_202_624, 786_400, 7_231_488


def test_model_size_by_hand():
    assert model_size(500, 983) == pytest.approx(100 * (1 - (CHRR + CODES) / FC))
    assert model_size(500, 983, stored_codes=False) == pytest.approx(100 * (1 - CHRR / FC))


def test_table():
    shapes = {"features": 500, "labels": 983}
    measured = {"cells": [{"about": {"dataset": "delicious"}, "shapes": shapes}]}
    table = compression_table(measured, ["delicious", "wiki10-31k", "wordnet"])
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Delicious"] == (500, 983, 59, "58.7", "69.5", 19, "18.6")
    assert rows["Wiki10-31K"][1] == 30_938  # from the catalog: it was not measured
    assert "WordNet" not in rows  # its shape is in no catalog
