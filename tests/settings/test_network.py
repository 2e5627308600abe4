from __future__ import annotations

import json

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.scoring.heads import HEADS
from circlet.settings import NetworkSettings
from circlet.settings.network import ENCODERS, reader_shapes, reader_width


def small(**changes) -> NetworkSettings:
    return NetworkSettings(**{"dim": 6, "hidden": (8,), **changes})


class TestSettings:
    WRONG = (
        ("head", f"one of {', '.join(HEADS)}", ["CHRR", ["chrr"]]),
        ("loss", "one of cosine, absolute-cosine, bce, mean-bce, softmax", ["mse"]),
        ("codebook", "auto or one of spectral, independent, four-phase, two-phase, holographic", ["random", None]),
        ("slots", "None or an integer >= 1", [0]),
        ("dim", "an integer >= 1", [0, 2.0, "800", True]),
        ("seed", "an integer >= 0", [-1, None]),
        ("hidden", "one or more integers >= 1", [(), (8, 0), (8, 2.5), 768, None, "768"]),
        ("dropout", "at least 0 and below 1", [1.0, -0.1, float("nan"), "half", None]),
    )

    @pytest.mark.parametrize(("parameter", "wanted", "values"), WRONG)
    def test_every_parameter_is_checked(self, parameter, wanted, values):
        for value in values:
            with pytest.raises(ParameterError) as caught:
                small(**{parameter: value})
            assert str(caught.value).startswith(f"`{parameter}` must be {wanted}")
            assert "got " in str(caught.value)

    @pytest.mark.parametrize(
        ("head", "codebook", "choice"),
        [
            ("chrr", "holographic", "auto or spectral or independent or four-phase or two-phase"),
            ("chrr-tanh", "holographic", "auto or spectral or independent or four-phase or two-phase"),
            ("hrr", "spectral", "auto or holographic"),
            ("hrr", "independent", "auto or holographic"),
            ("fc", "spectral", "auto"),
        ],
    )
    def test_a_codebook_that_does_not_fit(self, head, codebook, choice):
        with pytest.raises(ParameterError, match=f"{codebook} does not fit head {head}: choose {choice}$"):
            small(head=head, codebook=codebook)

    def test_survive_json(self):
        settings = NetworkSettings(head="hrr", hidden=(4, 3), dropout=0.1, seed=2**40)
        assert NetworkSettings(**json.loads(json.dumps(settings.as_dict()))) == settings

    def test_numpy_numbers_become_plain_ones(self):
        given = small(dim=np.int64(6), hidden=np.array([8]), dropout=np.float32(0.5), seed=np.uint8(1))
        settings = small(dropout=0.5, seed=1)
        assert given == settings
        assert repr(given) == repr(settings)
        json.dumps(given.as_dict())

    def test_lists_become_tuples(self):
        assert small(hidden=[8, 4]).hidden == (8, 4)
        assert hash(small(hidden=[8, 4])) == hash(small(hidden=(8, 4)))


class TestReaders:
    @pytest.mark.parametrize("encoder", ENCODERS[1:])
    def test_hidden_layers_follow_the_reader(self, encoder):
        settings = NetworkSettings(encoder=encoder, embedding=8, hidden=(6, 5))
        shapes = reader_shapes(settings, 30)
        assert shapes["words"] == (30, 8)
        assert shapes["dense.hidden.0.weight"] == (6, reader_width(settings))
        assert shapes["dense.hidden.1.weight"] == (5, 6)

    def test_sizes(self):
        width = {each: reader_width(NetworkSettings(encoder=each, embedding=20)) for each in ENCODERS[1:]}
        assert width == {"cnn": 3 * 128 * 4, "lstm": 80, "transformer": 20}
        longest = NetworkSettings(encoder="transformer", embedding=20, max_words=77)
        assert reader_shapes(longest, 9)["reader.positions"] == (77, 20)
