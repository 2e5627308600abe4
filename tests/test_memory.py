from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.errors import CircletError, MemoryLimitError
from circlet.memory import about_memory, check_fits, within_memory
from circlet.network import Network
from circlet.settings import NetworkSettings

HUGE = 1 << 55  # bytes; no machine has as many addresses


@pytest.mark.parametrize(
    "ask",
    [
        lambda: np.empty(HUGE, dtype=np.int8),
        lambda: torch.empty(HUGE, dtype=torch.int8),
        lambda: torch.empty((HUGE, HUGE)),
        lambda: torch.empty(10**20),
        lambda: bytearray(HUGE),
        lambda: check_fits(HUGE),
    ],
)
def test_whoever_asks_for_too_much(ask):
    with (
        pytest.raises(
            MemoryLimitError, match=r"^a table does not fit into memory \(.+\); wanted smaller"
        ) as raised,
        within_memory("a table"),
    ):
        ask()
    assert isinstance(raised.value, MemoryError)
    assert isinstance(raised.value, CircletError)
    assert "alloc_cpu.cpp" not in str(raised.value)


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("shapes do not match"), ValueError("allocate")):
        with pytest.raises(type(error), match=str(error)), within_memory("a table"):
            raise error
    assert about_memory(RuntimeError("shapes do not match")) is None


def test_a_network_names_its_sizes():
    with pytest.raises(
        MemoryLimitError, match=r"a network of 1,099,511,627,776 features, hidden layers of 65,536 and"
    ):
        Network(NetworkSettings(hidden=(65536, 8)), 1 << 40, 3, sparse=False)
