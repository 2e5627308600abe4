from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import MappedRows
from circlet.errors import DataError
from circlet.runtime.documents import as_many, as_rows, as_texts


def test_one_document_is_a_batch_of_one():
    for one, expected in (
        ("a text", ["a text"]),
        ([1.0, 2.0], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        (np.array([True, False]), [[1, 0]]),
    ):
        assert np.array_equal(as_many(one), expected)
    rows: list[Any] = [[[1.0, 2.0]], np.zeros((2, 3)), sp.csr_matrix((2, 3)), []]
    texts: list[Any] = [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)]
    for many in (*rows, *texts):
        assert as_many(many) is many
    assert [as_texts(many) for many in (*rows, np.zeros(3))] == [None] * 5
    assert [as_texts(many) for many in texts] == [["a", "b"]] * 4


class TestAsRows:
    def test_numbers_of_every_kind(self):
        for rows in ([[1, 2]], ((1.5, 2),), np.array([[1, 2]]), np.array([[True, False]]), [[np.float16(1), 2]]):
            found = as_rows(rows, 2)
            assert found.dtype == np.float32
            assert found.shape == (1, 2)
        assert as_rows(np.full((1, 2), 3e38, dtype=np.float32), 2).shape == (1, 2)  # large, but finite
        for form in ("csr", "csc", "coo"):
            assert as_rows(sp.csr_matrix([[1.0, 0]]).asformat(form), 2).format == "csr"

    def test_the_callers_matrix_stays_as_it_is(self):
        X = sp.csr_matrix(([1.0, 2.0], [1, 0], [0, 2]), shape=(1, 2))
        as_rows(X, 2)
        assert X.indices.tolist() == [1, 0]

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([[1.0]], r"found rows of shape \(1, 1\); this model wants 2 features"),
            ([1.0, 2.0], r"found rows of shape \(2,\)"),
            ([[1.0], [1.0, 2.0]], "found no feature rows"),
            ([["a", "b"]], "found no feature rows"),
            ([[None, 1]], "found NaN or infinity"),
            ([[np.nan, 1]], "found NaN or infinity"),
            ([[1e300, 1]], "found NaN or infinity"),
            (sp.csr_matrix([[np.inf, 1]]), "found NaN or infinity"),
            (sp.csr_matrix([[1j, 1]]), "found rows of type complex128"),
            (np.array([[1j, 1]]), "found rows of type complex128; wanted real numbers"),
            ([[10**400, 1]], "found no feature rows"),
        ],
    )
    def test_bad_rows(self, rows, words):
        with pytest.raises(DataError, match=words):
            as_rows(rows, 2)

    def test_rows_of_files_stay_there(self, tmp_path):
        rows = sp.csr_matrix(np.eye(3, dtype=np.float32))
        for name in ("data", "indices", "indptr"):
            np.save(tmp_path / f"{name}.npy", getattr(rows, name))
            setattr(rows, name, np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
        some = MappedRows(rows, np.array([2, 0]))
        assert as_rows(some, 3) is some
        with pytest.raises(DataError, match=r"found rows of shape \(2, 3\); this model wants 4 features"):
            as_rows(some, 4)

    def test_names_of_columns(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"a": [1.0], "b": [2.0]})
        assert as_rows(frame, 2, ["a", "b"]).tolist() == [[1, 2]]
        assert as_rows([[1.0, 2.0]], 2, ["a", "b"]).tolist() == [[1, 2]]
        with pytest.raises(DataError, match="a data frame with other columns"):
            as_rows(frame, 2, ["b", "a"])
