from __future__ import annotations

import pytest

from circlet.model import Model
from circlet.scoring.heads import HEADS
from circlet.settings.network import COSINES, LOSSES
from circlet.storage.contents import read
from circlet.storage.layout import read_config
from circlet.storage.network_spec import members_of, shapes_of


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
