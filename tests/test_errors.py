from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet import errors
from circlet.errors import MemoryLimitError, about_memory, check_fits, within_memory
from circlet.network import Network
from circlet.settings import NetworkSettings

HUGE = 1 << 55  # bytes; no machine has as many addresses


def test_each_is_also_what_a_python_programmer_would_catch():
    for kind, builtin in (
        (errors.ParameterError, ValueError),
        (errors.ShapeError, ValueError),
        (errors.DTypeError, TypeError),
        (errors.DataError, ValueError),
        (errors.FetchError, OSError),
        (errors.OutputError, OSError),
        (errors.MemoryLimitError, MemoryError),
        (errors.MissingExtraError, ImportError),
    ):
        assert issubclass(kind, errors.CircletError)
        assert issubclass(kind, builtin)


@pytest.mark.parametrize("kind", [errors.DataError, errors.OutputError, errors.FetchError])
def test_a_long_message_loses_its_middle(kind):
    message = f"file.txt:3: found {'x' * 2_000_000}; wanted text"
    shown = str(kind(message))
    assert len(shown) == errors.LONGEST
    assert shown.startswith("file.txt:3: found xxx")
    assert shown.endswith("xxx; wanted text")
    assert str(kind(message[: errors.LONGEST])) == message[: errors.LONGEST]


def test_a_message_is_one_line_that_a_terminal_shows_and_does_not_obey():
    assert str(errors.DataError("found a\nb; wanted  c")) == "found a b; wanted  c"
    assert str(errors.DataError("found \x1b[2J\t\u202e\ud800 größer")) == r"found \x1b[2J\t\u202e\ud800 größer"
    assert len(str(errors.DataError("\0" * 10_000))) == errors.LONGEST


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
