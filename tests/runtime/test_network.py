from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError
from circlet.features.rows import Entries
from circlet.runtime import network as module
from circlet.runtime.network import FeatureWeights, Linear, Network
from circlet.settings import NetworkSettings
from circlet.storage.network_spec import Member
from circlet.storage.tensors import STORES, Stored, packed, stored

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((50, 8)).astype(np.float32)
BIAS = RANDOM.standard_normal(8).astype(np.float32)


def kept(array: np.ndarray, store: str) -> Stored:
    return stored(Path("w"), packed({"w": array}, store), store)["w"]


def rows(n: int, density: float = 0.2) -> sp.csr_matrix:
    return sp.random(n, 50, density, format="csr", dtype=np.float32, random_state=n)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("n", [0, 1, 2, 200])
@pytest.mark.parametrize("block", [1 << 20, 16])
def test_features(store, n, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "CONVERTED", 16 * block)
    weight, X = kept(WEIGHT, store), rows(n)
    found = FeatureWeights(weight, Stored(BIAS))(Entries.of(X))
    assert found.dtype == np.float32
    assert found.shape == (n, 8)
    np.testing.assert_allclose(found, X.toarray() @ weight.read() + BIAS, atol=1e-5)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("active", [0, 2, 8])
def test_linear(store, n, active, monkeypatch):
    monkeypatch.setattr(module, "TRANSPOSED", 7)
    weight = kept(WEIGHT, store)
    layer = Linear(weight, Stored(RANDOM.standard_normal(50).astype(np.float32)))
    X = RANDOM.standard_normal((n, 8)).astype(np.float32)
    X[:, active:] = 0
    found = layer(X)
    np.testing.assert_allclose(found, X @ weight.read().T + layer.bias, atol=1e-5)
    assert found.dtype == np.float32
    assert found.shape == (n, 50)


def test_what_overflows_is_one_error_and_no_warning():
    huge = np.full((2, 50), 3e38, dtype=np.float32)
    wide = np.full((50, 2), 3e38, dtype=np.float32)
    with pytest.raises(DataError, match="found a non-finite or huge number"):
        Linear(Stored(wide.T.copy()), Stored(BIAS[:2]))(huge)
    with pytest.raises(DataError, match="found a non-finite or huge number"):
        FeatureWeights(Stored(wide), Stored(BIAS[:2]))(Entries.of(sp.csr_matrix(huge)))


@pytest.mark.parametrize("prefix", ["", "members.1."])
def test_by_hand_of_network(prefix):
    """Two hidden layers of one unit: max(0, 2 x − 1), then max(0, 3 h + 1), and two outputs."""
    numbers = {
        "hidden.0.weight": [[2.0]],
        "hidden.0.bias": [-1.0],
        "hidden.1.weight": [[3.0]],
        "hidden.1.bias": [1.0],
        "output.weight": [[1.0], [10.0]],
        "output.bias": [0.0, 0.5],
    }
    weights = {prefix + name: Stored(np.array(each, dtype=np.float32)) for name, each in numbers.items()}
    member = Member(NetworkSettings(head="fc", hidden=(1, 1)), None, (1.0, 0.0), prefix)
    dense = np.array([[2.0], [0.0]], dtype=np.float32)
    assert Network(member, weights, sparse=False)(dense).tolist() == [[10, 100.5], [1, 10.5]]
    sparse = Entries(np.array([0, 1, 1]), np.array([0]), np.array([2.0], dtype=np.float32))
    assert Network(member, weights, sparse=True)(sparse).tolist() == [[10, 100.5], [1, 10.5]]
