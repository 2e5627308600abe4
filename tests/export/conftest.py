"""Small untrained models of every kind, and ways to export them, run the graph and compare."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
import torch

from circlet.export.write import write_onnx
from circlet.features.rows import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.model import Model
from circlet.network import Network
from circlet.network.ensemble import Ensemble
from circlet.settings import NetworkSettings

F, L = 30, 40
CURVES = [(2.0, -1.0), (0.5, 0.25), (1.0, 0.0)]


def _network(settings: NetworkSettings, n_features: int, sparse: bool) -> Network:
    network = Network(settings, n_features, L, sparse=sparse)
    random = torch.Generator().manual_seed(settings.seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):  # zero at first, so that forgetting them would not be noticed
                parameter.copy_(torch.randn(parameter.shape, generator=random))
        if sparse:
            network.encoder.hidden[0].weight.mul_(50)  # so that documents differ
    return network


def _rows(sparse: bool, n: int = 9, seed: int = 0) -> Any:
    X = sp.random(n, F, density=0.3, format="csr", dtype=np.float32, random_state=seed)
    X.data -= 0.3
    X = sp.vstack([X[:2], sp.csr_matrix((1, F), dtype=np.float32), X[2:]], format="csr")
    return X if sparse else X.toarray()


def _model(
    *,
    scaling: str = "none",
    sparse: bool = True,
    members: int = 1,
    texts: list[str] | None = None,
    **settings: Any,
) -> Model:
    settings = {"dim": 12, "hidden": (16,), **settings}
    words = None if texts is None else TextVectorizer(word_ngrams=(1, 2), char_ngrams=(2, 4)).fit(texts)
    n_features = F if words is None else words.n_features
    networks = [_network(NetworkSettings(**settings, seed=i), n_features, sparse) for i in range(members)]
    return Model(
        Ensemble(networks, CURVES[:members] if members > 1 else None),
        Scaling(scaling).fit(_rows(sparse, 50, seed=1)),
        n_features=n_features,
        sparse=sparse,
        label_names=None if texts is None else [f"label {i}" for i in range(L)],
        vectorizer=words,
        calibration=(1.5, -0.5),
    )


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(path, options)


def _feeds(X: Any) -> dict[str, np.ndarray]:
    if not sp.issparse(X):
        return {"features": X}
    m = max(1, int(np.diff(X.indptr).max()))
    columns, values = np.full((X.shape[0], m), X.shape[1] - 1, np.int32), np.zeros((X.shape[0], m), np.float32)
    for i, row in enumerate(X):
        columns[i, : row.nnz], values[i, : row.nnz] = row.indices, row.data
    return {"columns": columns, "values": values}


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Model]:
    """Make a model of 30 features (or of texts) and 40 labels, with random weights."""
    return _model


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., Any]:
    """Make rows, the third of which is empty."""
    return _rows


@pytest.fixture(scope="session")
def feeds() -> Callable[[Any], dict[str, np.ndarray]]:
    """The graph's inputs for rows; columns are padded with the last one, which is a feature like others."""
    return _feeds


@pytest.fixture(scope="session")
def session() -> Callable[[Path], onnxruntime.InferenceSession]:
    """Load an exported file."""
    return _session


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Callable[..., tuple[Model, onnxruntime.InferenceSession]]:
    """Save and export a model; give what both are when they are read again."""
    folder, number = tmp_path_factory.mktemp("exported"), count()

    def export(model: Model, store: str = "float32", **options: Any) -> tuple[Model, Any]:
        saved = folder / f"model-{next(number)}"
        model.save(saved, store)
        path = saved.with_name(f"{saved.name}.onnx")
        write_onnx(saved, path, **options)
        return Model.load(saved), _session(path)

    return export


@pytest.fixture(scope="session")
def assert_same() -> Callable[..., None]:
    """Check that a graph gives what the model gives; documents are the model's, and rows the graph's."""

    def check(model: Model, graph: Any, documents: Any, rows: Any = None, k: int = 5) -> None:
        labels, probabilities, scores = graph.run(None, _feeds(documents if rows is None else rows))
        wanted = np.concatenate(list(model.score_blocks(documents)))
        assert wanted.std() > 0.05
        np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-5)
        ids, best = model.top_k(documents, k)
        assert labels.dtype == np.int64
        assert labels.shape == ids.shape
        np.testing.assert_allclose(probabilities, model.probabilities(best), rtol=1e-5, atol=1e-5)
        # Where ids differ, it is because the scores are almost the same.
        np.testing.assert_allclose(np.take_along_axis(wanted, labels, axis=1), best, rtol=1e-5, atol=1e-5)
        assert (labels == ids).mean() > 0.9
        assert all(len(set(row)) == len(row) for row in labels)

    return check
