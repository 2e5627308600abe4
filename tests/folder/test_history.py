from __future__ import annotations

import json

import pytest

from circlet.errors import DataError
from circlet.folder.history import metrics_of, read_history


def test_records(tmp_path):
    records = [{"epoch": 1, "loss": 0.5, "P@1": 0.25, "nDCG@5": 0.5}, {"epoch": 2, "loss": 0.25}]
    (tmp_path / "history.json").write_text(json.dumps(records))
    found = read_history(tmp_path / "history.json")
    assert found == records
    assert [metrics_of(record) for record in found] == [{"P@1": 0.25, "nDCG@5": 0.5}, {}]


@pytest.mark.parametrize("content", ['{"epoch": 1}', '[{"epoch": 1}, 2]', "3", "", "[1"])
def test_damaged(content, tmp_path):
    (tmp_path / "history.json").write_text(content)
    with pytest.raises(DataError, match=r"history\.json: found no (history; wanted a list|readable JSON)"):
        read_history(tmp_path / "history.json")
