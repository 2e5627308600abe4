from __future__ import annotations

import pytest
import torch

from circlet.devices import multiplies_bfloat16, resolve_device
from circlet.errors import ParameterError


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
    with pytest.raises(ParameterError, match="`device` must be auto, cpu, cuda"):
        resolve_device(name)


class TestBfloat16:
    @pytest.fixture(autouse=True)
    def ask_again(self):
        multiplies_bfloat16.cache_clear()
        yield
        multiplies_bfloat16.cache_clear()

    @pytest.mark.parametrize(
        ("answers", "expected"), [((False, False), False), ((True, False), True), ((False, True), True)]
    )
    def test_a_cpu_is_asked(self, answers, expected, monkeypatch):
        for name, answer in zip(("avx512_bf16", "amx_tile"), answers, strict=True):
            monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda answer=answer: answer, raising=False)
        assert multiplies_bfloat16("cpu") is expected

    def test_without_an_answer_it_does_not(self, monkeypatch):
        for name in ("avx512_bf16", "amx_tile"):
            monkeypatch.delattr(torch.cpu, f"_is_{name}_supported", raising=False)
        assert not multiplies_bfloat16("cpu")

    def test_other_devices(self):
        assert multiplies_bfloat16("cuda")
        assert not multiplies_bfloat16("mps")
