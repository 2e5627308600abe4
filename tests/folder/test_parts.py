from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.folder.contents import other_tensors, parts_of
from circlet.folder.tensors import Stored

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


def test_older_folders_have_no_counts():
    assert other_tensors(Scaling("none"), None) == {}
    assert parts_of(PATH, {}, config(scaling="none")).label_counts is None


@pytest.mark.parametrize(
    "packed",
    [[[3, 1], [5, 5]], [[1, 1], [5, 5]], [[0, 4], [5, 5]], [[-1, 2], [5, 5]], [[0], [0]], [[0, 1]], [1, 2]],
)
def test_damaged_counts(packed):
    for dtype in (np.int32, np.int64):
        with pytest.raises(DataError, match="found damaged label_counts; wanted ascending ids below 4"):
            parts_of(PATH, {"label_counts": Stored(np.array(packed, dtype=dtype))}, config(scaling="none"))


def test_arrays_of_another_scaling():
    stored = {"features.mean": Stored(np.zeros(2, dtype=np.float32))}
    with pytest.raises(DataError, match=r"found the arrays \['mean'\] for the scaling tfidf; wanted \['idf'\]"):
        parts_of(PATH, stored, config())
