"""What a network computes after its hidden layers, stated once for all who compute it.

Definitions are in terms of a few primitives, which `arrays` implements for NumPy, `tensors` for torch, and
`circlet.export.graph.Graph` for ONNX, as far as heads need them. Whoever computes passes one of these as `ops`.
Only `tensors` imports torch.
"""
