"""Documents whose words are their labels, and classifiers that have learned them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet import CircletClassifier

WORDS = ["red", "green", "blue", "round", "square", "flat"]
LABELS = ["R", "G", "B", "r", "s", "f"]


def _documents(n: int = 60, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    random = np.random.default_rng(seed)
    chosen = [random.permutation(len(WORDS))[: random.integers(1, 4)] for _ in range(n)]
    return [" ".join(WORDS[i] for i in row) for row in chosen], [[LABELS[i] for i in row] for row in chosen]


def _indicator(n: int = 60) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    texts, _ = _documents(n)
    X = sp.csr_matrix([[float(word in text.split()) for word in WORDS] for text in texts], dtype=np.float32)
    return X, sp.csr_matrix(X)


def _learner(**parameters: Any) -> CircletClassifier:
    small = {"dim": 32, "hidden": (32,), "epochs": 25, "batch_size": 16, "lr": 0.03, "dropout": 0.0}
    return CircletClassifier(**{**small, "validation": 0.0, "device": "cpu", **parameters})


@pytest.fixture(scope="session")
def documents() -> Callable[..., tuple[list[str], list[list[str]]]]:
    """Make texts of one to three words, each of which means a label."""
    return _documents


@pytest.fixture(scope="session")
def indicator() -> Callable[..., tuple[sp.csr_matrix, sp.csr_matrix]]:
    """Make the same as rows: features are words, and column i of Y is word i."""
    return _indicator


@pytest.fixture(scope="session")
def learner() -> Callable[..., CircletClassifier]:
    """Make a classifier that learns these documents in a moment."""
    return _learner


@pytest.fixture(scope="session")
def on_texts() -> CircletClassifier:
    """A classifier that tests only read."""
    return _learner().fit(*_documents())


@pytest.fixture(scope="session")
def on_rows() -> CircletClassifier:
    """A classifier that tests only read."""
    return _learner().fit(*_indicator())
