from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.features.rows import Entries, divide_by_norms, row_norms

ROWS = sp.csr_matrix([[0, 3, 4], [0, 0, 0], [5, 0, 0]], dtype=np.float64)


def test_of_a_matrix():
    rows = Entries.of(ROWS)
    assert rows.n == 3
    assert rows.starts.tolist() == [0, 2, 2, 3]
    assert rows.columns.tolist() == [1, 2, 0]
    assert rows.values.tolist() == [3, 4, 5]
    assert rows.values.dtype == np.float32


def test_columns_come_in_order_and_once():
    messy = sp.csr_matrix(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    rows = Entries.of(messy)
    assert rows.columns.tolist() == [0, 2]
    assert rows.values.tolist() == [2, 5]
    assert messy.indices.tolist() == [2, 0, 2]  # the caller's matrix stays as it is


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_every_form(form):
    np.testing.assert_array_equal(Entries.of(ROWS.asformat(form)).matrix(3).toarray(), ROWS.toarray())


@pytest.mark.parametrize(("first", "last"), [(0, 3), (0, 1), (1, 2), (1, 3), (3, 3)])
def test_parts(first, last):
    part = Entries.of(ROWS).part(first, last)
    assert part.n == last - first
    np.testing.assert_array_equal(part.matrix(3).toarray(), ROWS[first:last].toarray())


@pytest.mark.parametrize(("starts", "columns"), [("int32", "int32"), ("int64", "int32"), ("int64", "int64")])
def test_products_by_hand(starts, columns):
    rows = Entries.of(ROWS)
    rows = Entries(rows.starts.astype(starts), rows.columns.astype(columns), rows.values)
    weight = np.array([[1, 2], [10, 20], [100, 200]], dtype=np.float32)
    weight.flags.writeable = False  # as those of a mapped file
    product = rows.times(weight, np.array([0.5, -1], dtype=np.float32))
    assert product.tolist() == [[430.5, 859], [0.5, -1], [5.5, 9]]
    assert product.dtype == np.float32


class TestNorms:
    def test_by_hand(self):
        rows = Entries.of(ROWS)
        assert row_norms(rows.values, rows.starts).tolist() == [5, 1, 5]
        values = rows.values.astype(np.float64)
        divide_by_norms(values, rows.starts)
        assert values.tolist() == [0.6, 0.8, 1]

    def test_beyond_float32(self):
        values = np.array([3e30, 4e30, 3e-30, 4e-30], dtype=np.float32)
        assert row_norms(values, np.array([0, 2, 4])) == pytest.approx([5e30, 5e-30])

    @given(
        st.lists(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(-9, 9, width=32)), min_size=1)
    )
    def test_a_row_has_the_same_norm_alone_to_the_bit(self, rows):
        starts = np.cumsum([0, *map(len, rows)])
        together = row_norms(np.concatenate(rows), starts)
        alone = [row_norms(row, np.array([0, len(row)]))[0] for row in rows]
        assert together.tolist() == alone
