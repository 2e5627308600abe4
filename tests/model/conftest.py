"""Small trained models of every kind of document, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.data.synthetic import make_multilabel
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings

N, F, L = 80, 14, 6
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
SMALL = RunSettings(
    NetworkSettings(dim=24, hidden=(16,), dropout=0.2), TrainingSettings(epochs=3, batch_size=16, lr=0.02)
)
SYNTHETIC = make_multilabel(1500, 800, 60, seed=0, n_test=400, labels_per_row=2, words_per_row=20)


def _split(kind: str, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    Y = (random.random((N, L)) < 0.3).astype(np.float32)
    noise = (random.random((N, F - L)) * (random.random((N, F - L)) < 0.4)).astype(np.float32)
    X = np.hstack([Y * 2, noise]).astype(np.float32)
    if kind == "sparse":
        return Split(sp.csr_matrix(X), sp.csr_matrix(Y))
    if kind == "dense":
        return Split(X, sp.csr_matrix(Y))
    texts = [
        " ".join([*(f"label{label}" for label in np.flatnonzero(row)), *random.choice(WORDS, 3)]) for row in Y
    ]
    return Split(None, sp.csr_matrix(Y), texts)


def _trained(
    kind: str = "sparse", *, names: bool = True, network: NetworkSettings = SMALL.network, **arguments: Any
) -> Model:
    training = arguments.pop("training", SMALL.training)
    own = {name: arguments.pop(name) for name in ("scaling", "members") if name in arguments}
    settings = RunSettings(network, training, **own)
    return fit(
        _split(kind), settings, label_names=NAMES if names else None, validation=_split(kind, 1), **arguments
    )


@cache
def _shared(kind: str = "sparse", names: bool = True, members: int = 1) -> Model:
    return _trained(kind, names=names, members=members)


@cache
def _on_synthetic(**changes: Any) -> Model:
    network = NetworkSettings(dim=128, hidden=(64,), dropout=0.2, **changes)
    return fit(SYNTHETIC.train, RunSettings(network, TrainingSettings(epochs=8, batch_size=64, lr=0.01)))


@pytest.fixture(scope="session")
def small_run() -> RunSettings:
    """The settings of most models here."""
    return SMALL


@pytest.fixture(scope="session")
def split() -> Callable[..., Split]:
    """Make 80 documents of a kind (sparse, dense or texts) with some of 6 labels."""
    return _split


@pytest.fixture(scope="session")
def documents() -> Callable[[str], Any]:
    """Make documents that no model here has seen."""

    def make(kind: str) -> Any:
        rows = _split(kind, 2)
        return rows.texts if rows.X is None else rows.X

    return make


@pytest.fixture(scope="session")
def trained() -> Callable[..., Model]:
    """Train a model, for a test that changes it or its settings."""
    return _trained


@pytest.fixture(scope="session")
def shared() -> Callable[..., Model]:
    """Give a trained model that tests only read."""
    return _shared


@pytest.fixture(scope="session")
def synthetic() -> Dataset:
    """1,500 rows to learn from and 400 to test on, of 800 features and 60 labels."""
    return SYNTHETIC


@pytest.fixture(scope="session")
def on_synthetic() -> Callable[..., Model]:
    """Give a model of the synthetic rows that tests only read."""
    return _on_synthetic
