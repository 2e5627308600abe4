from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.data.layouts import csr

from circlet.data import Dataset, Split, load_dataset, matrices
from circlet.data import dataset as _mapped
from circlet.errors import DataError


def npy(array):
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def pack(path, **parts):
    """An .npz of these members; bytes go in as they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(f"{name}.npy", part if isinstance(part, bytes) else npy(part))
    return path


PARTS = {
    "data": np.ones(2, np.float32),
    "indices": np.array([0, 1], np.int32),
    "indptr": np.array([0, 1, 2], np.int32),
    "shape": np.array([2, 2]),
    "format": np.array(b"csr"),
}


@pytest.mark.parametrize(
    ("format_", "files"),
    [
        ("npz matrices, sparse features", ["X.trn.npz", "X.tst.npz", "Y.trn.npz", "Y.tst.npz"]),
        ("npz matrices, dense features", ["X.trn.npy", "X.tst.npy", "Y.trn.npz", "Y.tst.npz"]),
        ("mapped matrices, sparse features", ["X.trn", "X.tst", "Y.trn", "Y.tst"]),
    ],
)
@settings(max_examples=20)
@given(data=st.data(), n=st.integers(1, 5), repeats=st.sampled_from([1, 300]))
def test_round_trip(tmp_path_factory, format_, files, data, n, repeats):
    folder, dense = tmp_path_factory.mktemp("matrices"), "dense" in format_
    X = np.tile(data.draw(arrays(np.float32, (n, 3), elements=st.floats(-10, 10, width=32))), (repeats, 1))
    Y = np.tile(data.draw(arrays(np.float32, (n, 4), elements=st.sampled_from([0.0, 1.0]))), (repeats, 1))
    split = Split(X if dense else csr(X), csr(Y))
    matrices.write_matrices(folder, Dataset("d", split, split), mapped="mapped" in format_)
    assert sorted(path.name for path in folder.iterdir()) == files
    read = load_dataset(folder)
    assert read.format == format_
    for part in (read.train, read.test):
        assert sp.issparse(part.X) != dense
        assert np.array_equal(part.X if dense else part.X.toarray(), X)
        assert np.array_equal(part.Y.toarray(), Y)
        assert part.X.dtype == part.Y.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.int8, bool, np.int64, np.float64, np.float16, ">f4", ">i8"])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_every_type_and_order_of_a_sparse_matrix(tmp_path, dtype, kind):
    M = (sp.csr_matrix if kind == "csr" else sp.csc_matrix)(np.array([[0, 1, 1], [1, 0, 0]], np.float32))
    path = pack(
        tmp_path / "Y.npz",
        data=M.data.astype(dtype),
        indices=M.indices,
        indptr=M.indptr.astype(">i8"),
        shape=np.array(M.shape),
        format=np.array(kind),
    )
    for read in (matrices.read_labels(path), matrices.read_features(path)):
        assert read.format == "csr"
        assert read.dtype == np.float32
        assert read.toarray().tolist() == [[0, 1, 1], [1, 0, 0]]


def test_other_ways_to_save_a_matrix(tmp_path):
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "X.npy").open("wb") as out:
            np.lib.format.write_array(out, np.eye(2), version=version)
        assert matrices.read_features(tmp_path / "X.npy").tolist() == [[1, 0], [0, 1]]
    np.savez(tmp_path / "X.npz", np.array([[1, 2], [3, 4]], order="F"))
    assert matrices.read_features(tmp_path / "X.npz").tolist() == [[1, 2], [3, 4]]
    sp.save_npz(tmp_path / "Y.npz", sp.csr_array(csr([[1, 0]])), compressed=False)
    assert isinstance(matrices.read_labels(tmp_path / "Y.npz"), sp.csr_matrix)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 2])}, "found index 2; wanted indices from 0 to 1"),
        ({"indices": np.array([0, -1])}, "found index -1; wanted indices from 0 to 1"),
        (
            {"indptr": np.array([0, 3, 2])},
            "found row pointers out of order; wanted pointers that increase from 0 to 2",
        ),
        ({"indptr": np.array([0, 2])}, "found 1 pointers, 2 indices and 2 values; wanted 2 pointers"),
        ({"data": np.ones(3)}, "2 indices and 3 values; wanted 2 pointers, and as many indices as values"),
        ({"shape": np.array([2, 10**12])}, "found 1000000000000 columns; wanted at most 2147483647"),
        ({"shape": np.array([10**12, 2])}, "wanted 1000000000000 pointers"),
        ({"shape": np.array([-2, 2])}, r"found the shape \[-2, 2\]; wanted two integers"),
        ({"shape": np.array([2])}, r"found the shape \[2\]; wanted two integers"),
        ({"format": np.array("dia")}, "found a sparse matrix of format 'dia'; wanted csr or csc"),
        ({"indices": np.array([0.0, 1.0])}, "found parts of the wrong type"),
        ({"data": np.array(["a", "b"])}, r"found data\.npy of type <U1; wanted numbers"),
        ({"data": np.array([None, 1], dtype=object)}, r"found data\.npy of type object; wanted numbers"),
        ({"data": np.array([1.0, np.nan])}, "found nan at row 2, feature 1; wanted finite numbers"),
        ({"data": b"nonsense"}, "found a damaged file .*; wanted an .npz or .npy file"),
        ({"indptr": np.array([0, 2, 2]), "indices": np.array([1, 1])}, "found feature 1 twice in row 1"),
        (
            {"format": np.array("csc"), "shape": np.array([10**12, 2])},
            "found a claim of 1000000000000 rows; wanted a number that fits",
        ),
    ],
)
def test_what_a_sparse_file_claims_is_checked(tmp_path, change, message):
    path = pack(tmp_path / "X.npz", **{**PARTS, **change})
    with pytest.raises(DataError, match=rf"X\.npz.*{message}"):
        matrices.read_features(path)


def test_labels_other_than_zero_and_one(tmp_path):
    sp.save_npz(tmp_path / "Y.npz", csr([[0, 1], [3, 0]], np.int8))
    with pytest.raises(DataError, match=r"Y\.npz: found 3 at row 2, label 0; wanted 0 or 1"):
        matrices.read_labels(tmp_path / "Y.npz")
    np.savez(tmp_path / "Y.npz", np.eye(2))
    with pytest.raises(DataError, match=r"Y\.npz: found a dense array; wanted labels as a SciPy sparse matrix"):
        matrices.read_labels(tmp_path / "Y.npz")


def test_archives_that_hold_something_else(tmp_path):
    with pytest.raises(DataError, match=r"found no data\.npy inside; wanted a matrix saved by"):
        matrices.read_features(pack(tmp_path / "a.npz", **{k: v for k, v in PARTS.items() if k != "data"}))
    with pytest.raises(DataError, match=r"found a\.npy, b\.npy inside; wanted a SciPy sparse matrix, or one"):
        matrices.read_features(pack(tmp_path / "a.npz", a=np.eye(2), b=np.eye(2)))
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(DataError, match="found an empty file"):
        matrices.read_features(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_text("text")
    with pytest.raises(DataError, match=r"found a damaged file \(BadZipFile"):
        matrices.read_features(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("arr_0.npy", npy(np.eye(2)))
    with pytest.raises(DataError, match=r"compressed by method 14; wanted stored or deflated"):
        matrices.read_features(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"cannot read .*none\.npz"):
        matrices.read_features(tmp_path / "none.npz")


def test_claims_of_size_allocate_nothing(tmp_path):
    header = npy(np.ones((1, 1), np.float32)).replace(b"(1, 1), }" + b" " * 14, b"(1000000000000, 1), }  ")
    assert b"1000000000000" in header
    (tmp_path / "X.npy").write_bytes(header)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", bytes(100 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"X\.npy: found the array with 4 bytes; wanted 4000000000000 for shape"):
        matrices.read_features(tmp_path / "X.npy")
    with pytest.raises(DataError, match=r"bomb\.npz: found \d+ bytes that unpack to 104857600 or more; wanted at"):
        matrices.read_features(tmp_path / "bomb.npz")
    valid = npy(np.ones((1, 1), np.float32))
    for version in (2, 3):  # a flipped version byte makes 32 bits of what was 16: numpy would read that many bytes
        content = valid[:6] + bytes([version, 0]) + (1 << 30).to_bytes(4, "little") + valid[10:]
        (tmp_path / "X.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"X\.npy: found a damaged file"):
            matrices.read_features(tmp_path / "X.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_rows_of_x_and_y_must_agree(tmp_path):
    sp.save_npz(tmp_path / "X.trn.npz", csr([[1], [1]]))
    sp.save_npz(tmp_path / "Y.trn.npz", csr([[1]]))
    with pytest.raises(
        DataError, match=r"found 2 rows in X\.trn\.npz and 1 in Y\.trn\.npz; wanted the same number"
    ):
        load_dataset(tmp_path)


@pytest.mark.parametrize("missing", ["X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz"])
def test_half_of_the_files(tmp_path, missing):
    split = Split(csr([[1]]), csr([[1]]))
    matrices.write_matrices(tmp_path, Dataset("d", split, split))
    (tmp_path / missing).unlink()
    with pytest.raises(
        DataError, match=rf"found no {missing}, a folder with only half of its files; wanted {missing}"
    ):
        load_dataset(tmp_path)


def test_raw_text_has_no_matrices_to_write(tmp_path):
    with pytest.raises(DataError, match="found raw text only; wanted features"):
        matrices.write_matrices(tmp_path, Dataset("d", Split(None, csr([[1]]), ["a"])))


def mapped_folder(tmp_path, **changes):
    """A folder `X.trn` of two rows and three columns, with other arrays where they are given."""
    parts = {
        "data": np.array([1, 2, 3], np.float32),
        "indices": np.array([0, 2, 1], np.int32),
        "indptr": np.array([0, 2, 3], np.int32),
        "shape": np.array([2, 3]),
    }
    folder = tmp_path / "X.trn"
    folder.mkdir()
    for name, array in (parts | changes).items():
        (folder / f"{name}.npy").write_bytes(array if isinstance(array, bytes) else npy(array))
    return folder


def npz(n: int) -> bytes:
    out = io.BytesIO()
    np.savez(out, data=np.ones(n, np.float32))
    return out.getvalue()


def claiming(n: int) -> bytes:
    """The header of an array of n numbers."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (n,)})
    return out.getvalue()


#: A row of 3000 numbers, the last of which is not all there.
CUT = {
    "data": npy(np.ones(3000, np.float32))[:-5],
    "indices": np.arange(3000, dtype=np.int32),
    "indptr": np.array([0, 3000], np.int32),
    "shape": np.array([1, 3000]),
}


class TestMapped:
    def test_beside_packed_labels_and_dense_features(self, tmp_path):
        split = Split(np.ones((2, 3), np.float32), csr([[1, 0], [0, 1]]))
        matrices.write_matrices(tmp_path, Dataset("d", split), mapped=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["X.trn.npy", "Y.trn"]
        assert np.array_equal(load_dataset(tmp_path).train.X, split.X)
        (tmp_path / "X.trn.npy").unlink()
        with pytest.raises(DataError, match=r"found no X\.trn\.npz, a folder with only half of its files"):
            load_dataset(tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"data": np.ones((3, 1), np.float32)}, r"data\.npy: found 2 dimensions"),
            ({"data": np.ones(3)}, r"data\.npy: found 1 dimensions of type float64; wanted .* float32"),
            ({"indices": np.array([0, 2, 1])}, r"indices\.npy: found .* int64; wanted .* int32"),
            ({"indptr": np.array([0.0, 2, 3])}, r"indptr\.npy: found .* float64"),
            ({"indptr": np.array([0, 3], np.int32)}, "found 1 pointers"),
            ({"indptr": np.array([0, 2, 4], np.int32)}, "found row pointers out of order"),
            ({"indptr": np.array([0, 5, 3], np.int32)}, "found row pointers out of order"),
            ({"indices": np.array([0, 3, 1], np.int32)}, "found index 3; wanted indices from 0 to 2"),
            ({"indices": np.array([0, -1, 1], np.int32)}, "found index -1"),
            ({"indices": np.array([2, 0, 1], np.int32)}, "found column 0 of row 1 out of order"),
            ({"indices": np.array([2, 2, 1], np.int32)}, "found column 2 of row 1 out of order"),
            ({"data": np.array([1, 2, np.nan], np.float32)}, "found nan at row 2, column 1; wanted finite"),
            ({"data": np.array([1, 0, 2], np.float32)}, "found 0.0 at row 1, column 2"),
            ({"shape": np.array([2])}, r"shape\.npy: found the shape \[2\]"),
            ({"shape": np.array([2, -3])}, "found the shape"),
            ({"data": b"PK"}, r"data\.npy: found a damaged file"),
            ({"data": npz(1)}, r"data\.npy: found a damaged file"),
            ({"data": npz(1 << 12)}, r"data\.npy: found a damaged file"),
            (
                {"data": claiming(10**12) + bytes(12)},
                r"data\.npy: found the array with 12 bytes; wanted 4000000000000",
            ),
            ({"data": claiming(10**12) + bytes(1 << 12)}, r"data\.npy: found a damaged file"),
            ({"data": np.array([object()])}, r"data\.npy: found the array of type object; wanted numbers"),
            (CUT, r"data\.npy: found a damaged file"),
        ],
    )
    def test_what_the_files_claim_is_checked(self, tmp_path, change, message):
        with pytest.raises(DataError, match=message):
            matrices.read_mapped(mapped_folder(tmp_path, **change))

    def test_labels_rows_across_two_blocks_and_a_missing_array(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_mapped, "BLOCK", 1)
        folder = mapped_folder(tmp_path)
        assert matrices.read_mapped(folder).nnz == 3
        with pytest.raises(DataError, match=r"found 2\.0 at row 1, column 2; wanted 1$"):
            matrices.read_mapped(folder, labels=True)
        (folder / "indices.npy").write_bytes(npy(np.array([2, 1, 1], np.int32)))
        with pytest.raises(DataError, match="found column 1 of row 1 out of order"):
            matrices.read_mapped(folder)
        (folder / "indptr.npy").unlink()
        with pytest.raises(DataError, match=r"indptr\.npy"):
            matrices.read_mapped(folder)
