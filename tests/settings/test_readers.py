from __future__ import annotations

import pytest

from circlet.settings import NetworkSettings
from circlet.settings.network import ENCODERS
from circlet.settings.readers import reader_shapes, reader_width

READERS = ENCODERS[1:]


@pytest.mark.parametrize("encoder", READERS)
def test_hidden_layers_follow_the_reader(encoder):
    settings = NetworkSettings(encoder=encoder, embedding=8, hidden=(6, 5))
    shapes = reader_shapes(settings, 30)
    assert shapes["words"] == (30, 8)
    assert shapes["hidden.layers.0.weight"] == (6, reader_width(settings))
    assert shapes["hidden.layers.3.weight"] == (5, 6)


def test_sizes():
    width = {each: reader_width(NetworkSettings(encoder=each, embedding=20)) for each in READERS}
    assert width == {"cnn": 3 * 128 * 4, "lstm": 80, "transformer": 20}
    longest = NetworkSettings(encoder="transformer", embedding=20, max_words=77)
    assert reader_shapes(longest, 9)["reader.positions"] == (77, 20)
