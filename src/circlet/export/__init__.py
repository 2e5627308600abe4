"""A saved model as an ONNX graph, for programs that are not written in Python; `docs/export.md` describes it."""
