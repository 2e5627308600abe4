from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circlet.errors import DataError
from circlet.runtime.compression import LOST, Curve, curve_of
from circlet.storage.contents import kept_epochs, metrics_of, read_history


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


PATH = Path("history.json")


def test_by_hand():
    # The least squared distance from 1 and 5 of a and 4a has a = (1 + 4 · 5) / (1 + 16).
    curve = curve_of(PATH, [{"epoch": 1}, {"epoch": 2, LOST: [[1.0, 1.0], [2.0, 5.0]]}])
    assert curve is not None
    assert curve.factor == pytest.approx(21 / 17)
    assert curve.most == 2
    assert curve.at(1.5) == pytest.approx(1.5**2 * 21 / 17)


def test_the_coarsest_within_a_loss():
    curve = Curve(0.1, 3.0)
    assert curve.coarsest(0.4) == pytest.approx(2)
    assert curve.coarsest(0) == 0
    assert curve.coarsest(5) == 3  # nothing is known about coarser ones
    assert Curve(0.0, 3.0).coarsest(0) == 3


def test_nothing_is_lost():
    assert curve_of(PATH, [{LOST: [[1.0, -0.1], [2.0, -0.2]]}]) == (0, 2)


def test_of_several_networks_the_one_that_loses_most_counts():
    history = [{"member": 1, LOST: [[2.0, 4.0]]}, {"member": 2}, {"member": 2, LOST: [[1.0, 3.0]]}]
    assert curve_of(PATH, history) == (3, 1)


def test_without_a_calibration_run():
    pairs = [[1.0, 1.0]]
    histories: list[list[dict[str, Any]]] = [
        [],
        [{"epoch": 1}],
        [{LOST: pairs}, {"epoch": 2}],  # trained further
        [{"member": 1, LOST: pairs}, {"member": 2}],
    ]
    for history in histories:
        assert curve_of(PATH, history) is None


@pytest.mark.parametrize(
    "pairs",
    [None, [], 3, [1.0], [[1.0]], [[0.0, 1.0]], [[-1.0, 1.0]], [["1", 1.0]], [[1.0, None]], [[1.0, float("nan")]]],
)
def test_damage(pairs):
    with pytest.raises(
        DataError, match=r"history\.json: found damaged `lost`; wanted pairs of coarseness and points"
    ):
        curve_of(PATH, [{LOST: pairs}])
