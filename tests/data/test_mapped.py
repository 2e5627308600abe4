"""Training from files: the same weights as from memory, and memory that does not grow with the rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.data import load_dataset
from circlet.data import sparse as _mapped
from circlet.data.dataset import Dataset, Split
from circlet.data.matrices import write_matrices
from circlet.data.sparse import MappedRows, column_counts, is_mapped, release
from circlet.data.synthetic import make_multilabel
from circlet.errors import DataError
from circlet.features.rows import ScaledRows, Scaling
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings
from circlet.training import Reporter, TrainingSettings, checkpoint
from circlet.training.batches import DeviceRows

pytestmark = pytest.mark.usefixtures("one_thread")

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


def assert_same_weights(one: Model, other: Model) -> None:
    for name, tensor in one.network.state_dict().items():
        assert torch.equal(tensor, other.network.state_dict()[name]), name


class TestMaps:
    def test_what_counts_as_mapped(self, mapped):
        assert mapped.format == "mapped matrices, sparse features"
        assert is_mapped(mapped.train.X)
        assert is_mapped(mapped.train.Y)
        assert not is_mapped(DATA.train.X)
        assert not is_mapped(mapped.train.X[np.array([3, 1])])
        assert not is_mapped(np.ones((2, 2)))

    def test_release_changes_no_number(self, mapped):
        before = mapped.train.X.data.sum()
        release(mapped.train.X)
        release(DATA.train.X)
        assert mapped.train.X.data.sum() == before
        assert (mapped.train.X != DATA.train.X).nnz == 0


class TestMappedRows:
    ROWS = np.array([7, 0, 299, 7])

    def test_are_rows_of_the_matrix(self, mapped):
        rows, wanted = MappedRows(mapped.train.Y, self.ROWS), DATA.train.Y[self.ROWS]
        assert is_mapped(rows)
        assert (rows.shape, rows.ndim) == (wanted.shape, 2)
        np.testing.assert_array_equal(rows.indptr, wanted.indptr)
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

    def test_rows_of_rows_are_rows_of_the_files(self, mapped):
        some = MappedRows(MappedRows(mapped.train.X, np.array([7, 3, 9])), np.array([2, 0]))
        assert some.matrix is mapped.train.X
        assert some.rows.tolist() == [9, 7]

    def test_a_split_is_copied_by_default(self, mapped):
        learned, _ = mapped.validation_split(0.3)
        assert sp.issparse(learned.X)
        assert sp.issparse(learned.Y)

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
        X = Scaling("none").transform(MappedRows(mapped.train.X, self.ROWS))
        assert DeviceRows.fits(X, rows, 16)
        found, labels = DeviceRows(X, rows, torch.device("cpu")).batch(chosen)
        expected = torch.from_numpy(DATA.train.X[[299, 7]].toarray()).bfloat16()
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

    def test_a_device_gets_all_rows(self, mapped):
        features = Scaling("sqrt").fit(DATA.train.X)
        rows, chosen = features.transform(mapped.train.X), torch.tensor([5, 250])
        found, _ = DeviceRows(rows, mapped.train.Y, torch.device("cpu")).batch(chosen)
        expected = torch.from_numpy(features.transform(DATA.train.X)[[5, 250]].toarray()).bfloat16()
        assert torch.equal(found, expected)


class TestTraining:
    @pytest.mark.parametrize("scaling", ["sqrt", "tfidf"])
    def test_ends_as_from_memory(self, mapped, scaling):
        from_memory = fitted(DATA.train, scaling, validation=DATA.test)
        from_files = fitted(mapped.train, scaling, validation=mapped.test)
        assert_same_weights(from_files, from_memory)
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
        assert_same_weights(from_files, from_memory)
        assert from_files.calibration == from_memory.calibration
        assert [record["nDCG@5"] for record in from_files.history] == [
            record["nDCG@5"] for record in from_memory.history
        ]

    def test_resumes_with_the_rows_it_began_with(self, mapped, tmp_path):
        class Stop(Reporter):
            def epoch(self, number, n_steps, done):
                if number == 1:
                    raise InterruptedError

        learned, judged = mapped.validation_split(0.2, copy=False)
        with pytest.raises(InterruptedError):
            fitted(learned, folder=tmp_path, reporter=Stop(), validation=judged)
        others, _ = mapped.validation_split(0.2, seed=1, copy=False)
        with pytest.raises(DataError, match="another run"):
            fitted(others, folder=tmp_path, resume=True, validation=judged)
        resumed = fitted(learned, folder=tmp_path, resume=True, validation=judged)
        assert_same_weights(resumed, fitted(learned, validation=judged))

    def test_resumes_after_an_interruption(self, mapped, tmp_path):
        class Stop(Reporter):
            def epoch(self, number, n_steps, done):
                if number == 1:
                    raise InterruptedError

        with pytest.raises(InterruptedError):
            fitted(mapped.train, folder=tmp_path, reporter=Stop())
        with pytest.raises(DataError, match="another run"):
            fitted(mapped.train, "l2", folder=tmp_path, resume=True)
        assert (tmp_path / checkpoint.NAME).is_file()
        assert_same_weights(fitted(mapped.train, folder=tmp_path, resume=True), fitted(DATA.train))


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
