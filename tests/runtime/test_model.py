"""A model gives the same labels without torch as with it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.conformance import assert_ranked

from circlet.errors import DataError, DTypeError, ParameterError, ShapeError
from circlet.features.rows import Scaling
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.runtime import model as module
from circlet.storage.model import BaseModel


def loaded(model: Model, store: str = "float32") -> tuple[Model, RuntimeModel]:
    """The model as torch loads it, and as it is used without."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, store)
        return Model.load(folder), RuntimeModel.load(folder)


def scores(model: Any, documents: Any) -> np.ndarray:
    return np.concatenate(list(model.score_blocks(documents)))


def test_one_degree_of_favoring_rare_labels_after_the_other(made, some):
    torch_model, runtime = loaded(made(n_labels=60))
    documents = some("sparse", 9, 1)
    for favor_rare in (1, 0.3, 0, 1):
        wanted, _ = torch_model.top_k(documents, 5, favor_rare=favor_rare)
        found, _ = runtime.top_k(documents, 5, favor_rare=favor_rare)
        assert (found == wanted).mean() > 0.95


@pytest.mark.parametrize("kind", ["sparse", "dense", "texts"])
def test_batches(kind, made, some, monkeypatch):
    _, runtime = loaded(made(kind, n_labels=40))
    documents = some(kind, 50, 1)
    ids, values = runtime.top_k(documents, 4)
    monkeypatch.setattr(module, "BATCH", 7)
    found = runtime.top_k(documents, 4)
    np.testing.assert_allclose(found[1], values, atol=1e-5)
    assert (found[0] == ids).mean() > 0.95
    assert [len(block) for block in runtime.score_blocks(documents)] == [7] * 7 + [1]
    one_by_one = [runtime.top_k(documents[i : i + 1], 4)[1] for i in range(50)]
    np.testing.assert_allclose(np.concatenate(one_by_one), values, atol=1e-5)


def test_several_threads_for_one_batch(made, some, monkeypatch):
    _, runtime = loaded(made(n_labels=3000, dim=64))
    documents = some("sparse", 300, 1)
    expected = scores(runtime, documents)
    monkeypatch.setattr("circlet.threads._chosen", 3)
    # The last digits of a product depend on how many rows are multiplied at a time.
    assert_ranked(runtime.top_k(documents, 4), expected, 4, 1e-5)


@pytest.mark.parametrize("store", ["bf16", "int8"])
def test_rows_with_many_features_are_converted_in_blocks(store, made, some, monkeypatch):
    monkeypatch.setattr("circlet.runtime.network.BLOCK", 40)
    torch_model, runtime = loaded(made(n_features=200), store)
    for n in (9, 1):
        documents = some("sparse", n, 1, 200)
        np.testing.assert_allclose(scores(runtime, documents), scores(torch_model, documents), atol=1e-4)


class TestDocuments:
    def test_every_form_of_rows(self, made, some):
        _, runtime = loaded(made())
        X = some("sparse", 6, 1)
        expected = runtime.top_k(X, 3)[1]
        twice = sp.csr_matrix((X.data.repeat(2) / 2, X.indices.repeat(2), X.indptr * 2), shape=X.shape)
        for form in (X.tocoo(), X.tocsc(), X.toarray(), sp.csr_array(X), twice):
            np.testing.assert_allclose(runtime.top_k(form, 3)[1], expected, atol=1e-5)
        _, of_dense = loaded(made("dense"))
        np.testing.assert_allclose(of_dense.top_k(X, 3)[1], of_dense.top_k(X.toarray(), 3)[1])

    def test_mapped_rows(self, made, some, tmp_path):
        from circlet.data.dataset import is_mapped

        X = some("sparse", 20, 1)
        arrays = {}
        for name in ("data", "indices", "indptr"):
            np.save(tmp_path / f"{name}.npy", getattr(X, name))
            arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        mapped = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=X.shape, copy=False)
        assert is_mapped(mapped)
        _, runtime = loaded(made())
        np.testing.assert_array_equal(runtime.top_k(mapped, 3)[0], runtime.top_k(X, 3)[0])

    def test_nothing(self, made):
        for kind, none in (("sparse", sp.csr_matrix((0, 30))), ("dense", np.zeros((0, 30))), ("texts", [])):
            _, runtime = loaded(made(kind))
            ids, values = runtime.top_k(none, 3)
            assert ids.shape == values.shape == (0, 3)
            assert scores(runtime, none).shape == (0, 23)

    def test_of_another_kind(self, made):
        _, runtime = loaded(made())
        with pytest.raises(DataError, match="trained on feature rows; wanted rows, got texts"):
            runtime.top_k(["a"], 3)
        with pytest.raises(DataError, match=r"found rows of shape \(1, 31\); this model wants 30 features"):
            runtime.top_k(sp.csr_matrix((1, 31)), 3)
        _, runtime = loaded(made("texts"))
        with pytest.raises(DataError, match="trained on texts; wanted a list of texts, got feature rows"):
            runtime.top_k(np.zeros((1, 30)), 3)

    @pytest.mark.parametrize("column", [30, -1, 2**30])
    def test_a_damaged_matrix(self, column, made):
        _, runtime = loaded(made())
        for n in (1, 2):
            X = sp.csr_matrix((np.ones(n), ([*range(n)], [3] * n)), shape=(n, 30), dtype=np.float32)
            X.indices[:] = column
            with pytest.raises(DataError, match=f"found index {column}; wanted indices from 0 to 29"):
                runtime.top_k(X, 3)


class TestMistakes:
    def test_options(self, made, some):
        _, runtime = loaded(made())
        X = some("sparse", 1, 1)
        with pytest.raises(ParameterError, match=r"`memory`: found .*; wanted a number of bytes"):
            runtime.top_k(X, 3, memory=0)
        with pytest.raises(ParameterError, match=r"`threshold`: found .*; wanted a number"):
            runtime.top_k(X, 3, threshold="high")
        with pytest.raises(DTypeError, match="`allowed`: found int64; wanted an array or tensor of bool"):
            runtime.top_k(X, 3, allowed=[1] * 23)
        with pytest.raises(ShapeError, match=r"`allowed`: found .*; wanted \(23,\)"):
            runtime.top_k(X, 3, allowed=np.ones(3, dtype=bool))
        for value in (2, -0.1, "much", None):
            with pytest.raises(ParameterError, match=r"`favor_rare`: found .*; wanted a number from 0 to 1"):
                runtime.top_k(X, 3, favor_rare=value)
        model = made()
        model.label_counts = None
        _, runtime = loaded(model)
        with pytest.raises(DataError, match="found a model that does not know how often each label occurred"):
            runtime.top_k(X, 3, favor_rare=0.5)


class TestManyCalls:
    def test_threads_get_the_same(self, made, some):
        for kind, members in (("texts", 1), ("sparse", 2)):
            _, runtime = loaded(made(kind, members=members, n_labels=3000, dim=40, text={"char_ngrams": (2, 3)}))
            documents = [some(kind, 1 + i % 3, i) for i in range(40)]
            expected = [runtime.top_k(each, 5) for each in documents]
            barrier = threading.Barrier(4)

            def work(worker, barrier=barrier, runtime=runtime, documents=documents):
                barrier.wait()
                return [runtime.top_k(documents[i], 5) for i in range(worker, 40, 4)]

            with ThreadPoolExecutor(4) as pool:
                for worker, found in enumerate(pool.map(work, range(4))):
                    for wanted, (ids, values) in zip(expected[worker::4], found, strict=True):
                        np.testing.assert_array_equal(ids, wanted[0])
                        np.testing.assert_array_equal(values, wanted[1])

    def test_memory_does_not_grow(self, made, some):
        _, runtime = loaded(made("texts", text={"char_ngrams": (2, 3)}))
        texts = some("texts", 200, 1)
        for text in texts:
            runtime.top_k([text], 3)
        blocks = sys.getallocatedblocks()
        for i in range(10_000):
            runtime.top_k([texts[i % 200]], 3)
        assert sys.getallocatedblocks() < blocks + 1000
        tracemalloc.start()  # slow, but it sees the numbers in arrays too
        try:
            for i in range(1000):
                runtime.top_k([texts[i % 200]], 3)
                if i == 300:
                    before = tracemalloc.get_traced_memory()[0]
            assert tracemalloc.get_traced_memory()[0] < before + 10_000
        finally:
            tracemalloc.stop()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_after_a_fork(self, tmp_path, made):
        # In a process of its own, because the tests' process has torch's threads.
        made("texts").save(tmp_path)
        code = (
            "import os, sys, numpy as np; from circlet.runtime import RuntimeModel\n"
            "model = RuntimeModel.load(sys.argv[1]); expected = model.top_k(['fox baze'] * 300, 3)\n"
            "child = os.fork()\n"
            "found = model.top_k(['fox baze'] * 300, 3)\n"
            "right = all(np.array_equal(a, b) for a, b in zip(expected, found))\n"
            "if not child: os._exit(0 if right else 1)\n"
            "assert right and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)

    def test_weights_stay_in_the_file(self, made):
        _, runtime = loaded(made())
        weight = runtime.networks[0].first.weight
        for array in (weight.numbers, weight.read()):
            assert not array.flags.writeable
            assert not array.flags.owndata


class Bare(BaseModel):
    """A model without networks."""

    n_labels = 3
    as_runtime = score_blocks = _best = _of = None


def base(**about) -> BaseModel:
    return Bare(Scaling("none"), **{"n_features": 3, "sparse": True, **about})


class TestProbabilities:
    def test_by_hand(self):
        model = base(calibration=(2.0, -1.0))
        found = model.probabilities([0.5, 1.0, -1e30, 1000.0, -np.inf])
        assert found.dtype == np.float32
        assert found == pytest.approx([0.5, 1 / (1 + math.exp(-1)), 0, 1, 0])
        assert base().least_score(0) is None  # everything has a probability of at least 0
        assert base().documents_seen == 0
        assert base(training={"documents": 5, "held_out": 2}).documents_seen == 7

    @pytest.mark.parametrize("probability", [1e-30, 0.2, 0.5, 0.99, 1.0])
    def test_no_label_of_a_probability_is_below_its_least_score(self, probability):
        model = base(calibration=(1.3, -0.7))
        least = model.least_score(probability)
        around = np.linspace(least - 0.1, least + 0.1, 2001).astype(np.float32)
        assert (model.probabilities(around[around < least]) < probability).all()
        assert model.probabilities([least + 2])[0] >= probability
