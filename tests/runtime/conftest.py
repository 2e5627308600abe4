"""Models of every kind with random weights, as torch has them and as they are used without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.features.rows import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings

WORDS = [f"{start}{end}" for start in ("fo", "ba", "mü", "日本", "qu") for end in ("x", "ze", "ra", "", "kel")]
N_FEATURES, N_LABELS = 30, 23


def _documents(kind: str, n: int, seed: int, n_features: int = N_FEATURES) -> Any:
    random = np.random.default_rng(seed)
    if kind == "texts":
        return [" ".join(random.choice(WORDS, random.integers(0, 9))) for _ in range(n)]
    if kind == "dense":
        return random.standard_normal((n, n_features)).astype(np.float32)
    rows = sp.random(n, n_features, 0.3, format="csr", dtype=np.float32, random_state=seed)
    rows.data -= 0.3
    return rows


def _made(
    kind: str = "sparse",
    *,
    members: int = 1,
    scaling: str = "auto",
    n_labels: int = N_LABELS,
    n_features: int = N_FEATURES,
    seed: int = 0,
    named: bool = False,
    text: dict[str, Any] | None = None,
    **changes: Any,
) -> Model:
    train = _documents(kind, 40, seed, n_features)
    vectorizer = None
    if kind == "texts":
        vectorizer = TextVectorizer(**text or {})
        train, scaling = vectorizer.fit_transform(train), "none"
    fitted = Scaling(scaling).fit(train)
    settings = [
        NetworkSettings(**{"dim": 16, "hidden": (12,), "seed": seed + i, **changes}) for i in range(members)
    ]
    networks = [Network(each, train.shape[1], n_labels, sparse=kind != "dense") for each in settings]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():  # biases are zero at first, and would hide mistakes
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    random = np.random.default_rng(seed)
    curves = [(float(random.uniform(0.5, 2)), float(random.normal())) for _ in networks]
    return Model(
        Ensemble(networks, curves if members > 1 else None),
        fitted,
        n_features=train.shape[1],
        sparse=kind != "dense",
        label_names=[f"label {i}" for i in range(n_labels)] if named else None,
        vectorizer=vectorizer,
        calibration=(1.3, -0.4),
        history=[{"epoch": 1, "loss": 0.5}],
        training={"documents": 40, "held_out": 2},
        label_counts=random.integers(0, 30, n_labels),
    )


@pytest.fixture(scope="session")
def made() -> Callable[..., Model]:
    """Make a model: the kind of its documents (sparse, dense or texts), and settings of all its parts."""
    return _made


@pytest.fixture(scope="session")
def some() -> Callable[..., Any]:
    """Make documents of a kind: how many, and a seed."""
    return _documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a small model of texts was saved."""
    _made("texts", named=True).save(tmp_path / "model")
    return tmp_path / "model"
