from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.data.feedback import Judged, corrected
from circlet.errors import DataError

Y = sp.csr_matrix(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32))
GIVEN = Dataset("d", Split(None, Y, ["a", "b", "c"]), Split(None, Y[:1], ["t"]), ["x", "y"])


def test_by_hand():
    feedback = [
        Judged("c", ("new",), ("x", "unknown")),
        Judged("d", ("y", "other"), ("x",)),
        Judged("e", (), ("x",)),
    ]
    found = corrected(GIVEN, feedback)
    assert found.label_names == ["x", "y", "new", "other"]
    assert found.train.texts == ["a", "b", "c", "d"]
    assert found.train.Y.toarray().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    assert found.train.Y.nnz == 6
    assert found.test is not None
    assert found.test.Y.toarray().tolist() == [[1, 0, 0, 0]]
    assert GIVEN.train.Y.toarray().tolist() == [[1, 0], [0, 1], [1, 1]]


def test_nothing_to_add():
    found = corrected(GIVEN, [])
    assert found.label_names == ["x", "y"]
    assert (found.train.Y != Y).nnz == 0


def test_labels_with_uris():
    given = replace(GIVEN, label_uris=["u:x", "u:y"])
    feedback = [
        Judged("a", ("u:y", "new"), ("u:x",)),
        Judged("d", ("x",), ()),
        Judged("d", ("u:y",), ("u:x",)),
    ]
    found = corrected(given, feedback)
    assert found.label_names == ["x", "y", "new"]
    assert found.label_uris == ["u:x", "u:y", "new"]
    assert found.train.texts == ["a", "b", "c", "d"]
    assert found.train.Y.toarray().tolist() == [[0, 1, 1], [0, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_rows_are_refused():
    rows = Dataset("rows", Split(sp.csr_matrix((3, 4), dtype=np.float32), Y), None, ["x", "y"])
    with pytest.raises(DataError, match="feedback is about texts"):
        corrected(rows, [])
