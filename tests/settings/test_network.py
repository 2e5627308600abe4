from __future__ import annotations

import json

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.scoring.heads import HEADS
from circlet.settings import NetworkSettings


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
            assert str(caught.value) == f"`{parameter}`: found {value!r}; wanted {wanted}"

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
        with pytest.raises(ParameterError, match=f"found codebook {codebook} for head {head}; wanted {choice}$"):
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


class TestEncoders:
    def test_one_that_nobody_knows(self):
        with pytest.raises(ParameterError, match=r"`encoder`: found 'bert'; wanted one of features, .*"):
            small(encoder="bert")

    def test_sizes_are_for_encoders_that_have_them(self):
        with pytest.raises(ParameterError, match="found `embedding` for encoder features, which has none"):
            small(embedding=8)
        with pytest.raises(ParameterError, match="found `max_words` for encoder features, which has none"):
            small(max_words=8)
        assert small().takes_features
        assert small().text_encoder is None
