"""The file of a search: a round trip, and what is refused."""

from __future__ import annotations

import json

import pytest
from tests.tuning.test_changes import ROWS

from circlet.errors import DataError
from circlet.tuning.study import Trial, read_search, write_search

TRIALS = [
    Trial({}, 0, 52.25, 3.5, 1000),
    Trial({"hidden": (64, 32), "char_ngrams": None}, 1, 53.0, 4.0, 2000),
    Trial({"lr": 9.0}, 0, None, 0.5, None, "the loss is not finite"),
]
ABOUT = {"data": "mine", "draws": 5}


@pytest.fixture
def path(tmp_path):
    write_search(tmp_path / "t.json", ABOUT, ROWS, TRIALS)
    return tmp_path / "t.json"


def test_round_trip(path):
    assert read_search(path) == (ABOUT, ROWS, TRIALS)
    assert json.loads(path.read_text())["provenance"]["versions"]["torch"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"study": {}, "usual": {}, "trials": [{"given": 3}]}'])
def test_no_search(path, text):
    path.write_text(text)
    with pytest.raises(DataError, match=r"t\.json: found no readable search .*; name another --output"):
        read_search(path)


@pytest.mark.parametrize(
    "wrong",
    [{"score": "52"}, {"draw": -1}, {"seconds": None}, {"given": {"wings": 2}}, {"parameters": 0.5}, {"other": 1}],
)
def test_a_damaged_trial(path, wrong):
    kept = json.loads(path.read_text())
    kept["trials"][0] |= wrong
    path.write_text(json.dumps(kept))
    with pytest.raises(DataError, match="found no readable search"):
        read_search(path)


def test_a_search_without_trials(path):
    write_search(path, ABOUT, ROWS, [])
    with pytest.raises(DataError, match="no trial of the defaults"):
        read_search(path)
