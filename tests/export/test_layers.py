from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp

from circlet.export.graph import HEADS, Graph, Rows, scaled
from circlet.features.rows import Scaling
from circlet.settings import network as settings

X = np.array([[4, 0, -9, 1], [0, 0, 0, 0], [0, 2, 0, 0]], dtype=np.float32)


def by_graph(scaling: Scaling, X) -> np.ndarray:
    """Rows scaled by a graph; of sparse rows, only their values, `(n, m)`."""
    graph = Graph()
    values = graph.input("values", np.float32, ["batch", "m"], "")
    feeds = {"values": X}
    columns = None
    if sp.issparse(X):
        columns = graph.input("columns", np.int32, ["batch", "m"], "")
        # All columns, so that values stay at their places.
        feeds = {"values": X.toarray(), "columns": np.tile(np.arange(X.shape[1], dtype=np.int32), (X.shape[0], 1))}
    result = scaled(graph, Rows(values, columns), scaling)
    graph.add("Identity", result.values, name="scaled")
    graph.output("scaled", np.float32, ["batch", "m"], "")
    return onnxruntime.InferenceSession(graph.model({}).SerializeToString()).run(None, feeds)[0]


def test_every_head_is_known():
    assert list(HEADS) == list(settings.HEADS)


def test_square_roots_by_hand():
    expected = np.array([[2, 0, -3, 1], [0, 0, 0, 0], [0, 1, 0, 0]]) / [[14**0.5], [1], [1]]
    np.testing.assert_allclose(by_graph(Scaling("sqrt"), X), expected, rtol=1e-6)


def test_standard_by_hand():
    scaling = Scaling("standard").fit(np.array([[0, 1, 5, 0], [2, 1, 9, 8]], dtype=np.float32))
    expected = [[3, -1, -8, -0.75], [-1, -1, -3.5, -1], [-1, 1, -3.5, -1]]
    np.testing.assert_allclose(by_graph(scaling, X), expected, rtol=1e-6)


@pytest.mark.parametrize("factor", [1, 1e37, 1e-30, 1e-38])
@pytest.mark.parametrize("kind", ["l2", "sqrt", "tfidf"])
@pytest.mark.parametrize("sparse", [True, False])
def test_very_large_and_very_small_values(kind, sparse, factor):
    rows = (X * np.float32(factor)).astype(np.float32)
    rows = sp.csr_matrix(rows) if sparse else rows
    scaling = Scaling(kind).fit(X)
    wanted = scaling.transform(rows)
    wanted = wanted.toarray() if sparse else wanted
    assert np.linalg.norm(wanted[0]) == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(by_graph(scaling, rows), wanted, rtol=1e-5)
