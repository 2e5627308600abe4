from __future__ import annotations

import importlib
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from circlet.errors import MissingExtraError, ParameterError
from circlet.export import graph as module
from circlet.export.graph import OPSET, Graph
from circlet.version import __version__


def run(graph: Graph, **feeds: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(graph.model({}).SerializeToString()).run(None, feeds)


def swapped_halves() -> Graph:
    graph = Graph()
    first, second = graph.halves(graph.input("x", np.float32, ["batch", 4], "numbers"))
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
