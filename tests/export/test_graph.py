from __future__ import annotations

import importlib
import sys
from math import log

import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from circlet.codebooks import SpectralCodebook
from circlet.errors import MissingExtraError, ParameterError
from circlet.export import graph as module
from circlet.export.graph import OPSET, Graph, Rows, scaled
from circlet.features.rows import Scaling
from circlet.scoring.scorers import Ensemble, Scorer
from circlet.version import __version__


def run(graph: Graph, **feeds: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(graph.model({}).SerializeToString()).run(None, feeds)


def swapped_halves() -> Graph:
    graph = Graph()
    first, second = graph.split(graph.input("x", np.float32, ["batch", 4], "numbers"), 2)
    graph.add("Concat", second, graph.add("Mul", first, np.float32(10)), axis=1, name="y")
    graph.output("y", np.float32, ["batch", 4], "the same, swapped")
    return graph


def test_solved_by_hand():
    (y,) = run(swapped_halves(), x=np.array([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=np.float32))
    assert y.tolist() == [[3, 4, 10, 20], [7, 8, 50, 60]]


def test_what_the_file_says():
    model = swapped_halves().model({"slope": "2.0"})
    assert (model.producer_name, model.producer_version) == ("circlet", __version__)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", OPSET)]
    assert {each.key: each.value for each in model.metadata_props} == {"slope": "2.0"}
    assert [(each.name, each.doc_string) for each in model.graph.input] == [("x", "numbers")]
    assert [(each.name, each.doc_string) for each in model.graph.output] == [("y", "the same, swapped")]


@pytest.mark.parametrize(
    ("operator", "other"),
    [("Mul", np.zeros(3, np.float32)), ("Mul", np.zeros(4)), ("Multiply", np.zeros(4, np.float32))],
)
def test_mistakes_in_a_graph_are_found(operator, other):
    """Shapes that do not fit, types that do not fit, and operators that do not exist."""
    graph = Graph()
    graph.add(operator, graph.input("x", np.float32, ["batch", 4], ""), other, name="y")
    graph.output("y", np.float32, ["batch", 4], "")
    with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
        graph.model({})


def test_more_than_a_file_can_hold(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 100)
    graph = Graph()
    graph.constant(np.zeros(20, np.float32))
    graph.constant(np.zeros(20, np.int8))
    with pytest.raises(ParameterError, match=r"found more than 2 GB of weights.*`circlet compress`"):
        graph.constant(np.zeros(1, np.int8))


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(MissingExtraError, match=r"needs onnx, .*pip install 'circlet\[onnx\]'"):
        importlib.import_module(module.__name__)


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


def last(graph: Graph, output: str, **feeds: np.ndarray) -> np.ndarray:
    """What a value is, as the graph's only output."""
    graph.add("Identity", output, name="y")
    graph.output("y", np.float32, ["batch", "n"], "")
    return run(graph, **feeds)[0]


def of(book: SpectralCodebook) -> Scorer:
    """The scorer that has this codebook."""
    return Scorer(book, book.n_labels, 1.0, None)


class TestSpectral:
    @given(
        n_labels=st.integers(1, 300),
        dim=st.integers(1, 40),
        more=st.integers(0, 200),
        seed=st.integers(0, 1000),
    )
    def test_are_the_codebooks(self, n_labels, dim, more, seed):
        """For lengths with and without divisors: the graph does not need any."""
        length = max(n_labels, 2 * (dim + 1)) + more
        book = SpectralCodebook(n_labels, dim, seed, length=length + length % 2)
        phasors = torch.randn(3, 2 * dim, generator=torch.Generator().manual_seed(seed))
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 2 * dim], "")
        found = of(book).scores(graph, output)
        wanted = book.scores(phasors).numpy()
        np.testing.assert_allclose(last(graph, found, x=phasors.numpy()), wanted, atol=2e-6 * np.abs(wanted).max())

    def test_digits_of_large_angles(self):
        book = SpectralCodebook(200_000, 64, 0, length=299_998)  # twice a prime
        best = torch.tensor([0, 77_777, 199_999])
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 128], "")
        codes = book.codes(best)
        found = last(graph, of(book).scores(graph, output), x=codes.numpy())
        np.testing.assert_allclose(found, book.scores(codes).numpy(), atol=2e-6)
        assert found.argmax(axis=1).tolist() == best.tolist()

    def test_constants_do_not_grow_with_labels_times_dim(self):
        book = SpectralCodebook(100_000, 200, 0)
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 400], "")
        of(book).scores(graph, output)
        size = sum(len(each.raw_data) for each in graph._constants)
        assert size < 4 * book.length + 5 * 400 * 4 * book.length**0.5
        assert size < 100_000 * 400 * 4 / 50


class TestMeanLogOdds:
    def of(self, columns: np.ndarray, curves: list[tuple[float, float]]) -> np.ndarray:
        """From the scores of several networks, `(members, n)`."""
        graph = Graph()
        parts = [graph.input(f"x{i}", np.float32, ["batch", "n"], "") for i in range(len(columns))]
        feeds = {f"x{i}": np.float32(column)[None] for i, column in enumerate(columns)}
        ensemble = Ensemble([Scorer(None, columns.shape[1])] * len(columns), curves)
        return last(graph, ensemble.mean(graph, parts), **feeds)[0]

    def test_solved_by_hand(self):
        logits = np.array([[log(0.2 / 0.8), 0.0], [log(0.6 / 0.4), log(3)]])
        expected = [log(0.4 / 0.6), log(0.625 / 0.375)]
        np.testing.assert_allclose(self.of(logits, [(1, 0), (1, 0)]), expected, rtol=1e-5)
        curves = [(2.0, 1.0), (0.5, -3.0)]
        scores = [(row - intercept) / slope for row, (slope, intercept) in zip(logits, curves, strict=True)]
        np.testing.assert_allclose(self.of(np.array(scores), curves), expected, rtol=1e-5)

    @pytest.mark.parametrize(
        ("logits", "expected"),
        [
            ([1000.0, 1000.0], 1000.0),
            ([-1000.0, -1000.0], -1000.0),
            ([500.0, -500.0], 0.0),
            ([1e30, 1e30], 1e30),
            ([-200.0, -1e30], -200 - log(2)),  # half of e⁻²⁰⁰
            ([100.0, 90.0, 90.0], 90 + log(3 / 2)),
        ],
    )
    def test_next_to_0_and_1_nothing_is_rounded(self, logits, expected):
        found = self.of(np.array(logits)[:, None], [(1.0, 0.0)] * len(logits))
        assert found[0] == pytest.approx(expected, rel=1e-6)
