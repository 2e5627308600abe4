from __future__ import annotations

import pytest
import torch

from circlet.compat import has_bfloat16_instructions
from circlet.errors import ParameterError
from circlet.training import resolve_device
from circlet.training.steps import multiplies_bfloat16


def test_auto():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_by_name():
    assert resolve_device("cpu") == torch.device("cpu")


def test_unknown():
    with pytest.raises(ParameterError, match=r"`device` 'gpu' is not available: \S"):
        resolve_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_absent():
    with pytest.raises(ParameterError, match=r"`device` 'cuda' is not available: \S") as caught:
        resolve_device("cuda")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, ["cpu"]])
def test_not_a_name(name):
    with pytest.raises(ParameterError, match=r"`device`: found .*; wanted auto, cpu, cuda"):
        resolve_device(name)


def test_bfloat16():
    assert multiplies_bfloat16("cpu") is has_bfloat16_instructions(torch.cpu)
    assert multiplies_bfloat16("cuda")
    assert not multiplies_bfloat16("mps")
