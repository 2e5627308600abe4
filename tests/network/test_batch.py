from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.network.encoders import SparseRows, as_batch, label_sets

CASES = {
    "ordinary": np.array([[0, 2, 0, 1], [3, 0, 0, -1], [0, 0.5, 0, 0]]),
    "empty rows": np.array([[0, 0, 0], [1, 0, 2], [0, 0, 0]]),
    "an empty first and last column": np.array([[0, 1, 2, 0], [0, 3, 0, 0]]),
    "no entries": np.zeros((3, 4)),
    "one cell": np.ones((1, 1)),
}


class TestSparseRows:
    @pytest.mark.parametrize("case", CASES)
    def test_both_orders_hold_the_matrix(self, case):
        dense = CASES[case].astype(np.float32)
        batch = SparseRows.for_training(sp.csr_matrix(dense))
        assert len(batch) == len(dense)
        ends = [*batch.starts[1:].tolist(), len(batch.columns)]
        by_rows = np.zeros_like(dense)
        for row, (start, end) in enumerate(zip(batch.starts.tolist(), ends, strict=True)):
            by_rows[row, batch.columns[start:end]] = batch.values[start:end]
        np.testing.assert_array_equal(by_rows, dense)
        entries = batch.by_columns
        ends = [*entries.starts[1:].tolist(), len(entries.rows)]
        by_columns = np.zeros_like(dense)
        for column, start, end in zip(entries.touched.tolist(), entries.starts.tolist(), ends, strict=False):
            by_columns[entries.rows[start:end], column] = entries.values[start:end]
        np.testing.assert_array_equal(by_columns, dense)

    def test_types_do_not_depend_on_the_matrix(self):
        X = sp.csr_matrix(CASES["ordinary"].astype(np.float64))
        batch = SparseRows.for_training(X)
        entries = batch.by_columns
        assert batch.values.dtype == entries.values.dtype == torch.float32
        for tensor in (batch.columns, batch.starts, entries.touched, entries.rows, entries.starts):
            assert tensor.dtype == torch.int64

    def test_prediction_does_not_transpose(self, monkeypatch):
        def refuse(*_):
            raise AssertionError("transposed")

        X = sp.csr_matrix(CASES["ordinary"].astype(np.float32))
        monkeypatch.setattr(type(X), "tocsc", refuse)
        assert as_batch(X).by_columns is None

    def test_on_its_own_device_it_is_itself(self):
        batch = SparseRows.for_training(sp.csr_matrix(CASES["ordinary"]))
        assert batch.to(torch.device("cpu")) is batch
        moved = batch.to(torch.device("meta"))
        assert moved.columns.device.type == moved.by_columns.values.device.type == "meta"


def test_label_sets():
    labels = label_sets(sp.csr_matrix([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=np.float32))
    assert labels.ids.tolist() == [1, 2, 0]
    assert labels.starts.tolist() == [0, 2, 2]
    assert labels.documents.tolist() == [0, 0, 2]
    assert labels.counts().tolist() == [2, 0, 1]
    assert len(labels) == 3
    moved = labels.to(torch.device("meta"))
    assert {moved.ids.device.type, moved.starts.device.type, moved.documents.device.type} == {"meta"}


def test_dense_rows_as_the_network_takes_them():
    rows = CASES["ordinary"].astype(np.float32)
    dense = as_batch(np.asfortranarray(rows))
    assert dense.is_contiguous()
    np.testing.assert_array_equal(dense, rows)
