from __future__ import annotations

import numpy as np
import pytest

from circlet.features.rows import Entries
from circlet.folder.members import Member
from circlet.folder.tensors import Stored
from circlet.runtime.network import Network
from circlet.settings import NetworkSettings


@pytest.mark.parametrize("prefix", ["", "members.1."])
def test_by_hand(prefix):
    """Two hidden layers of one unit: max(0, 2 x − 1), then max(0, 3 h + 1), and two outputs."""
    numbers = {
        "hidden.0.weight": [[2.0]],
        "hidden.0.bias": [-1.0],
        "hidden.1.weight": [[3.0]],
        "hidden.1.bias": [1.0],
        "output.weight": [[1.0], [10.0]],
        "output.bias": [0.0, 0.5],
    }
    weights = {prefix + name: Stored(np.array(each, dtype=np.float32)) for name, each in numbers.items()}
    member = Member(NetworkSettings(head="fc", hidden=(1, 1)), None, (1.0, 0.0), prefix)
    dense = np.array([[2.0], [0.0]], dtype=np.float32)
    assert Network(member, weights, sparse=False)(dense).tolist() == [[10, 100.5], [1, 10.5]]
    sparse = Entries(np.array([0, 1, 1]), np.array([0]), np.array([2.0], dtype=np.float32))
    assert Network(member, weights, sparse=True)(sparse).tolist() == [[10, 100.5], [1, 10.5]]
