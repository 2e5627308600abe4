from __future__ import annotations

import pytest
import torch

from circlet.compat import has_bfloat16_instructions
from circlet.errors import ParameterError
from circlet.training import resolve_device
from circlet.training.steps import multiplies_bfloat16


def test_by_name():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == torch.device("cpu")


absent = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", r"`device` 'gpu' is not available: \S"),
        pytest.param("cuda", r"`device` 'cuda' is not available: \S", marks=absent),
        *((name, "`device`: found .*; wanted auto, cpu, cuda") for name in (None, 3, ["cpu"])),
    ],
)
def test_not_available(name, message):
    with pytest.raises(ParameterError, match=message) as caught:
        resolve_device(name)
    assert "\n" not in str(caught.value)


def test_bfloat16():
    assert multiplies_bfloat16("cpu") is has_bfloat16_instructions(torch.cpu)
    assert multiplies_bfloat16("cuda")
    assert not multiplies_bfloat16("mps")
