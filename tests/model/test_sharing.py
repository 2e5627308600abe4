from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from circlet.model.sharing import share_weights
from circlet.network import Network
from circlet.settings import NetworkSettings

#: The features 0, 2 and 5 are in the same rows, and so are 1 and 4; 6 is in none.
ROWS = sp.csr_matrix(
    np.array([[1, 0, 2, 3, 0, 2, 0], [0, 1, 0, 1, 1, 0, 0], [2, 0, 4, 0, 0, 4, 0]], dtype=np.float32)
)


def network() -> Network:
    return Network(NetworkSettings(dim=8, hidden=(5,)), 7, 4, sparse=True)


def first(of: Network) -> torch.Tensor:
    weight: torch.Tensor = of.state_dict()["encoder.hidden.0.weight"]
    return weight.clone()


def test_by_hand():
    made = network()
    before = first(made)
    share_weights(made, ROWS)
    after = first(made)
    torch.testing.assert_close(after[0], (before[0] + 2 * before[2] + 2 * before[5]) / 5)
    assert torch.equal(after[0], after[2])
    assert torch.equal(after[0], after[5])
    torch.testing.assert_close(after[1], (before[1] + before[4]) / 2)
    assert torch.equal(after[1], after[4])
    assert torch.equal(after[[3, 6]], before[[3, 6]])
    # So nothing changes for these rows.
    dense = torch.from_numpy(ROWS.toarray())
    torch.testing.assert_close(dense @ after, dense @ before)


def test_zeros_that_are_stored_do_not_count():
    rows = ROWS.copy()
    rows.data[rows.indices == 3] = 0
    made = network()
    before = first(made)
    share_weights(made, rows)
    assert torch.equal(first(made)[3], before[3])


@pytest.mark.parametrize(
    "rows", [ROWS.toarray(), sp.csr_matrix(np.eye(7, dtype=np.float32))], ids=["dense", "all"]
)
def test_nothing_to_share(rows):
    made = network()
    before = first(made)
    share_weights(made, rows)
    assert torch.equal(first(made), before)


def test_a_custom_encoder_is_left_alone():
    made = Network(NetworkSettings(dim=8, hidden=(5,)), 7, 4, sparse=True, encoder=nn.Linear(7, 5))
    before = made.state_dict()["encoder.weight"].clone()
    share_weights(made, ROWS)
    assert torch.equal(made.state_dict()["encoder.weight"], before)
