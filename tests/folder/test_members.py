from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from circlet.errors import DataError
from circlet.folder.contents import read
from circlet.folder.layout import read_config
from circlet.folder.members import check_shapes, members_of, shapes_of
from circlet.folder.tensors import Stored
from circlet.model import Model
from circlet.scoring.heads import HEADS
from circlet.settings.network import COSINES, LOSSES

PATH = Path("weights.safetensors")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("hidden", [(16,), (16, 8, 4)])
def test_shapes_are_those_of_the_network(head, loss, hidden, tmp_path, untrained):
    if head == "fc" and loss in COSINES:
        return
    model = untrained(head=head, loss=loss, hidden=hidden)
    model.save(tmp_path)
    config = read_config(tmp_path)
    (member,) = members_of(config)
    assert member.settings == model.network.settings
    wanted = {name: tuple(tensor.shape) for name, tensor in model.ranker.weights().items()}
    assert shapes_of(member, config) == wanted


def test_several(tmp_path, untrained):
    model = untrained(members=3)
    model.ranker.calibrations = [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    model.save(tmp_path)
    config = read_config(tmp_path)
    members = members_of(config)
    assert [member.calibration for member in members] == model.ranker.calibrations
    assert [member.prefix for member in members] == ["members.0.", "members.1.", "members.2."]
    shapes = {name: shape for member in members for name, shape in shapes_of(member, config).items()}
    assert shapes == {name: tuple(tensor.shape) for name, tensor in model.ranker.weights().items()}


def test_labels_that_came_later_have_their_biases_already(tmp_path, untrained):
    model = untrained()
    model.ranker.grow(8)
    model.label_names = None
    model.save(tmp_path)
    (member,) = members_of(read_config(tmp_path))
    assert member.capacity == model.network.codebook.length > 8
    assert read(tmp_path).tensors["members.0.bias"].shape == (member.capacity,)
    assert Model.load(tmp_path).n_labels == 8


@pytest.mark.parametrize("change", [{"n_labels": 5}, {"dim": 23}, None])
def test_a_codebook_that_does_not_fit(change, folder):
    config = read_config(folder)
    (member,) = config["members"]
    member["codebook"] = change and {**member["codebook"], **change}
    with pytest.raises(DataError, match=r"found the codebook .*; wanted one that fits .* and head chrr-amplitude"):
        members_of(config)


def test_tensors_that_are_not_wanted():
    wanted = {"a": ((2,), "float32")}
    check_shapes(PATH, wanted, {"a": Stored(np.zeros(2, dtype=np.float32))})
    for found, words in (
        ({}, r"found a of shape None; wanted \(2,\)"),
        ({"a": np.zeros(3, dtype=np.float32)}, r"found a of shape \(3,\); wanted \(2,\)"),
        ({"a": np.zeros(2)}, "found a in float64; wanted float32"),
        ({"a": np.zeros(2, dtype=np.float32), "b": np.zeros(1)}, r"found b of shape \(1,\); wanted None"),
    ):
        with pytest.raises(DataError, match=words):
            check_shapes(PATH, wanted, {name: Stored(array) for name, array in found.items()})
