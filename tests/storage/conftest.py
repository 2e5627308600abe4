"""Folders of small models that nobody trained: what is in the files matters here, not what it is good for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from circlet.features.rows import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.files import write_tensors
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.runtime import RuntimeModel
from circlet.storage.contents import read
from circlet.storage.layout import CARD, read_config
from circlet.storage.tensors import map_tensors

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
            Ensemble(networks),
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


@pytest.fixture(scope="session")
def state() -> Callable[[Path], tuple[Any, ...]]:
    """Everything that a folder holds, to compare."""

    def read_all(folder: Path) -> tuple[Any, ...]:
        found = read(folder, whole=True, estimator=True)
        RuntimeModel.restore(folder, found)
        digest = hashlib.sha256()
        for name in sorted(found.tensors):
            digest.update(name.encode() + found.tensors[name].read().tobytes())
        words = None if found.vectorizer is None else found.vectorizer.feature_names()
        return digest.hexdigest(), found.label_names, words, found.estimator, found.config["calibration"]

    return read_all


@pytest.fixture(scope="session")
def only_the_model() -> Callable[[Path], bool]:
    """Whether there is nothing in a folder that its config.json does not list, except a card."""

    def check(folder: Path) -> bool:
        listed = {about["file"] for about in read_config(folder)["files"].values()}
        return {path.name for path in folder.iterdir()} - {CARD} == {"config.json", *listed}

    return check


@pytest.fixture(scope="session")
def change_tensors() -> Callable[[Path, Callable[[dict[str, Any]], object]], None]:
    """Change the tensors of a file."""

    def change(path: Path, inflict: Callable[[dict[str, Any]], object]) -> None:
        tensors = {name: array.copy() for name, array in map_tensors(path).items()}
        inflict(tensors)
        write_tensors(path, tensors)

    return change
