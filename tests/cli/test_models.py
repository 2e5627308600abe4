from __future__ import annotations

import pytest
import torch

from circlet.cli.models import load_model
from circlet.errors import ParameterError
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.threads import worker_count

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_on_a_cpu(device, model):
    assert isinstance(load_model(model, device, None), RuntimeModel)


def test_with_so_many_threads(model, monkeypatch):
    monkeypatch.setattr("circlet.threads._chosen", None)
    load_model(model, "cpu", 3)
    assert worker_count() == 3


def test_on_a_gpu(model):
    if torch.cuda.is_available():
        assert isinstance(load_model(model, "cuda", None), Model)
    else:
        with pytest.raises(ParameterError, match="`device` 'cuda' is not available"):
            load_model(model, "cuda", None)


def test_devices_that_nobody_knows(model):
    with pytest.raises(ParameterError, match="`device` 'gpu' is not available"):
        load_model(model, "gpu", None)
