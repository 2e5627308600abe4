"""Folders of small models that nobody trained: what is in the files matters here, not what it is good for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from circlet.features.scaling import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings

F, L = 14, 6
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]
TEXTS = ["red fox", "größer als zuvor", "one two three"]


@pytest.fixture(scope="session")
def untrained() -> Callable[..., Model]:
    """Make a model of 6 labels: its number of networks, and other settings of the network."""

    def make(*, members: int = 1, texts: bool = False, **changes: Any) -> Model:
        settings = NetworkSettings(**{"dim": 24, "hidden": (16,), **changes})
        vectorizer = TextVectorizer().fit(TEXTS) if texts else None
        n_features = F if vectorizer is None else vectorizer.n_features
        networks = [Network(settings, n_features, L, sparse=True) for _ in range(members)]
        scaling = Scaling("tfidf").fit(sp.csr_matrix((3, n_features)))
        return Model(
            networks[0] if members == 1 else Ensemble(networks),
            scaling,
            n_features=n_features,
            sparse=True,
            label_names=NAMES,
            vectorizer=vectorizer,
            history=[{"epoch": 1, "loss": 0.5}],
        )

    return make


@pytest.fixture
def folder(tmp_path: Path, untrained: Callable[..., Model]) -> Path:
    """Where such a model was saved."""
    untrained().save(tmp_path / "model")
    return tmp_path / "model"
