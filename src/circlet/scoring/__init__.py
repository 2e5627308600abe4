"""What a network computes after its hidden layers, stated once for all who compute it.

Definitions are in terms of a few primitives, which `arrays` implements for NumPy, `tensors` for torch, and
`circlet.export.graph.Graph` for ONNX, as far as heads need them. Whoever computes passes one of these as `ops`,
or asks `primitives` for those of an array. Only `tensors` imports torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from circlet.scoring import arrays

__all__ = ["primitives"]


def primitives(numbers: Any) -> Any:
    """The primitives for an array, or for a tensor."""
    if isinstance(numbers, np.ndarray):
        return arrays

    from circlet.scoring import tensors  # which needs torch

    return tensors
