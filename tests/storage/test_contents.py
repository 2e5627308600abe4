from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.storage.contents import (
    ESTIMATOR_FORMAT,
    classes_of,
    kept_epochs,
    labels_text,
    metrics_of,
    other_tensors,
    parts_of,
    read_estimator,
    read_history,
    read_labels,
)
from circlet.storage.tensors import Stored


def test_written_and_read_again(tmp_path):
    path = tmp_path / "labels.txt"
    names = ["red", "dark blue", "größer", "日本", "#6", "a\u2028b\x85c"]
    text = labels_text(names, 6)  # other line ends than \n are no line ends here
    path.write_text(text, encoding="utf-8", newline="\n")
    assert read_labels(path, 6) == names
    zipped = tmp_path / "labels.txt.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read_labels(zipped, 6) == read_labels(path, 6)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "found the label name 'a' twice"),
        (["a", "", "b"], "an empty label name"),
        (["a", " ", "b"], "an empty label name"),
        (["a", "b\nc", "d"], "a tab, line end or zero character"),
        (["a", "b\rc", "d"], "a tab, line end or zero character"),
        (["a", "b"], "found 2 label names; wanted one for each of 3 labels"),
        (["a", "b", "\ud800"], "found a label name that is not text"),
    ],
)
def test_names_that_cannot_be_written(names, message):
    with pytest.raises(DataError, match=f"label_uris.*: .*{message}"):
        labels_text(names, 3, "label_uris")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\na\n", "found the label name 'a' twice"),
        (b"a\n\nb\n", "label 2: found '', an empty label name"),
        (b"a\nb\n \t\n", "label 3: found .* with a tab"),
        (b"a\nb\n", "found 2 label names; wanted 3"),
        (b"a\nb\nc", "found 2 label names; wanted 3"),
        (b"a\nb\nc\nd", "a last name without a line end"),
        (b"a\nb\n\xff\n", "found no readable label names"),
    ],
)
def test_damage(content, message, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_labels(path, 3)
    assert str(caught.value).startswith(str(path))


PATH = Path("weights.safetensors")


def config(n_labels: int = 4, scaling: str = "tfidf", n_features: int = 2) -> dict:
    return {"n_labels": n_labels, "scaling": scaling, "n_features": n_features}


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9))
def test_there_and_back(counts):
    scaling = Scaling.restore("tfidf", {"idf": np.array([1, 2], dtype=np.float32)}, 2)
    tensors = other_tensors(scaling, np.array(counts))
    assert tensors["label_counts"].shape == (2, sum(count > 0 for count in counts))
    stored = {name: Stored(array) for name, array in {**tensors, "head.output.bias": np.zeros(3)}.items()}
    weights, restored, found = parts_of(PATH, stored, config(len(counts)))
    assert list(weights) == ["head.output.bias"]
    assert restored.arrays["idf"].tolist() == [1, 2]
    assert found.tolist() == counts
    # Older folders have no counts.
    assert other_tensors(Scaling("none"), None) == {}
    assert parts_of(PATH, {}, config(scaling="none"))[2] is None


@pytest.mark.parametrize(
    "packed",
    [[[3, 1], [5, 5]], [[1, 1], [5, 5]], [[0, 4], [5, 5]], [[-1, 2], [5, 5]], [[0], [0]], [[0, 1]], [1, 2]],
)
def test_damaged_counts(packed):
    for dtype in (np.int32, np.int64):
        with pytest.raises(DataError, match="found damaged label_counts; wanted ascending ids below 4"):
            parts_of(PATH, {"label_counts": Stored(np.array(packed, dtype=dtype))}, config(scaling="none"))


def test_history(tmp_path):
    records = [{"epoch": 1, "loss": 0.5, "P@1": 0.25, "nDCG@5": 0.5}, {"epoch": 2, "loss": 0.25}]
    (tmp_path / "history.json").write_text(json.dumps(records))
    found = read_history(tmp_path / "history.json")
    assert found == records
    assert [metrics_of(record) for record in found] == [{"P@1": 0.25, "nDCG@5": 0.5}, {}]


@pytest.mark.parametrize("content", ['{"epoch": 1}', '[{"epoch": 1}, 2]', "3", "", "[1"])
def test_a_damaged_history(content, tmp_path):
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


STATE: dict[str, Any] = {
    "format": ESTIMATOR_FORMAT, "circlet": "0.2.0", "parameters": {"threshold": 0.5}, "encoder": None,
    "target": "named", "classes": {"dtype": "object", "values": None}, "feature_names": None,
}  # fmt: skip
NAMES_ESTIMATOR = ["red", "green"]


def written(folder: Path, content: Any) -> Path:
    path = folder / "estimator.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, np.array(NAMES_ESTIMATOR, dtype=object)),
        ({"target": "indicator"}, np.array([0, 1])),
        ({"target": "single", "classes": {"dtype": "int64", "values": [7, 3]}}, np.array([7, 3])),
        ({"target": "single", "classes": {"dtype": "float64", "values": [0.5, 2.0]}}, np.array([0.5, 2.0])),
        ({"target": "single", "classes": {"dtype": "bool", "values": [False, True]}}, np.array([False, True])),
    ],
)
def test_classes(change, found, tmp_path):
    path = written(tmp_path, {**STATE, **change})
    state = read_estimator(path)
    assert state == {**STATE, **change}
    classes = classes_of(path, state, 3, 2, NAMES_ESTIMATOR)
    assert classes.dtype == found.dtype
    assert classes.tolist() == found.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "found format 3"),
        ({"more": 1}, "found the keys .*'more'"),
        ({"parameters": [1]}, r"found the parameters \[1\]"),
        ({"target": "tree"}, "found the target 'tree'; wanted one of indicator, named, single"),
        ({"feature_names": [1]}, r"found feature names \[1\]"),
        ({"feature_names": ["a"]}, "found 1 feature names; wanted 3"),
        ({"target": ["named"]}, "found the target"),
        *(
            ({"classes": classes}, "found (damaged|. different) classes")
            for classes in (
                None, {}, {"dtype": "nothing", "values": [1, 2]}, {"dtype": "int64", "values": ["a", "b"]},
                {"dtype": "int64", "values": [1]}, {"dtype": "int64", "values": [1, 1]},
                {"dtype": "int64", "values": [[1], [2]]}, {"dtype": "U1000000000", "values": ["a", "b"]},
                {"dtype": "datetime64[s]", "values": [1, 2]},
            )
        ),
    ],
)  # fmt: skip
def test_damaged(change, message, tmp_path):
    path = written(tmp_path, {**STATE, **change})
    with pytest.raises(DataError, match=rf"estimator\.json: {message}"):
        classes_of(path, read_estimator(path), 3, 2, NAMES_ESTIMATOR)
    path = written(tmp_path, [1])
    with pytest.raises(DataError, match="found no description of a classifier"):
        read_estimator(path)
