from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet import files
from circlet.errors import OutputError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_pretty_json_is_json(value):
    assert json.loads(files._pretty(value)) == value


def test_innermost_lists_stay_on_one_line(tmp_path):
    files.write_json(tmp_path / "a.json", {"rows": [[1, 2], [3]], "name": "é"})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert text == '{\n "rows": [\n  [1, 2],\n  [3]\n ],\n "name": "é"\n}\n'


def test_nan_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "a.json", [float("nan")])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "kept.txt"
    files.write_text(path, "old")

    def fail_half_way():
        with files.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*taken"):
        files.write_text(tmp_path / "taken", "text")


def test_prepare_folder_makes_it_and_leaves_it_empty(tmp_path):
    files.prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
