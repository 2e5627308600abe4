from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from circlet.errors import DataError, ParameterError
from circlet.export import saved as module
from circlet.export.saved import Series, Table, read
from circlet.model import Model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(make_model, tmp_path) -> Path:
    make_model(loss="bce", scaling="tfidf").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def change_tensors(change_config) -> Callable[..., None]:
    """Write other tensors, None for none, and the digest that fits them."""

    def change(folder: Path, **changes: Any) -> None:
        path = folder / "weights.safetensors"
        tensors = {name: each for name, each in {**load_file(path), **changes}.items() if each is not None}
        save_file(tensors, path)
        change_config(folder)

    return change


class TestWhatIsRead:
    @pytest.mark.parametrize("store", ["float32", "bf16"])
    def test_weights_and_codes(self, store, make_model, tmp_path):
        make_model(loss="bce", hidden=(16, 8)).save(tmp_path / "model", store)
        model, saved = Model.load(tmp_path / "model"), read(tmp_path / "model")
        (member,) = saved.members
        encoder = model.network.encoder.hidden
        assert [layer.weight.shape for layer in member.encoder] == [(30, 16), (8, 16)]
        for layer, own in zip(member.encoder, encoder, strict=True):
            np.testing.assert_array_equal(layer.weight, own.weight.detach().numpy())
            np.testing.assert_array_equal(layer.bias, own.bias.detach().numpy())
            assert layer.scales is None
        assert isinstance(member.codes, Series)
        slots = model.network.codebook.slots_on(torch.device("cpu"))
        np.testing.assert_array_equal(member.codes.frequencies, slots.frequencies)
        np.testing.assert_array_equal(member.codes.slots, slots.of_labels)
        assert member.codes.length == slots.length
        assert member.scale == pytest.approx(model.network.scorer.log_scale.exp().item())
        np.testing.assert_array_equal(member.bias, model.network.scorer.bias.detach()[:40])
        assert len(member.bias) < len(model.network.scorer.bias)
        assert saved.calibration == (1.5, -0.5)

    def test_int8_stays_int8(self, make_model, tmp_path):
        make_model(members=2).save(tmp_path / "model", "int8")
        model, saved = Model.load(tmp_path / "model"), read(tmp_path / "model")
        for network, member in zip(model.networks, saved.members, strict=True):
            for layer, own in (
                (member.encoder[0], network.encoder.hidden[0]),
                (member.head[0], network.head.output),
            ):
                assert layer.weight.dtype == np.int8
                weight = layer.weight * layer.scales[:, None]
                np.testing.assert_array_equal(weight, own.weight.detach().numpy())
                assert layer.bias.dtype == np.float32
        assert [member.calibration for member in saved.members] == [(2.0, -1.0), (0.5, 0.25)]
        assert not np.array_equal(saved.members[0].codes.slots, saved.members[1].codes.slots)

    def test_a_table_of_codes(self, make_model, tmp_path):
        make_model(codebook="four-phase").save(tmp_path / "model")
        codes = read(tmp_path / "model").members[0].codes
        assert isinstance(codes, Table)
        assert codes.codes.shape == (40, 24)
        assert set(codes.codes.round(6).ravel()) == {-1, 0, 1}
        assert codes.scale == pytest.approx(1 / 12)

    def test_no_codes(self, make_model, tmp_path):
        make_model(head="fc").save(tmp_path / "model")
        member = read(tmp_path / "model").members[0]
        assert (member.codes, member.scale, member.bias) == (None, 1.0, None)


class TestTable:
    @pytest.mark.parametrize(("head", "codebook", "size"), [("chrr", "independent", 3840), ("hrr", "auto", 1920)])
    def test_is_refused_above_a_size(self, head, codebook, size, make_model, tmp_path, monkeypatch):
        make_model(head=head, codebook=codebook).save(tmp_path / "model")
        monkeypatch.setattr(module, "LARGEST_TABLE", size)
        read(tmp_path / "model")
        monkeypatch.setattr(module, "LARGEST_TABLE", size - 1)
        with pytest.raises(ParameterError, match=r"whose codes of 40 labels would take 0 MB .*--large-table"):
            read(tmp_path / "model")
        assert len(read(tmp_path / "model", large_table=True).members[0].codes.codes) == 40

    def test_a_series_never_is(self, folder, monkeypatch):
        monkeypatch.setattr(module, "LARGEST_TABLE", 0)
        assert isinstance(read(folder).members[0].codes, Series)


class TestDamage:
    """The runtime, which reads the folder, finds it; its own tests have every kind."""

    def test_weights_of_too_many_networks(self, make_model, tmp_path, change_tensors):
        make_model(members=2).save(tmp_path / "model")
        change_tensors(tmp_path / "model", **{"members.2.head.output.bias": np.zeros(24, np.float32)})
        with pytest.raises(DataError, match=r"found members.2.head.output.bias of shape \(24,\); wanted None"):
            read(tmp_path / "model")

    def test_a_custom_encoder(self, make_model, tmp_path):
        class Custom(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Parameter(torch.zeros(30, 16))

        model = make_model()
        model.network.encoder = Custom()
        model.save(tmp_path / "model")
        with pytest.raises(DataError, match="found a model with an encoder of its own, which only torch can run"):
            read(tmp_path / "model")
