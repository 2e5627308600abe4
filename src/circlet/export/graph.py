"""An ONNX graph under construction: nodes, constants, inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.errors import MissingExtraError, ParameterError
from circlet.version import __version__

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("onnx", extra="onnx", purpose="exporting a model") from error

__all__ = ["LARGEST", "OPSET", "Graph"]

#: The version of ONNX's operators: old enough for every runtime of the last years.
OPSET = 13
#: The version of the file format that came with it.
IR_VERSION = 7
#: Bytes of all constants together: Protocol Buffers end at 2 GB, and names and nodes need some room.
LARGEST = (1 << 31) - (1 << 20)

Value = str | npt.NDArray[Any] | np.generic


class Graph:
    """Nodes are added in the order in which they run; a value is known by its name."""

    def __init__(self) -> None:
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._bytes = 0

    def input(self, name: str, dtype: npt.DTypeLike, shape: list[str | int], meaning: str) -> str:
        """Declare an input; a dimension that may have any size has a name."""
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
        """Add a node with one output, whose name is returned; arrays among the inputs become constants."""
        return self.add_all(operator, *inputs, names=[name or f"value_{len(self._nodes)}"], **attributes)[0]

    def add_all(self, operator: str, *inputs: Value, names: list[str], **attributes: Any) -> list[str]:
        """Add a node whose outputs have these names."""
        values = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, values, names, **attributes))
        return names

    def halves(self, value: str) -> list[str]:
        """The first and the second half of the columns."""
        count = len(self._nodes)
        return self.add_all("Split", value, names=[f"value_{count}_{half}" for half in "ab"], axis=1)

    def model(self, metadata: dict[str, str]) -> onnx.ModelProto:
        """The finished model, checked."""
        graph = helper.make_graph(self._nodes, "circlet", self.inputs, self.outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="circlet",
            producer_version=__version__,
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def _described(name: str, dtype: npt.DTypeLike, shape: list[str | int], meaning: str) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, shape, doc_string=meaning)
