from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.errors import DataError, ParameterError
from circlet.features.rows import SCALINGS, Entries, Scaling, divide_by_norms, row_norms

ROWS = np.array([[3, 0, 4], [0, 0, 0], [1, 4, 0], [0, 9, 0]], dtype=np.float32)
IDF = np.log(5 / np.array([3, 3, 2])) + 1  # of four rows, 2, 2 and 1 have the feature


def unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


EXPECTED = {
    "none": ROWS,
    "l2": np.array([[0.6, 0, 0.8], [0, 0, 0], [1 / 17**0.5, 4 / 17**0.5, 0], [0, 1, 0]]),
    "sqrt": np.array([[(3 / 7) ** 0.5, 0, (4 / 7) ** 0.5], [0, 0, 0], [0.2**0.5, 0.8**0.5, 0], [0, 1, 0]]),
    "tfidf": unit(ROWS * IDF),
}
MAKE = {
    "dense": np.array,
    "csr": sp.csr_matrix,
    "csr, float64": lambda rows: sp.csr_matrix(rows.astype(np.float64)),
    "csr, integers": lambda rows: sp.csr_matrix(rows.astype(np.int32)),
    "csc": sp.csc_matrix,
    "dense, by columns": np.asfortranarray,
    "dense, float64": lambda rows: rows.astype(np.float64),
}


def as_array(X) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("scaling", EXPECTED)
def test_by_hand(scaling, kind):
    X = MAKE[kind](ROWS)
    scaled = Scaling(scaling).fit(X).transform(X)
    np.testing.assert_allclose(as_array(scaled), EXPECTED[scaling], rtol=1e-6)
    assert scaled.dtype == np.float32
    assert sp.issparse(scaled) == sp.issparse(X)
    if sp.issparse(scaled):
        assert scaled.format == "csr"


def test_standard_by_hand():
    X = np.array([[1, 5], [3, 5], [5, 5]], dtype=np.float32)
    features = Scaling("standard").fit(X)
    np.testing.assert_allclose(features.transform(X), [[-(1.5**0.5), 0], [0, 0], [1.5**0.5, 0]], rtol=1e-6)
    assert features.transform(X).dtype == np.float32
    # New rows are scaled by what fitting saw.
    features = Scaling("standard").fit(np.array([[0, 0], [2, 4]], dtype=np.float32))
    np.testing.assert_allclose(features.transform(np.array([[3, 0]])), [[2, -1]])


def test_negative_values_keep_their_sign_under_the_root():
    for make in (np.array, sp.csr_matrix):
        X = make(np.array([[-9, 16]], dtype=np.float32))
        np.testing.assert_allclose(as_array(Scaling("sqrt").fit(X).transform(X)), [[-0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(("kind", "chosen"), [("csr", "sqrt"), ("dense", "standard")])
def test_auto_chooses_by_kind(kind, chosen):
    assert Scaling().fit(MAKE[kind](ROWS)).kind == chosen


@pytest.mark.parametrize(
    ("scaling", "kind"),
    [pair for pair in product(SCALINGS, ("dense", "csr")) if pair != ("standard", "csr")],
)
def test_manners(scaling, kind):
    X = MAKE[kind](ROWS)
    features = Scaling(scaling).fit(X)
    for array in (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,):
        array.flags.writeable = False  # the caller's matrix is left alone
    scaled = as_array(features.transform(X))
    assert scaling == "standard" or not scaled[1].any()  # empty rows stay empty; standard shifts them
    # A row does not depend on others, or on any.
    np.testing.assert_array_equal(as_array(features.transform(X[2:3])), scaled[2:3])
    assert features.transform(X[:0]).shape == (0, 3)
    np.testing.assert_array_equal(as_array(X), ROWS)
    again = Scaling.restore(features.kind, features.arrays, 3)
    np.testing.assert_array_equal(as_array(again.transform(X)), scaled)
    assert all(array.dtype == np.float32 for array in features.arrays.values())


LARGE = float(np.float32(1e30))
shapes = arrays.array_shapes(min_dims=2, max_dims=2, max_side=5)


@pytest.mark.parametrize("scaling", EXPECTED)
@given(rows=arrays.arrays(np.float32, shapes, elements=st.floats(-LARGE, LARGE, width=32)))
@settings(max_examples=60)
def test_sparse_equals_dense_and_has_norm_one(scaling, rows):
    dense = Scaling(scaling).fit(rows).transform(rows)
    sparse = Scaling(scaling).fit(sp.csr_matrix(rows)).transform(sp.csr_matrix(rows)).toarray()
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)
    if scaling != "none":
        norms = np.linalg.norm(dense.astype(np.float64), axis=1)
        np.testing.assert_allclose(norms, np.where(rows.any(axis=1), 1, 0), rtol=1e-5)


FLOAT32 = np.finfo(np.float32)
EXTREME = [FLOAT32.smallest_subnormal, FLOAT32.tiny, FLOAT32.eps, 1, FLOAT32.max]
any_finite = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.sampled_from(
    [sign * float(value) for value in EXTREME for sign in (-1, 1)]
)


@st.composite
def two_matrices(draw) -> tuple[np.ndarray, np.ndarray]:
    n_features = draw(st.integers(1, 4))
    shapes = st.tuples(st.integers(1, 5), st.just(n_features))
    return tuple(draw(arrays.arrays(np.float32, shapes, elements=any_finite)) for _ in range(2))


@pytest.mark.parametrize("scaling", SCALINGS)
@given(matrices=two_matrices())
@settings(max_examples=100)
def test_finite_rows_stay_finite(scaling, matrices):
    for make in (np.array,) if scaling == "standard" else (np.array, sp.csr_matrix):
        features = Scaling(scaling).fit(make(matrices[0]))
        for rows in matrices:
            scaled = features.transform(make(rows))
            assert np.isfinite(as_array(scaled)).all()
            assert scaled.dtype == np.float32
        assert all(np.isfinite(array).all() for array in features.arrays.values())


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0, 1e-35], [-1, 1]),  # small, but not too small to be scaled
        ([-FLOAT32.max, FLOAT32.max, FLOAT32.max], [-(2**0.5), 0.5**0.5, 0.5**0.5]),
    ],
)
def test_standard_of_extreme_columns(column, expected):
    X = np.array(column, dtype=np.float32)[:, None]
    np.testing.assert_allclose(Scaling("standard").fit(X).transform(X)[:, 0], expected, rtol=1e-5)


def test_standard_of_columns_that_are_almost_constant():
    for least in (1e-45, 1e-40, 2e-38):  # float32 cannot hold the inverse of the deviation
        X = np.array([[0], [least]], dtype=np.float32)
        features = Scaling("standard").fit(X)
        assert features.arrays["scale"] == 1
        assert np.abs(features.transform(X)).max() <= least
    X = np.full((1001, 1), 0.1)  # in doubles, their deviation comes out as 1.4e-17
    features = Scaling("standard").fit(X)
    assert features.arrays["scale"] == 1
    assert not features.transform(X).any()
    neighbors = np.array([[1e6], [np.nextafter(np.float32(1e6), np.float32(2e6))]], dtype=np.float32)
    assert Scaling("standard").fit(neighbors).arrays["scale"] > 1


def test_a_new_value_too_large_for_float32_becomes_the_largest():
    features = Scaling("standard").fit(np.array([[0], [0.002]], dtype=np.float32))
    scaled = features.transform(np.array([[1e38], [-1e38], [0.001]], dtype=np.float32))
    np.testing.assert_allclose(scaled, [[FLOAT32.max], [-FLOAT32.max], [0]], atol=1e-6)


@pytest.mark.parametrize("make", [np.array, sp.csr_matrix])
def test_tfidf_of_the_largest_numbers(make):
    X = make(np.array([[FLOAT32.max, FLOAT32.max], [0, 0], [0, 0]], dtype=np.float32))
    scaled = as_array(Scaling("tfidf").fit(X).transform(X))
    np.testing.assert_allclose(scaled, [[0.5**0.5, 0.5**0.5], [0, 0], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "arrays"),
    [
        ("l2", {"idf": np.ones(3)}),
        ("tfidf", {}),
        ("tfidf", {"idf": np.ones(2)}),
        ("tfidf", {"idf": np.ones((3, 1))}),
        ("standard", {"mean": np.ones(3)}),
        ("standard", {"mean": np.ones(3), "scale": np.ones(4)}),
    ],
)
def test_arrays_that_do_not_fit_are_not_restored(scaling, arrays):
    message = rf"found the arrays .* for the scaling {scaling}; wanted .* of 3 numbers"
    with pytest.raises(DataError, match=message):
        Scaling.restore(scaling, arrays, 3)


def test_unknown_scalings():
    for kind in (["l2"], None, 2, "minmax"):
        with pytest.raises(
            ParameterError, match=r"`scaling`: found .*; wanted auto or one of none, l2, sqrt, tfidf, standard"
        ):
            Scaling(kind)
    with pytest.raises(DataError, match=r"found the scaling 'auto'; wanted one of none, l2"):
        Scaling.restore("auto", {}, 3)
    with pytest.raises(ParameterError, match="standard would make sparse rows dense: choose l2, sqrt or tfidf"):
        Scaling("standard").fit(sp.csr_matrix(ROWS))


STORED = sp.csr_matrix([[0, 3, 4], [0, 0, 0], [5, 0, 0]], dtype=np.float64)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_entries_of_a_matrix(form):
    rows = Entries.of(STORED.asformat(form))
    assert rows.n == 3
    assert rows.starts.tolist() == [0, 2, 2, 3]
    assert rows.columns.tolist() == [1, 2, 0]
    assert rows.values.tolist() == [3, 4, 5]
    assert rows.values.dtype == np.float32
    np.testing.assert_array_equal(rows.matrix(3).toarray(), STORED.toarray())
    for first, last in ((0, 3), (0, 1), (1, 2), (1, 3), (3, 3)):
        part = rows.part(first, last)
        assert part.n == last - first
        np.testing.assert_array_equal(part.matrix(3).toarray(), STORED[first:last].toarray())


def test_columns_come_in_order_and_once():
    messy = sp.csr_matrix(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    rows = Entries.of(messy)
    assert rows.columns.tolist() == [0, 2]
    assert rows.values.tolist() == [2, 5]
    scaled = Scaling("l2").fit(messy).transform(messy)
    np.testing.assert_allclose(scaled.toarray(), [[2 / 29**0.5, 0, 5 / 29**0.5]], rtol=1e-6)
    assert messy.indices.tolist() == [2, 0, 2]  # the caller's matrix stays as it is


@pytest.mark.parametrize(("starts", "columns"), [("int32", "int32"), ("int64", "int32"), ("int64", "int64")])
def test_products_by_hand(starts, columns):
    rows = Entries.of(STORED)
    rows = Entries(rows.starts.astype(starts), rows.columns.astype(columns), rows.values)
    weight = np.array([[1, 2], [10, 20], [100, 200]], dtype=np.float32)
    weight.flags.writeable = False  # as those of a mapped file
    product = rows.times(weight, np.array([0.5, -1], dtype=np.float32))
    assert product.tolist() == [[430.5, 859], [0.5, -1], [5.5, 9]]
    assert product.dtype == np.float32


def test_norms_by_hand():
    rows = Entries.of(STORED)
    assert row_norms(rows.values, rows.starts).tolist() == [5, 1, 5]
    values = rows.values.astype(np.float64)
    divide_by_norms(values, rows.starts)
    assert values.tolist() == [0.6, 0.8, 1]
    beyond_float32 = np.array([3e30, 4e30, 3e-30, 4e-30], dtype=np.float32)
    assert row_norms(beyond_float32, np.array([0, 2, 4])) == pytest.approx([5e30, 5e-30])


@given(st.lists(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(-9, 9, width=32)), min_size=1))
def test_a_row_has_the_same_norm_alone_to_the_bit(rows):
    starts = np.cumsum([0, *map(len, rows)])
    together = row_norms(np.concatenate(rows), starts)
    alone = [row_norms(row, np.array([0, len(row)]))[0] for row in rows]
    assert together.tolist() == alone
