from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from circlet.data import Dataset, Split
from circlet.errors import DataError, ParameterError
from circlet.features.embed import with_features


def dataset(X_train, X_test=None) -> Dataset:
    def split(X):
        X = None if X is None else sp.csr_matrix(np.array(X, dtype=np.float32))
        n = 2 if X is None else X.shape[0]
        return Split(X, sp.csr_matrix(np.ones((n, 1), dtype=np.float32)), [f"text {row}" for row in range(n)])

    return Dataset("tiny", split(X_train), None if X_test is None else split(X_test))


def write(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for part, rows in arrays.items():
        np.save(folder / f"X.{part}.npy", np.array(rows, dtype=np.float32))
    return folder


TINY = dataset([[3, 0, 4], [0, 0, 0]], [[0, 2, 0]])


def test_dense_rows_take_the_place_of_sparse_ones(tmp_path):
    write(tmp_path, trn=[[1, 2], [3, 4]], tst=[[5, 6]])
    made = with_features(TINY, tmp_path, "dense")
    np.testing.assert_array_equal(made.train.X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(made.test.X, [[5, 6]])
    assert made.train.X.dtype == np.float32
    assert made.n_features == 2
    assert made.format == "dense features"
    assert made.train.texts == TINY.train.texts
    assert made.train.Y is TINY.train.Y


def test_both_halves_of_a_row_have_norm_one(tmp_path):
    write(tmp_path, trn=[[0, 2], [3, -4]], tst=[[5, 0]])
    made = with_features(TINY, tmp_path, "both")
    X = made.train.X
    assert type(X) is sp.csr_matrix
    assert X.dtype == np.float32
    np.testing.assert_allclose(X.toarray(), [[0.6, 0, 0.8, 0, 1], [0, 0, 0, 0.6, -0.8]], atol=1e-7)
    np.testing.assert_allclose(made.test.X.toarray(), [[0, 1, 0, 1, 0]], atol=1e-7)
    assert X.nnz == 5  # zeros are not stored
    assert made.format == "in memory, with dense features beside them"
    np.testing.assert_array_equal(TINY.train.X.toarray(), [[3, 0, 4], [0, 0, 0]])  # the caller's is as it was


@settings(max_examples=30)
@given(data=st.data(), n=st.integers(1, 5), sparse=st.booleans())
def test_both_is_what_stacking_unit_rows_gives(tmp_path_factory, data, n, sparse):
    values = st.floats(-100, 100, width=32)
    X, dense = (data.draw(arrays(np.float32, (n, columns), elements=values)) for columns in (4, 3))
    folder = write(tmp_path_factory.mktemp("features"), trn=dense)
    given_rows = Split(sp.csr_matrix(X) if sparse else X, sp.csr_matrix(np.ones((n, 1), dtype=np.float32)))
    made = with_features(Dataset("d", given_rows), folder, "both").train.X
    unit = [
        rows / np.where((norm := np.linalg.norm(rows.astype(float), axis=1, keepdims=True)) > 0, norm, 1)
        for rows in (X, dense)
    ]
    np.testing.assert_allclose(made.toarray(), np.hstack(unit), atol=1e-6)
    assert made.has_canonical_format
    assert made.data.all()


def test_no_test_rows_need_no_file(tmp_path):
    made = with_features(dataset([[1, 0]]), write(tmp_path, trn=[[1, 2]]), "both")
    assert made.test is None
    assert made.n_features == 4


def test_text_datasets_take_dense_features_alone(tmp_path):
    write(tmp_path, trn=[[1], [2]])
    texts = dataset(None)
    assert with_features(texts, tmp_path, "dense").n_features == 1
    with pytest.raises(DataError, match="tiny: found in memory, without features; wanted features"):
        with_features(texts, tmp_path, "both")


def test_an_archive_with_one_array_will_do(tmp_path):
    np.savez(tmp_path / "X.trn.npz", np.ones((2, 3), dtype=np.float16))
    assert with_features(dataset(None), tmp_path, "dense").train.X.dtype == np.float32


def test_what_does_not_fit(tmp_path):
    with pytest.raises(ParameterError, match="`mode` must be one of dense, both, got 'sparse'"):
        with_features(TINY, tmp_path, "sparse")
    with pytest.raises(DataError, match=r"found no X\.trn\.npy; wanted dense features of 2 rows"):
        with_features(TINY, tmp_path / "nowhere")
    write(tmp_path, trn=[[1, 2], [3, 4]])
    with pytest.raises(DataError, match=r"found no X\.tst\.npy; wanted dense features of 1 rows"):
        with_features(TINY, tmp_path)
    write(tmp_path, tst=[[1, 2], [3, 4]])
    with pytest.raises(DataError, match=r"X\.tst\.npy: found 2 rows; wanted one for each of the 1 rows"):
        with_features(TINY, tmp_path)
    write(tmp_path, tst=[[1, 2, 3]])
    with pytest.raises(DataError, match=r"found 2 columns in X\.trn and 3 in X\.tst; wanted the same"):
        with_features(TINY, tmp_path)
    write(tmp_path, tst=[[1, np.nan]])
    with pytest.raises(DataError, match=r"X\.tst\.npy: found nan at row 1"):
        with_features(TINY, tmp_path)
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(np.eye(2)))
    with pytest.raises(DataError, match=r"X\.trn\.npz: found a sparse matrix; wanted dense features"):
        with_features(TINY, tmp_path)
