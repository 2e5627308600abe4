from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError
from circlet.features.rows import Entries
from circlet.files import write_tensors
from circlet.runtime import network as module
from circlet.runtime.network import FeatureWeights, RowCache
from circlet.storage.tensors import Stored, map_tensors

pytestmark = pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system maps matrices of any size")

MATRIX = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    """A mapped matrix, of which half may be kept."""
    monkeypatch.setattr(module, "KEPT", MATRIX.nbytes // 2)
    write_tensors(tmp_path / "t", {"a": MATRIX[:3], "b": MATRIX})
    return map_tensors(tmp_path / "t")["b"]


def test_rows_are_read_once(matrix):
    cache = RowCache.of(matrix)
    assert cache.rows.shape == (100, 16)
    for wanted in ([7, 199, 0, 7], [0, 3], [], [199, 3, 7]):
        rows = np.array(wanted, dtype=np.int32)
        np.testing.assert_array_equal(cache.rows[cache.find(rows)], MATRIX[rows])
    assert cache._used == 4


def test_only_large_matrices_in_files(matrix, monkeypatch):
    assert RowCache.of(matrix) is not None
    assert RowCache.of(MATRIX) is None
    monkeypatch.setattr(module, "KEPT", MATRIX.nbytes)
    assert RowCache.of(matrix) is None


def test_too_many_rows(matrix):
    cache = RowCache.of(matrix)
    assert cache.find(np.arange(60)) is not None
    assert cache.find(np.arange(20, 101)) is None
    assert cache.find(np.arange(20, 100)) is not None


def test_a_layer_that_needs_more_and_more_rows(matrix):
    bias = np.arange(16, dtype=np.float32)
    layer = FeatureWeights(Stored(matrix), Stored(bias))
    for n, density in ((1, 0.1), (1, 0.1), (3, 0.1), (30, 0.2), (1, 0.5)):
        X = sp.random(n, 200, density, format="csr", dtype=np.float32, random_state=n)
        np.testing.assert_allclose(layer(Entries.of(X)), X @ MATRIX + bias, atol=1e-5)
        assert (layer._cache is not None) == (n <= 3 and density < 0.5)


def test_several_threads(matrix):
    cache, barrier = RowCache.of(matrix), threading.Barrier(4)

    def work(thread):
        random = np.random.default_rng(thread)
        barrier.wait()
        for _ in range(50):
            rows = random.integers(0, 90, 5)
            np.testing.assert_array_equal(cache.rows[cache.find(rows)], MATRIX[rows])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert cache._used <= 90


def test_a_file_that_was_cut(matrix, tmp_path):
    cache = RowCache.of(matrix)
    os.truncate(tmp_path / "t", 1000)
    with pytest.raises(DataError, match="found fewer weights than when the model was loaded"):
        cache.find(np.array([199]))
