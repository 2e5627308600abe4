from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circlet.errors import DataError
from circlet.folder.contents import ESTIMATOR_FORMAT, classes_of, read_estimator

STATE: dict[str, Any] = {
    "format": ESTIMATOR_FORMAT, "circlet": "0.2.0", "parameters": {"threshold": 0.5}, "encoder": None,
    "target": "named", "classes": {"dtype": "object", "values": None}, "feature_names": None,
}  # fmt: skip
NAMES = ["red", "green"]


def written(folder: Path, content: Any) -> Path:
    path = folder / "estimator.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_good_one(tmp_path):
    path = written(tmp_path, STATE)
    state = read_estimator(path)
    assert state == STATE
    assert classes_of(path, state, 3, 2, NAMES).tolist() == NAMES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "found format 3"),
        ({"more": 1}, "found the keys .*'more'"),
        ({"parameters": [1]}, r"found the parameters \[1\]"),
        ({"target": "tree"}, "found the target 'tree'; wanted one of indicator, named, single"),
        ({"feature_names": [1]}, r"found feature names \[1\]"),
        ({"target": ["named"]}, "found the target"),
    ],
)
def test_damaged(change, message, tmp_path):
    with pytest.raises(DataError, match=rf"estimator\.json: {message}"):
        read_estimator(written(tmp_path, {**STATE, **change}))


def test_something_else(tmp_path):
    with pytest.raises(DataError, match="found no description of a classifier"):
        read_estimator(written(tmp_path, [1]))


class TestClasses:
    def test_columns(self):
        assert classes_of(Path("e"), {**STATE, "target": "indicator"}, 3, 4, None).tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("dtype", "values"), [("int64", [7, 3]), ("float64", [0.5, 2.0]), ("bool", [False, True])]
    )
    def test_numbers(self, dtype, values):
        state = {**STATE, "target": "single", "classes": {"dtype": dtype, "values": values}}
        found = classes_of(Path("e"), state, 3, 2, ["a", "b"])
        assert found.dtype.name == dtype
        assert found.tolist() == values

    @pytest.mark.parametrize(
        "classes", [None, {}, {"dtype": "nothing", "values": [1, 2]}, {"dtype": "int64", "values": ["a", "b"]},
                    {"dtype": "int64", "values": [1]}, {"dtype": "int64", "values": [1, 1]},
                    {"dtype": "int64", "values": [[1], [2]]}, {"dtype": "U1000000000", "values": ["a", "b"]},
                    {"dtype": "datetime64[s]", "values": [1, 2]}],
    )  # fmt: skip
    def test_damaged(self, classes):
        with pytest.raises(DataError, match=r"e: found (damaged|. different) classes"):
            classes_of(Path("e"), {**STATE, "classes": classes}, 3, 2, NAMES)

    def test_names_of_features(self):
        with pytest.raises(DataError, match="found 1 feature names; wanted 3"):
            classes_of(Path("e"), {**STATE, "feature_names": ["a"]}, 3, 2, NAMES)
