from __future__ import annotations

from circlet.model import Model
from circlet.storage.contents import read
from circlet.storage.layout import read_config
from circlet.storage.network_spec import members_of, shapes_of


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
