from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from circlet.folder.tensors import Stored
from circlet.network import heads as torch_heads
from circlet.runtime.network import HEADS, Linear

pytestmark = pytest.mark.usefixtures("one_thread")


def layers_of(head: torch.nn.Module) -> dict[str, Linear]:
    def stored(tensor: torch.Tensor) -> Stored:
        return Stored(tensor.detach().numpy())

    return {name: Linear(stored(layer.weight), stored(layer.bias)) for name, layer in head.named_children()}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_like_torch(name, n):
    head = torch_heads.HEADS[name](12, 7, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1)
    hidden = torch.rand(n, 12, generator=torch.Generator().manual_seed(1))
    found = HEADS[name](hidden.numpy(), layers_of(head))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, head(hidden).detach().numpy(), atol=1e-6)


def test_the_same_names_as_with_torch():
    assert list(HEADS) == list(torch_heads.HEADS)


def made(weight: list[list[float]], bias: list[float]) -> Linear:
    return Linear(Stored(np.array(weight, dtype=np.float32)), Stored(np.array(bias, dtype=np.float32)))


def test_by_hand():
    layer = made([[3.0], [0.0], [4.0], [2.0]], [0.0, 0.0, 0.0, 0.0])
    one = np.ones((1, 1), dtype=np.float32)
    # The pairs are (3, 4) and (0, 2).
    np.testing.assert_allclose(HEADS["chrr"](one, {"output": layer}), [[0.6, 0, 0.8, 1]], atol=1e-6)
    joint = np.array([[3, 0, 4, 2]]) / math.sqrt(29) * math.sqrt(2)
    np.testing.assert_allclose(HEADS["chrr-amplitude"](one, {"output": layer}), joint, atol=1e-6)
    np.testing.assert_allclose(HEADS["hrr"](one, {"output": layer}), joint / math.sqrt(2), atol=1e-6)
    assert HEADS["fc"](one, {"output": layer}).tolist() == [[3, 0, 4, 2]]


@pytest.mark.parametrize("name", ["chrr", "chrr-amplitude", "hrr"])
def test_nothing_predicted_is_finite(name):
    layer = made([[0.0], [0.0]], [0.0, 0.0])
    assert HEADS[name](np.ones((1, 1), dtype=np.float32), {"output": layer}).tolist() == [[0, 0]]
