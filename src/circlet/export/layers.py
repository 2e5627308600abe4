"""From documents to a head's output: scaling, encoder and head, as nodes of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from circlet.export.graph import Graph
from circlet.export.saved import Layer, Member
from circlet.features.rows import Scaling

__all__ = ["HEADS", "Rows", "outputs", "scaled"]

#: The least norm that rows are divided by, as in `circlet.network.heads`.
LEAST_NORM = np.float32(1e-12)
#: What is added to the squared norm of a pair there.
TINY = np.float32(1e-12)


class Rows(NamedTuple):
    """Feature rows.

    Parameters
    ----------
    values : str
        Dense rows `(batch, n_features)` or, with columns, the values at these, `(batch, m)`.
    columns : str or None
        The columns that sparse rows have values at, `(batch, m)`. Padding has the value 0.
    """

    values: str
    columns: str | None = None


def scaled(graph: Graph, rows: Rows, scaling: Scaling) -> Rows:
    """Rows scaled as `circlet.features.rows` does it."""
    values, arrays = rows.values, scaling.arrays
    if scaling.kind == "none":
        return rows
    if scaling.kind == "standard":
        shifted = graph.add("Sub", values, arrays["mean"])
        return rows._replace(values=graph.add("Mul", shifted, arrays["scale"]))
    # The other kinds end with norm 1, so dividing by the largest value first changes nothing, and squares neither
    # overflow nor vanish. circlet itself uses float64 for this, which not all runtimes have.
    largest = graph.add("ReduceMax", graph.add("Abs", values), axes=[1], keepdims=1)
    values = graph.add("Div", values, graph.add("Max", largest, np.finfo(np.float32).tiny))
    if scaling.kind == "tfidf":
        idf = arrays["idf"]
        values = graph.add("Mul", values, idf if rows.columns is None else graph.add("Gather", idf, rows.columns))
    elif scaling.kind == "sqrt":
        values = graph.add("Mul", graph.add("Sign", values), graph.add("Sqrt", graph.add("Abs", values)))
    return rows._replace(values=_normalized(graph, values))


def outputs(graph: Graph, rows: Rows, member: Member) -> str:
    """The output of a network's head for scaled rows, `(batch, width)`."""
    first, *others = member.encoder
    hidden = _activated(graph, _first_layer(graph, rows, first), member.settings.leak)
    for layer in others:
        hidden = _activated(graph, _linear(graph, hidden, layer), member.settings.leak)
    return HEADS[member.settings.head](graph, hidden, member.head)


def _activated(graph: Graph, x: str, leak: float) -> str:
    return graph.add("LeakyRelu", x, alpha=leak) if leak else graph.add("Relu", x)


def _first_layer(graph: Graph, rows: Rows, layer: Layer) -> str:
    if rows.columns is None:
        return _linear(graph, rows.values, layer)
    # Only the weights of the document's own columns are read, and only these become float32.
    values, weights = rows.values, graph.add("Gather", layer.weight, rows.columns)
    if layer.scales is not None:
        weights = graph.add("Cast", weights, to=TensorProto.FLOAT)
        values = graph.add("Mul", values, graph.add("Gather", layer.scales, rows.columns))
    middle = np.array([1])
    product = graph.add("MatMul", graph.add("Unsqueeze", values, middle), weights)
    return graph.add("Add", graph.add("Squeeze", product, middle), layer.bias)


def _linear(graph: Graph, x: str, layer: Layer) -> str:
    if layer.scales is None:
        return graph.add("Gemm", x, layer.weight, layer.bias, transB=1)
    # A runtime converts a constant once, when it loads the file.
    weight = graph.add("Cast", layer.weight, to=TensorProto.FLOAT)
    product = graph.add("Gemm", x, weight, transB=1)
    return graph.add("Add", graph.add("Mul", product, layer.scales), layer.bias)


def _normalized(graph: Graph, rows: str) -> str:
    norm = graph.add("ReduceL2", rows, axes=[1], keepdims=1)
    return graph.add("Div", rows, graph.add("Max", norm, LEAST_NORM))


# Heads; `circlet.network.heads` says what each is.


def _circular(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    return _phasors(graph, *graph.halves(_linear(graph, hidden, layers[0])))


def _half(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    parts = zip(graph.halves(hidden), layers, strict=True)
    return _phasors(graph, *(_linear(graph, part, layer) for part, layer in parts))


def _phasors(graph: Graph, x: str, y: str) -> str:
    squares = graph.add("Add", graph.add("Mul", x, x), graph.add("Mul", y, y))
    norm = graph.add("Sqrt", graph.add("Add", squares, TINY))
    return graph.add("Concat", graph.add("Div", x, norm), graph.add("Div", y, norm), axis=1)


def _amplitude(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    norm = math.sqrt(len(layers[0].bias) / 2)
    return graph.add("Mul", _real(graph, hidden, layers), np.float32(norm))


def _sine(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    return _packed(graph, graph.add("Sin", _linear(graph, hidden, layers[0])))


def _tanh(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    return _packed(graph, graph.add("Tanh", _linear(graph, hidden, layers[0])))


def _packed(graph: Graph, half_turns: str) -> str:
    theta = graph.add("Mul", half_turns, np.float32(math.pi))
    return graph.add("Concat", graph.add("Cos", theta), graph.add("Sin", theta), axis=1)


def _real(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    return _normalized(graph, _linear(graph, hidden, layers[0]))


def _full(graph: Graph, hidden: str, layers: list[Layer]) -> str:
    return _linear(graph, hidden, layers[0])


HEADS: dict[str, Callable[[Graph, str, list[Layer]], str]] = {
    "chrr": _circular,
    "chrr-amplitude": _amplitude,
    "chrr-half": _half,
    "chrr-sin": _sine,
    "chrr-tanh": _tanh,
    "hrr": _real,
    "fc": _full,
}
