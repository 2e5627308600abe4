from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from circlet import kernels as _kernels


@pytest.fixture
def fresh():
    _kernels.run_on.cache_clear()
    yield
    _kernels.run_on.cache_clear()


@pytest.mark.usefixtures("fresh")
class TestRunOn:
    def test_not_on_a_cpu(self):
        assert not _kernels.run_on(torch.device("cpu"))

    def test_not_without_triton(self, monkeypatch):
        monkeypatch.setattr(_kernels, "find_spec", lambda _: None)
        assert not _kernels.run_on(torch.device("cuda"))

    def test_not_where_a_kernel_fails_and_says_why(self, monkeypatch, caplog):
        def fails(*_):
            raise RuntimeError("found no C compiler")

        monkeypatch.setattr(_kernels, "find_spec", lambda _: object())
        monkeypatch.setattr(_kernels.torch, "ones", lambda *_, **__: None)
        monkeypatch.setitem(sys.modules, "circlet.kernels.triton", SimpleNamespace(adadelta=fails))
        with caplog.at_level(logging.WARNING):
            assert not _kernels.run_on(torch.device("cuda"))
        assert "found no C compiler" in caplog.text

    def test_where_a_kernel_runs(self, monkeypatch):
        monkeypatch.setattr(_kernels, "find_spec", lambda _: object())
        monkeypatch.setattr(_kernels.torch, "ones", lambda *_, **__: None)
        monkeypatch.setitem(sys.modules, "circlet.kernels.triton", SimpleNamespace(adadelta=lambda *_: None))
        assert _kernels.run_on(torch.device("cuda"))
