"""What a network computes, from hidden layers to the best labels, defined once for NumPy, torch and ONNX.

Definitions use a few primitives: `arrays` implements them for NumPy, `tensors` for torch, and
`circlet.export.graph.Graph` has those that heads and scorers need for ONNX. A caller passes one of these as `ops`,
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
