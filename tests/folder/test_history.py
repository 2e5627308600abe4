from __future__ import annotations

import json

import pytest

from circlet.errors import DataError
from circlet.folder.history import kept_epochs, metrics_of, read_history


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


def test_the_epochs_that_were_kept():
    def record(epoch, kept=False, member=None, metric=True):
        made = {"epoch": epoch, "loss": 1.0, **({"nDCG@5": 0.5} if metric else {})}
        made |= {"kept": True} if kept else {}
        return made if member is None else {**made, "member": member}

    chosen = [record(1), record(2, kept=True), record(3)]
    assert kept_epochs(chosen) == [chosen[1]]
    assert kept_epochs([record(1), record(2)]) == []
    assert kept_epochs([*chosen, record(4, metric=False)]) == []  # trained further
    both = [record(1, kept=True, member=1), record(2, member=1)]
    both += [record(1, member=2), record(2, kept=True, member=2)]
    assert [each["epoch"] for each in kept_epochs(both)] == [1, 2]
