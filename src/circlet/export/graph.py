"""A model as an ONNX graph: nodes, layers, scores of all labels, and the best of them.

**A spectral codebook without a table or a transform.** The code of slot s has the angles 2π · s · f / M. Write s
as a + A · b, with a below A ≈ √M. Then its code is that of slot a bound with that of slot A · b. So its similarity
to a prediction is the similarity of the prediction, unbound from the code of a, to the code of A · b. The graph
unbinds a prediction from the codes of the slots 0…A−1, and one matrix product compares the results with the codes
of the slots 0, A, 2A, …: this gives the scores of all M slots from a table of about 2√M codes.

ONNX has an operator for the Fourier transform that circlet itself uses, but it is of no use here: codebooks rarely
have a power of two as their length, and for other lengths onnxruntime's transform in float32 loses most digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from circlet.codebooks import Codebook, SpectralCodebook
from circlet.errors import MissingExtraError, ParameterError
from circlet.features.rows import Scaling
from circlet.runtime.model import RuntimeModel
from circlet.runtime.network import Floats
from circlet.scoring.arrays import LEAST_NORM, TINY
from circlet.scoring.heads import HEADS, hidden_vectors
from circlet.storage.network_spec import Member, hidden_layers
from circlet.storage.tensors import Stored
from circlet.version import __version__

__all__ = ["LARGEST", "OPSET", "Graph", "Rows", "outputs", "scaled", "tagger"]

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("onnx", extra="onnx", purpose="exporting a model") from error


#: The version of ONNX's operators: old enough for every runtime of the last years.
OPSET = 13
#: Bytes of all constants together: Protocol Buffers end at 2 GB, and names and nodes need some room.
LARGEST = (1 << 31) - (1 << 20)

Value = str | npt.NDArray[Any] | np.generic
#: The weight and the bias of a layer.
Layer = tuple[Stored, Stored]


class Graph:
    """Collects nodes in the order in which they run. A value is its name."""

    def __init__(self) -> None:
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._bytes = 0

    def input(self, name: str, dtype: npt.DTypeLike, shape: list[str | int], meaning: str) -> str:
        """Declare an input; a dimension of any size has a name."""
        self.inputs.append(_described(name, dtype, shape, meaning))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, shape: list[str | int], meaning: str) -> None:
        """Declare that a value is an output."""
        self.outputs.append(_described(name, dtype, shape, meaning))

    def constant(self, array: npt.NDArray[Any] | np.generic) -> str:
        """Add a constant."""
        array = np.asarray(array)
        self._bytes += array.nbytes
        if self._bytes > LARGEST:
            raise ParameterError(
                "found more than 2 GB of weights and codes; wanted at most that, since an ONNX file can't hold "
                "more: make a smaller copy with `circlet compress`, and export that"
            )
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: Value, name: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output; arrays among the inputs become constants."""
        return self.add_all(operator, *inputs, names=[name or f"value_{len(self._nodes)}"], **attributes)[0]

    def add_all(self, operator: str, *inputs: Value, names: list[str], **attributes: Any) -> list[str]:
        """Add a node whose outputs have these names."""
        values = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, values, names, **attributes))
        return names

    # The primitives of `circlet.scoring.arrays` that heads and scorers need.

    def split(self, value: str, parts: int) -> list[str]:
        count = len(self._nodes)
        return self.add_all("Split", value, names=[f"value_{count}_{part}" for part in range(parts)], axis=1)

    def concat(self, values: list[str]) -> str:
        return self.add("Concat", *values, axis=1)

    def sin(self, value: str) -> str:
        return self.add("Sin", value)

    def tanh(self, value: str) -> str:
        return self.add("Tanh", value)

    def subtract(self, a: str, b: str) -> str:
        return self.add("Sub", a, b)

    def absolute(self, value: str) -> str:
        return self.add("Abs", value)

    def affine(self, x: str, slope: float, intercept: float) -> str:
        return self.add("Add", self.add("Mul", x, np.float32(slope)), np.float32(intercept))

    def scores(self, book: Codebook, output: str, scale: float, bias: Floats | None) -> str:
        if isinstance(book, SpectralCodebook):
            found = _of_series(self, output, book, float(scale))
        else:
            factor = float(book.scale) * float(scale)
            found = self.add("Gemm", output, book.scored_codes(np.arange(book.n_labels)), transB=1, alpha=factor)
        return found if bias is None else self.add("Add", found, bias)

    def rectified(self, x: str, leak: float) -> str:
        return self.add("LeakyRelu", x, alpha=leak) if leak else self.add("Relu", x)

    def log_sigmoid(self, x: str) -> str:
        return self.subtract(self.add("Min", x, np.float32(0)), self._log_1p_exp_minus_abs(x))

    def log_sum(self, a: str, b: str) -> str:
        difference = self.subtract(a, b)
        return self.add("Add", self.add("Max", a, b), self._log_1p_exp_minus_abs(difference))

    def _log_1p_exp_minus_abs(self, x: str) -> str:
        power = self.add("Exp", self.add("Neg", self.add("Abs", x)))
        return self.add("Log", self.add("Add", power, np.float32(1)))

    def unit(self, rows: str, norm: float = 1.0) -> str:
        norms = self.add("ReduceL2", rows, axes=[1], keepdims=1)
        divided = self.add("Div", rows, self.add("Max", norms, np.float32(LEAST_NORM)))
        return divided if norm == 1 else self.add("Mul", divided, np.float32(norm))

    def unit_pairs(self, rows: str) -> str:
        x, y = self.split(rows, 2)
        squares = self.add("Add", self.add("Mul", x, x), self.add("Mul", y, y))
        norms = self.add("Sqrt", self.add("Add", squares, np.float32(TINY)))
        return self.concat([self.add("Div", x, norms), self.add("Div", y, norms)])

    def packed(self, half_turns: str) -> str:
        theta = self.add("Mul", half_turns, np.float32(math.pi))
        return self.concat([self.add("Cos", theta), self.add("Sin", theta)])

    def model(self, metadata: dict[str, str]) -> onnx.ModelProto:
        """Return the model, checked by ONNX."""
        graph = helper.make_graph(self._nodes, "circlet", self.inputs, self.outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=7,  # the version of the file format that came with these operators
            producer_name="circlet",
            producer_version=__version__,
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def _described(name: str, dtype: npt.DTypeLike, shape: list[str | int], meaning: str) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, shape, doc_string=meaning)


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
    """Scale rows as `circlet.features.rows` does."""
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
    return rows._replace(values=graph.unit(values))


def outputs(graph: Graph, rows: Rows, member: Member, weights: Mapping[str, Stored]) -> str:
    """Compute the output of a network's head for scaled rows, `(batch, width)`."""
    head, layer = HEADS[member.settings.head], partial(member.layer, weights)
    first, *others = map(layer, hidden_layers(member.settings))
    layers = [partial(_first_layer, graph, layer=first), *(partial(_linear, graph, layer=each) for each in others)]
    hidden = hidden_vectors(graph, rows, layers, member.settings.leak)
    last = [layer(name) for name in head.parts]
    n = sum(bias.shape[0] for _, bias in last)
    return str(head.output(graph, hidden, [partial(_linear, graph, layer=each) for each in last], n))


def _first_layer(graph: Graph, rows: Rows, layer: Layer) -> str:
    if rows.columns is None:
        return _linear(graph, rows.values, layer)
    # Only the weights of the document's own columns are read, and only these become float32.
    weight, bias = layer
    values, scales = rows.values, _scales(weight)
    weights = graph.add("Gather", weight.read() if scales is None else weight.numbers, rows.columns)
    if scales is not None:
        weights = graph.add("Cast", weights, to=onnx.TensorProto.FLOAT)
        values = graph.add("Mul", values, graph.add("Gather", scales, rows.columns))
    middle = np.array([1])
    product = graph.add("MatMul", graph.add("Unsqueeze", values, middle), weights)
    return graph.add("Add", graph.add("Squeeze", product, middle), bias.read())


def _linear(graph: Graph, x: str, layer: Layer) -> str:
    weight, bias = layer
    scales = _scales(weight)
    if scales is None:
        return graph.add("Gemm", x, weight.read(), bias.read(), transB=1)
    # A runtime converts a constant once, when it loads the file.
    product = graph.add("Gemm", x, graph.add("Cast", weight.numbers, to=onnx.TensorProto.FLOAT), transB=1)
    return graph.add("Add", graph.add("Mul", product, scales), bias.read())


def _scales(weight: Stored) -> Floats | None:
    """Return the factors of a weight's rows if it stays int8 in the file; other weights become float32."""
    return weight.scales if weight.numbers.dtype == np.int8 else None


def _of_series(graph: Graph, phasors: str, codes: SpectralCodebook, scale: float) -> str:
    """Compute the similarities of packed predictions to all labels, times `scale`."""
    steps = math.isqrt(codes.length)
    strides = -(-codes.length // steps)
    # For cos(θ − α): e^{i(θ − α)} is (cos θ cos α + sin θ sin α) + i (sin θ cos α − cos θ sin α).
    cos, sin = _angles(codes, np.arange(steps))
    swapped = graph.concat(graph.split(phasors, 2)[::-1])
    middle = np.array([1])
    unbound = graph.add(
        "Add",
        graph.add("Mul", graph.add("Unsqueeze", phasors, middle), np.hstack([cos, cos])),
        graph.add("Mul", graph.add("Unsqueeze", swapped, middle), np.hstack([sin, -sin])),
    )
    cos, sin = _angles(codes, steps * np.arange(strides))
    factor = np.float32(scale / len(codes.frequencies))
    by_slot = graph.add("MatMul", unbound, factor * np.hstack([cos, sin]).T)
    flat = graph.add("Reshape", by_slot, np.array([-1, steps * strides]))
    slots = codes.slots(np.arange(codes.n_labels))
    places = slots % steps * strides + slots // steps
    return graph.add("Gather", flat, places.astype(np.int32), axis=1)


def _angles(codes: SpectralCodebook, slots: np.ndarray) -> tuple[Floats, Floats]:
    """Return the cosines and sines of the codes of slots, `(slots, dim)` each."""
    # Full turns are removed while numbers are integers, so that large angles lose no digits.
    turns = slots[:, None] % codes.length * codes.frequencies % codes.length
    theta = turns * (2 * math.pi / codes.length)
    return np.cos(theta).astype(np.float32), np.sin(theta).astype(np.float32)


def tagger(model: RuntimeModel, weights: Mapping[str, Stored], k: int) -> Graph:
    """Make a graph that finds the k best labels of each document, or all labels if there are fewer.

    | input | shape | |
    |---|---|---|
    | `features` | (batch, n_features) float32 | for a model of dense rows |
    | `columns` | (batch, m) int32 | for a model of sparse rows or of texts |
    | `values` | (batch, m) float32 | with them: the values at these columns; 0 is padding |

    | output | shape | |
    |---|---|---|
    | `labels` | (batch, k) int64 | ids, best first |
    | `probabilities` | (batch, k) float32 | calibrated |
    | `scores` | (batch, n_labels) float32 | of all labels |
    """
    graph, k = Graph(), min(k, model.n_labels)
    rows = scaled(graph, _inputs(graph, model), model.scaling)
    heads = [outputs(graph, rows, member, weights) for member in model.members]
    each = (scorer.scores(graph, head) for head, scorer in zip(heads, model.scorers, strict=True))
    graph.add("Identity", model.scorer.mean(graph, each), name="scores")
    best, _ = graph.add_all("TopK", "scores", np.array([k]), names=["best", "labels"])
    graph.add("Sigmoid", graph.affine(best, *model.calibration), name="probabilities")
    graph.output("labels", np.int64, ["batch", k], "ids of the best labels, best first")
    graph.output("probabilities", np.float32, ["batch", k], "their calibrated probabilities")
    graph.output("scores", np.float32, ["batch", model.n_labels], "the scores of all labels")
    return graph


def _inputs(graph: Graph, model: RuntimeModel) -> Rows:
    if not model.sparse:
        return Rows(graph.input("features", np.float32, ["batch", model.n_features], "feature rows"))
    meaning = f"the columns below {model.n_features} that a row has values at, padded with any column"
    columns = graph.input("columns", np.int32, ["batch", "m"], meaning)
    values = graph.input("values", np.float32, ["batch", "m"], "the values at these columns, padded with 0")
    return Rows(values, columns)
