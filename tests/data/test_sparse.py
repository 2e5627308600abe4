"""Sparse matrices whose parts do not fit together, and who is given them: nobody may crash."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.runs import Stop, assert_same_weights

import circlet
from circlet.data import dataset as _mapped
from circlet.data import load_dataset
from circlet.data.dataset import (
    Dataset,
    MappedRows,
    Split,
    as_csr,
    as_features,
    as_labels,
    column_counts,
    is_checked,
    is_mapped,
    release,
)
from circlet.data.matrices import read_mapped, write_matrices
from circlet.errors import DataError
from circlet.estimator import CircletClassifier
from circlet.features.rows import ScaledRows, Scaling
from circlet.metrics import evaluate, inverse_propensity, micro_f1
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings
from circlet.storage.layout import CHECKPOINT
from circlet.training import TrainingSettings
from circlet.training.steps import DeviceRows
from circlet_paper.synthetic import make_multilabel

DENSE = np.array([[1, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 4]], dtype=np.float32)
FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


def broken(fault: str, index: type = np.int32, n: int = 3, columns: int = 4) -> sp.csr_matrix:
    """Ones in the first columns, and a fault that SciPy does not see."""
    X = sp.csr_matrix((np.ones(n, np.float32), np.zeros(n, index), np.arange(n + 1)), shape=(n, columns))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    if fault == "beyond":
        X.indices[-1] = columns
    elif fault == "far beyond":
        X.indices[1] = np.iinfo(index).max
    elif fault == "negative":
        X.indices[0] = -1
    elif fault == "falling":
        X.indptr[1] = X.indptr[2] + 1
    elif fault == "too many":
        X.indptr[-1] = 1 << 20
    elif fault == "start":
        X.indptr[0] = 1
    elif fault == "short":
        X.indices = X.indices[:-1]
    elif fault == "columns of values":
        X.data = X.data[:, None]
    elif fault == "floats":
        X.indices = X.indices.astype(np.float64)
    return X


INDICES, POINTERS = ("beyond", "far beyond", "negative"), ("falling", "too many", "start")
FAULTS = (*INDICES, *POINTERS, "short", "columns of values", "floats")


class TestAsCsr:
    @pytest.mark.parametrize("format_", FORMATS)
    @pytest.mark.parametrize("kind", ["matrix", "array"])
    def test_any_format(self, format_, kind):
        X = getattr(sp, f"{format_}_{kind}")(DENSE)
        found = as_csr(X, "X")
        assert found.format == "csr"
        assert (found.toarray() == DENSE).all()
        assert (found is X) == (format_ == "csr")

    @pytest.mark.parametrize("index", [np.int32, np.int64])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_faults(self, fault, index):
        with pytest.raises(DataError, match=r"^here: found .*; wanted "):
            as_csr(broken(fault, index), "here")
        X, Y = broken(fault, index), sp.csc_matrix((4, 3), dtype=np.float32)
        Y.data, Y.indices, Y.indptr = X.data, X.indices, X.indptr
        with pytest.raises(DataError, match=r"^here: found .*; wanted "):
            as_csr(Y, "here")

    def test_other_formats(self):
        coo, lil, bsr = sp.coo_matrix(DENSE), sp.lil_matrix(DENSE), sp.bsr_matrix(DENSE, blocksize=(1, 2))
        coo.col[0], lil.rows[0][1], bsr.indices[0] = 4, 9, 2
        for X, index in ((coo, 4), (lil, 9), (bsr, 2)):
            with pytest.raises(DataError, match=f"X: found index {index}; wanted indices from 0"):
                as_csr(X, "X")

    def test_entries_that_no_row_has_are_left_out(self):
        X = sp.csr_matrix(DENSE)
        X.data, X.indices = np.append(X.data, np.float32(7)), np.append(X.indices, np.int32(99))
        found = as_csr(X, "X")
        assert (found.data.tolist(), found.indices.tolist()) == ([1, 2, 3, 4], [0, 2, 1, 3])
        assert len(X.data) == 5  # the caller's matrix stays as it is

    def test_duplicates_and_any_order_are_none_of_its_business(self):
        X = sp.csr_matrix((np.ones(3), [3, 0, 0], [0, 3]), shape=(1, 4))
        assert as_csr(X, "X") is X

    @given(st.tuples(*[st.integers(-1, 5)] * 6), st.tuples(*[st.integers(-1, 7)] * 4))
    def test_accepts_exactly_what_fits(self, indices, indptr):
        X = sp.csr_matrix((3, 4), dtype=np.float32)
        X.data, X.indices, X.indptr = np.ones(6), np.array(indices), np.array(indptr)
        used = indptr[-1]
        right = indptr[0] == 0 and list(indptr) == sorted(indptr) and used <= 6
        if right and all(0 <= index < 4 for index in indices[:used]):
            assert as_csr(X, "X").nnz == used
        else:
            with pytest.raises(DataError):
                as_csr(X, "X")


@pytest.mark.parametrize("fault", ["beyond", "negative", "too many"])
class TestWhoIsGivenThem:
    def test_datasets(self, fault):
        bad, good = broken(fault), sp.csr_matrix(np.eye(3, 4, dtype=np.float32))
        for split in (Split(bad, good), Split(good, bad)):
            with pytest.raises(DataError, match=r"of a test, train, [XY]: found"):
                Dataset("of a test", split)
        with pytest.raises(DataError, match="here: found"):
            as_features(bad, "here")
        with pytest.raises(DataError, match="here: found"):
            as_labels(bad, "here")

    def test_metrics(self, fault):
        bad, good = broken(fault), sp.csr_matrix(np.eye(3, 4))
        for call in (
            lambda: evaluate(bad, good, k=1, metrics=("P",)),
            lambda: evaluate(good, bad, k=1, metrics=("P",)),
            lambda: inverse_propensity(bad),
            lambda: micro_f1(good, bad),
        ):
            with pytest.raises(DataError, match="found"):
                call()

    @pytest.mark.parametrize("index", [np.int32, np.int64])
    def test_the_estimator_and_the_tagger(self, fault, index, tmp_path):
        n = 24
        X, y = sp.csr_matrix(np.tile(DENSE, (n // 3, 1))), np.tile([[1, 0], [0, 1], [1, 1]], (n // 3, 1))
        fresh = CircletClassifier(dim=8, hidden=(8,), epochs=1, validation=0)
        bad = broken(fault, index, n)
        with pytest.raises(DataError, match="X: found"):
            fresh.fit(bad, y)
        with pytest.raises(DataError, match="y: found"):
            fresh.fit(X, broken(fault, index, n, 2))
        fresh.fit(X, y)
        for call in (fresh.predict, fresh.suggest, fresh.predict_proba, fresh.decision_function):
            with pytest.raises(DataError, match="X: found"):
                call(bad)
        fresh.save(tmp_path)
        tagger = circlet.load(tmp_path)
        for rows in (bad, sp.csc_matrix(bad.shape, dtype=np.float32)):
            if rows.format == "csc":
                rows.data, rows.indices, rows.indptr = bad.data, np.full(n, n, index), np.array([0, 0, 0, 0, n])
            for call in (tagger.predict, tagger.suggest, tagger.predict_proba):
                with pytest.raises(DataError, match="found"):
                    call(rows)
        with pytest.raises(DataError, match="X: found"):
            fresh.partial_fit(bad, y)
        with pytest.raises(DataError, match="y: found"):
            fresh.score(X, broken(fault, index, n, 2))

    def test_models(self, fault, shared, split, small_run):
        good = split("sparse")
        bad = broken(fault, n=good.n, columns=good.X.shape[1])
        with pytest.raises(DataError, match="split, X: found"):
            fit(Split(bad, good.Y), small_run)
        with pytest.raises(DataError, match="the rows: found"):
            shared().top_k(bad, 1)


def test_a_mapped_matrix_is_checked_once(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    X = sp.random(300, 50, density=0.1, format="csr", dtype=np.float32, random_state=random)
    Y = sp.csr_matrix((np.ones(300, np.float32), (np.arange(300), np.arange(300) % 7)))
    write_matrices(tmp_path, Dataset("of a test", Split(as_features(X, "X"), Y)), mapped=True)
    mapped = read_mapped(tmp_path / "X.trn"), read_mapped(tmp_path / "Y.trn", labels=True)
    assert all(map(is_checked, mapped))
    monkeypatch.setattr("circlet.data.dataset.check_indices", None)
    Dataset("of a test", Split(*mapped))
    mapped[0].indices = np.full_like(mapped[0].indices, 99)
    assert not is_checked(mapped[0])


DATA = make_multilabel(300, 4000, 30, seed=0, n_test=40)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("mapped")
    write_matrices(folder, DATA, mapped=True)
    return load_dataset(folder)


def fitted(split: Split, scaling: str = "sqrt", loss: str = "bce", **given) -> Model:
    network = NetworkSettings(dim=16, hidden=(12,), dropout=0.2, loss=loss)
    training = TrainingSettings(epochs=2, batch_size=16, input_dropout=0.1, lr=0.01)
    return fit(split, RunSettings(network, training, scaling=scaling, validation=0, remember=0), **given)


def test_what_counts_as_mapped(mapped):
    assert mapped.format == "mapped matrices, sparse features"
    assert is_mapped(mapped.train.X)
    assert is_mapped(mapped.train.Y)
    assert not any(map(is_mapped, (DATA.train.X, mapped.train.X[np.array([3, 1])], np.ones((2, 2)))))
    for X in (mapped.train.X, DATA.train.X):  # releasing pages changes no number
        release(X)
    assert (mapped.train.X != DATA.train.X).nnz == 0


class TestMappedRows:
    ROWS = np.array([7, 0, 299, 7])

    def test_are_rows_of_the_matrix(self, mapped):
        rows, wanted = MappedRows(mapped.train.Y, self.ROWS), DATA.train.Y[self.ROWS]
        assert is_mapped(rows)
        assert (rows.shape, rows.ndim) == (wanted.shape, 2)
        np.testing.assert_array_equal(rows.indptr, wanted.indptr)
        some = MappedRows(rows, np.array([2, 0]))  # rows of rows are rows of the files
        assert some.matrix is mapped.train.Y
        assert some.rows.tolist() == [299, 7]
        for part in (slice(None), slice(1, 3), np.array([3, 0])):
            assert not is_mapped(rows[part])
            assert (rows[part] != wanted[part]).nnz == 0

    @pytest.mark.parametrize("block", [1, 50, 1 << 20])
    def test_column_counts(self, mapped, monkeypatch, block):
        monkeypatch.setattr(_mapped, "BLOCK", block)
        none = MappedRows(mapped.train.Y, self.ROWS[:0])
        for rows in (mapped.train.Y, MappedRows(mapped.train.Y, self.ROWS), none):
            whole = DATA.train.Y[rows.rows] if isinstance(rows, MappedRows) else DATA.train.Y
            np.testing.assert_array_equal(column_counts(rows), np.asarray(whole.sum(axis=0)).ravel())
        np.testing.assert_array_equal(column_counts(DATA.train.Y), column_counts(mapped.train.Y))

    def test_validation_rows_are_copied_and_the_others_are_not(self, mapped):
        learned, judged = mapped.validation_split(0.3, seed=1, copy=False)
        assert isinstance(learned.X, MappedRows)
        assert isinstance(learned.Y, MappedRows)
        for part, wanted in zip((learned, judged), DATA.validation_split(0.3, seed=1), strict=True):
            assert part.n == wanted.n
            assert (part.X[:] != wanted.X).nnz == (part.Y[:] != wanted.Y).nnz == 0
        assert sp.issparse(judged.X)
        assert not is_mapped(judged.X)
        assert not is_mapped(judged.Y)
        copied, _ = mapped.validation_split(0.3)
        assert sp.issparse(copied.X)
        assert sp.issparse(copied.Y)

    def test_texts_stay_with_their_rows(self, mapped):
        texts = [f"{row}" for row in range(300)]
        learned, judged = Dataset("d", Split(mapped.train.X, mapped.train.Y, texts)).validation_split(
            100, copy=False
        )
        assert sorted(learned.texts + judged.texts) == sorted(texts)
        assert (learned.X[:] != DATA.train.X[[int(text) for text in learned.texts]]).nnz == 0

    @pytest.mark.parametrize("n", [0, 1, 2500])
    def test_copies_in_parts_equal_one_copy(self, mapped, n):
        rows = np.random.default_rng(0).integers(0, 300, n)
        taken, wanted = mapped.train.take(rows), DATA.train.take(rows)
        for found, matrix in ((taken.X, wanted.X), (taken.Y, wanted.Y)):
            assert (found.shape, found.dtype) == (matrix.shape, matrix.dtype)
            assert (found != matrix).nnz == 0

    def test_a_device_gets_all_rows(self, mapped):
        rows, chosen = MappedRows(mapped.train.Y, self.ROWS), torch.tensor([2, 0])
        features = Scaling("sqrt").fit(DATA.train.X)
        X = features.transform(MappedRows(mapped.train.X, self.ROWS))
        assert DeviceRows.fits(X, rows, 16)
        found, labels = DeviceRows(X, rows, torch.device("cpu")).batch(chosen)
        expected = torch.from_numpy(features.transform(DATA.train.X)[[299, 7]].toarray()).bfloat16()
        assert torch.equal(found, expected)
        assert labels.ids[labels.weights > 0].tolist() == DATA.train.Y[[299, 7]].indices.tolist()


class TestScaledRows:
    @pytest.mark.parametrize("scaling", ["none", "l2", "sqrt", "tfidf"])
    def test_equal_the_rows_scaled_at_once(self, mapped, scaling):
        features = Scaling(scaling).fit(DATA.train.X)
        again = Scaling(scaling).fit(mapped.train.X)
        assert all(np.array_equal(array, again.arrays[name]) for name, array in features.arrays.items())
        whole, rows = features.transform(DATA.train.X), again.transform(mapped.train.X)
        assert isinstance(rows, ScaledRows)
        assert (rows.shape, rows.ndim) == (whole.shape, 2)
        for part in (slice(0, 7), slice(None), np.array([299, 0, 5, 5])):
            found = rows[part]
            assert not is_mapped(found)
            wanted = whole[part]
            for name in ("data", "indices", "indptr"):
                np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


class TestTraining:
    @pytest.mark.parametrize("scaling", ["sqrt", "tfidf"])
    def test_ends_as_from_memory(self, mapped, scaling):
        from_memory = fitted(DATA.train, scaling, validation=DATA.test)
        from_files = fitted(mapped.train, scaling, validation=mapped.test)
        assert_same_weights(from_files.network, from_memory.network)
        assert from_files.calibration == from_memory.calibration
        assert DATA.test is not None
        assert mapped.test is not None
        for found, wanted in zip(
            from_files.top_k(mapped.test.X, 3), from_memory.top_k(DATA.test.X, 3), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)

    @pytest.mark.parametrize(("scaling", "loss"), [("sqrt", "cosine"), ("tfidf", "bce")])
    def test_with_validation_rows_split_off_ends_as_from_memory(self, mapped, scaling, loss):
        from_files, from_memory = (
            fitted(learned, scaling, loss=loss, validation=judged)
            for learned, judged in (data.validation_split(0.2, copy=False) for data in (mapped, DATA))
        )
        assert_same_weights(from_files.network, from_memory.network)
        assert from_files.calibration == from_memory.calibration
        assert [record["nDCG@5"] for record in from_files.history] == [
            record["nDCG@5"] for record in from_memory.history
        ]

    @pytest.mark.parametrize("held_out", [True, False])
    def test_resumes_with_the_rows_it_began_with(self, mapped, tmp_path, held_out):
        learned, judged = mapped.validation_split(0.2, copy=False) if held_out else (mapped.train, None)
        with pytest.raises(InterruptedError):
            fitted(learned, folder=tmp_path, reporter=Stop(1), validation=judged)
        others, _ = mapped.validation_split(0.2, seed=1, copy=False)
        with pytest.raises(DataError, match="another run"):
            fitted(others, folder=tmp_path, resume=True, validation=judged)
        with pytest.raises(DataError, match="another run"):
            fitted(learned, "l2", folder=tmp_path, resume=True, validation=judged)
        assert (tmp_path / CHECKPOINT).is_file()
        resumed = fitted(learned, folder=tmp_path, resume=True, validation=judged)
        assert_same_weights(resumed.network, fitted(learned, validation=judged).network)


@pytest.mark.parametrize("judged", [0, 50])
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch, judged):
    """Allocated memory only: pages of the files belong to the system, which takes them back when it needs to."""
    monkeypatch.setattr(_mapped, "BLOCK", 1 << 14)
    sizes, peaks = [], []
    for n in (200, 1_600):
        # Long rows, because a few numbers per row do grow: their order and the labels' counts.
        columns = 40 * np.arange(500) + np.random.default_rng(0).integers(0, 40, (n, 500))
        X = sp.csr_matrix(
            (np.ones(n * 500, np.float32), columns.ravel(), np.arange(0, n * 500 + 1, 500)), shape=(n, 20_000)
        )
        Y = sp.csr_matrix((np.ones(n, np.float32), np.arange(n) % 20, np.arange(n + 1)), shape=(n, 20))
        folder = tmp_path / f"{n}"
        write_matrices(folder, Dataset("d", Split(X, Y)), mapped=True)
        sizes.append(sum(path.stat().st_size for path in folder.rglob("*.npy")))
        tracemalloc.start()
        dataset, validation = load_dataset(folder), None
        split = dataset.train
        if judged:
            split, validation = dataset.validation_split(judged, copy=False)
        fitted(split, validation=validation)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] - sizes[0] > 5 << 20
    assert peaks[1] - peaks[0] < 0.1 * (sizes[1] - sizes[0]), peaks
