"""Sparse matrices whose parts do not fit together, and who is given them: nobody may crash."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import circlet
from circlet.data.dataset import Dataset, Split, as_features, as_labels
from circlet.data.matrices import read_mapped, write_matrices
from circlet.data.sparse import as_csr, is_known_good
from circlet.errors import DataError
from circlet.estimator import CircletClassifier
from circlet.metrics import evaluate, inverse_propensity, micro_f1
from circlet.model import fit

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


FAULTS = (
    "beyond",
    "far beyond",
    "negative",
    "falling",
    "too many",
    "start",
    "short",
    "columns of values",
    "floats",
)


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

    @pytest.mark.parametrize("fault", FAULTS)
    def test_faults_by_columns(self, fault):
        X = broken(fault)
        Y = sp.csc_matrix((4, 3), dtype=np.float32)
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
    assert all(map(is_known_good, mapped))
    monkeypatch.setattr("circlet.data.sparse.check_indices", None)
    Dataset("of a test", Split(*mapped))
    mapped[0].indices = np.full_like(mapped[0].indices, 99)
    assert not is_known_good(mapped[0])
