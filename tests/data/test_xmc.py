from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_svmlight_file
from tests.data.layouts import put

from circlet.data import matrices
from circlet.errors import DataError

VALUES = st.one_of(st.just(0.0), st.floats(-(2.0**120), 2.0**120, width=32))


@st.composite
def pairs(draw):
    rows, features, labels = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    X = draw(arrays(np.float32, (rows, features), elements=VALUES))
    Y = draw(arrays(np.float32, (rows, labels), elements=st.sampled_from([0.0, 1.0])))
    return sp.csr_matrix(X), sp.csr_matrix(Y)


def same(a, b):
    return a.shape == b.shape and np.array_equal(a.toarray(), b.toarray())


@settings(max_examples=60)
@given(pair=pairs(), name=st.sampled_from(["a.txt", "a.txt.gz"]))
def test_round_trip(tmp_path_factory, pair, name):
    folder = tmp_path_factory.mktemp("xmc")
    matrices.write_sparse_text(folder / "trn_X_Xf.txt", pair[0])
    assert same(matrices.read_sparse_text(folder / "trn_X_Xf.txt"), pair[0])
    matrices.write_xmc(folder / "a.svm", *pair, header=False)
    for read, written in zip(matrices.read_xmc(folder / "a.svm"), pair, strict=True):
        assert read.shape[0] == written.shape[0]
        read.resize(written.shape)  # without a header, empty last columns are lost, and nothing else
        assert same(read, written)
    matrices.write_xmc(folder / name, *pair)
    X, Y = matrices.read_xmc(folder / name)
    assert same(X, pair[0])
    assert same(Y, pair[1])
    assert X.dtype == Y.dtype == np.float32
    assert X.has_sorted_indices
    assert X.data.all()


def test_blocks_join(tmp_path):
    X = sp.random(20_000, 6, density=0.4, format="csr", dtype=np.float32, random_state=0)
    Y = (sp.random(20_000, 4, density=0.4, format="csr", random_state=1) > 0).astype(np.float32)
    matrices.write_xmc(tmp_path / "a.txt", X, Y)
    read = matrices.read_xmc(tmp_path / "a.txt")
    assert same(read[0], X)
    assert same(read[1], Y)


@pytest.mark.parametrize(
    "content",
    [
        b"3 4 5\n0,2 1:0.5 3:2\n 0:1\n4\n",
        b"3 4 5\r\n0,2 1:0.5 3:2\r\n 0:1\r\n4\r\n",
        b"3 4 5\n2,0 3:2 1:0.5\n 0:1\n4",  # out of order, and no line end
        b"\xef\xbb\xbf3 4 5\n0,2\t1:5e-1 3:2.0\n0:1\n4 2:0\n\n\n",
    ],
)
def test_by_hand(tmp_path, content):
    X, Y = matrices.read_xmc(put(tmp_path, content))
    assert X.toarray().tolist() == [[0, 0.5, 0, 2], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert Y.toarray().tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_blank_lines_are_rows_where_the_header_counts_them(tmp_path):
    X, Y = matrices.read_xmc(put(tmp_path, b"4 2 2\n\n0 1:1\n\n \n"))
    assert np.diff(X.indptr).tolist() == [0, 1, 0, 0]
    assert np.diff(Y.indptr).tolist() == [0, 1, 0, 0]


@settings(max_examples=60)
@given(pair=pairs())
def test_numbers_are_those_that_scikit_learn_reads(tmp_path_factory, pair):
    path = tmp_path_factory.mktemp("xmc") / "a.svm"
    # Its reader skips rows that have nothing at all.
    kept = np.flatnonzero(pair[0].getnnz(axis=1) + pair[1].getnnz(axis=1))
    assume(len(kept) and pair[0].nnz)
    matrices.write_xmc(path, pair[0][kept], pair[1][kept], header=False)
    X, Y = matrices.read_xmc(path)
    expected, labels = load_svmlight_file(str(path), dtype=np.float32, multilabel=True, zero_based=True)
    expected.eliminate_zeros()
    assert X.data.tolist() == expected.data.tolist()
    assert X.indices.tolist() == expected.indices.tolist()
    assert X.indptr.tolist() == expected.indptr.tolist()
    assert [tuple(row.indices) for row in Y] == labels


@pytest.mark.parametrize(
    "row", [b"1 2:", b"1 :2", b"1 2: 3", b"1 2 :3", b"1 2:3:4", b"1 2:3 4", b"1 2 3:4 5", b"1 2:3-4"]
)
def test_every_feature_is_an_index_and_a_value(tmp_path, row):
    with pytest.raises(DataError, match=r":2: found .*; wanted"):
        matrices.read_xmc(put(tmp_path, b"0 1:1\n" + row + b"\n0 1:1\n"))


def test_svmlight_comments(tmp_path):
    X, Y = matrices.read_xmc(put(tmp_path, b"# a file\n0 1:1 # one\n  # indented\n1 0:1\n\n"))
    assert X.toarray().tolist() == [[0, 1], [1, 0]]
    assert Y.toarray().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("content", "line", "found", "wanted"),
    [
        (b"2 3 3\n0 1:1\n", None, "found 1 rows", "wanted 2, as its header says"),
        (b"1 3 3\n0 1:1\n1 1:1\n", 3, "found row 2", "wanted 1 rows, as the header says"),
        (b"1000000000000 3 3\n0 1:1\n", None, "found 1 rows", "wanted 1000000000000, as its header"),
        (b"1 1000000000000 3\n0 1:1\n", 1, "claims 1000000000000 columns", "wanted at most 2147483647"),
        (b"1 3 3\n0 3:1\n", 2, "found feature 3", "wanted a feature below 3"),
        (b"1 3 3\n0,3 1:1\n", 2, "found label 3", "wanted a label below 3"),
        (b"1 3 3\n0 -1:1\n", 2, "found feature index '-1'", "wanted an integer from 0"),
        (b"1 3 3\n-1 1:1\n", 2, "found label field '-1'", "wanted integers >= 0"),
        (b"1 3 3\n0.5 1:1\n", 2, "found label field '0.5'", "wanted integers >= 0"),
        (b"1 3 3\n0,,1 1:1\n", 2, "found label field '0,,1'", "wanted integers >= 0"),
        (b"1 3 3\n0 1:nan\n", 2, "found feature value '1:nan'", "wanted a finite number"),
        (b"1 3 3\n0 1:-Inf\n", 2, "found feature value '1:-Inf'", "wanted a finite number"),
        (b"1 3 3\n0 1:1e99\n", 2, "found feature value inf", "wanted a finite float32 number"),
        (b"2 3 3\n0 1:1\n0 1:1 1:2\n", 3, "found feature 1 twice", "wanted each feature once per row"),
        (b"2 3 3\n0 1:1\n2,2 1:1\n", 3, "found label 2 twice", "wanted each label once per row"),
        (b"1 3 3\n0 1:1 2\n", 2, "found '2'", "wanted index:value"),
        (b"1 3 3\n 0,1 1:1\n", 2, "found '0,1'", "wanted index:value"),
        (b"1 3 3\n0 1:x\n", 2, "found '1:x'", "wanted a row such as"),
        (b"1 3 3\n0 1:\n", 2, "found feature value ''", "wanted a number"),
        (b"1 3 3\n0 1:1_0\n", 2, "found '1:1_0'", "wanted a row such as"),
        (b"1 3 3\n0 qid:3 1:1\n", 2, "found 'qid:3'", "wanted a row such as"),
        (b"1 3 3\n0 1:1 # no\n", 2, "found '#'", "wanted a row such as"),
        (b"0 99999999999:1\n", 1, "found feature index '99999999999'", "wanted an integer from 0 to"),
        (b"99999999999 1:1\n", 1, "found label 99999999999", "wanted a label below 2147483647"),
        (b"1 3 3\n0 1:\x001\n", 2, "found a zero byte", "wanted lines of text"),
        (b"", None, "found an empty file", "wanted data"),
        (b"\n\n", None, "found no rows", "wanted at least one"),
        (b"0 3 3\n", None, "found no rows", "wanted at least one"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, line, found, wanted):
    path = put(tmp_path, content)
    with pytest.raises(DataError) as caught:
        matrices.read_xmc(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert found in message
    assert wanted in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0:1\n", r":1: found no header; wanted two integers, rows and columns"),
        (b"2 3\n0:1\n", r": found 1 rows; wanted 2, as its header says"),
        (b"1 3\n3:1\n", r":2: found column 3; wanted a column below 3"),
        (b"1 3\n1,2 0:1\n", r":2: found '1,2'; wanted index:value"),
    ],
)
def test_newer_form_faults(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        matrices.read_sparse_text(put(tmp_path, content))


def test_damaged_and_missing_files(tmp_path):
    packed = gzip.compress(b"1 3 3\n0 1:1\n" * 50)
    with pytest.raises(DataError, match=r"a\.gz: found a gzip file that ends too early; wanted a complete one"):
        matrices.read_xmc(put(tmp_path, packed[:-9], "a.gz"))
    with pytest.raises(DataError, match=r"a\.gz: found a damaged gzip file .*; wanted an intact one"):
        matrices.read_xmc(put(tmp_path, packed[:-8] + bytes(8), "a.gz"))
    with pytest.raises(DataError, match=r"cannot read .*none\.txt: No such file"):
        matrices.read_xmc(tmp_path / "none.txt")


def test_a_header_that_claims_a_trillion_rows_allocates_nothing(tmp_path):
    path = put(tmp_path, b"1000000000000 2000000000 2000000000\n0 1:1\n")
    tracemalloc.start()
    with pytest.raises(DataError):
        matrices.read_xmc(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\n\n4\n", r":3: found row number 4; wanted one from 1 to 3"),
        (b"1\n0\n", r":2: found row number 0; wanted one from 1 to 3"),
        (b"1\n1\n", r": found a row number twice in split 0"),
        (b"1\nx\n", r":2: found 'x'; wanted row numbers"),
        (b"1 2\n3\n", r":2: found 1 columns; wanted 2, as above"),
        (b"99999999999999999999\n", r":1: found '9+'; wanted row numbers"),
        (b"", r": found an empty file"),
        (b"\n", r": found no row numbers"),
    ],
)
def test_bad_split_files(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        matrices.read_split_rows(put(tmp_path, content, "a_trSplit.txt"), 0, 3)


def test_writer_refuses_what_does_not_fit(tmp_path):
    one, two = sp.csr_matrix(np.ones((1, 1))), sp.csr_matrix(np.ones((2, 1)))
    with pytest.raises(DataError, match="found 1 rows in X and 2 in Y"):
        matrices.write_xmc(tmp_path / "a.txt", one, two)
    with pytest.raises(DataError, match=r"Y: found 2\.0 at row 1, label 0; wanted 0 or 1"):
        matrices.write_xmc(tmp_path / "a.txt", one, one * 2)
    assert list(tmp_path.iterdir()) == []
