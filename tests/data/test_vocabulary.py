from __future__ import annotations

import numpy as np

from circlet.data.documents import read_splits
from circlet.data.records import Record


def test_labels_are_numbered_by_name_train_first():
    train = [Record(1, "a", ("z", "b")), Record(2, "b", ())]
    test = [Record(1, "c", ("a", "z", "é"))]
    first, second, names = read_splits(train, test)
    assert names == ["b", "z", "a", "é"]
    assert first.Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert second.Y.toarray().tolist() == [[0, 1, 1, 1]]
    assert first.Y.dtype == np.float32
    assert first.Y.has_sorted_indices


def test_there_may_be_no_test_part():
    only, nothing, names = read_splits(iter([Record(1, "a", ("b", "b", "a"))]))
    assert nothing is None
    assert names == ["a", "b"]
    assert only.texts == ["a"]


def test_no_labels_at_all():
    only, _, names = read_splits([Record(1, "a", ()), Record(2, "b", ())])
    assert names == []
    assert only.Y.shape == (2, 0)


def test_documents_are_called_by_their_ids_or_rows():
    named, _, _ = read_splits([Record(1, "a", (), "x"), Record(2, "b", ()), Record(3, "c", (), 7)])
    assert named.ids == ["x", 1, 7]
    assert named.take([2, 0]).ids == [7, "x"]
    plain, _, _ = read_splits([Record(1, "a", ())])
    assert plain.ids is None
