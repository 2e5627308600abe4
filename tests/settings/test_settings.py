from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.scoring.heads import HEADS
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.settings.run import SCHEDULES


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
        ("epochs", "an integer >= 1", [0, 2.5, "3"]),
        ("batch_size", "an integer >= 1", [0, 0.5, None]),
        ("optimizer", "one of adamw, adam, adadelta, sgd", ["rmsprop"]),
        ("lr", "a number above 0", [0, -1.0, float("nan"), float("inf"), "fast"]),
        ("schedule", "one of one-cycle, constant, step", ["cosine"]),
        ("weight_decay", "at least 0", [-0.1, float("nan"), None]),
        ("input_dropout", "at least 0 and below 1", [1, -0.5, "half"]),
        ("metric", "loss, or like P@1 or nDCG@5", ["F1", "P@0", "P@", "PSP@1", "P@²", "P@٣", 1]),
        ("patience", "None or an integer >= 1", [0, 1.5]),
        ("members", "an integer >= 1", [0, -1, 1.0, "2", None, True]),
        (
            "validation",
            "a share at least 0 and below 1, or a number of rows",
            [-1, -0.1, 1.5, None, "5", True, float("nan"), float("inf"), 5j],
        ),
    )

    @pytest.mark.parametrize(("parameter", "wanted", "values"), WRONG)
    def test_every_parameter_is_checked(self, parameter, wanted, values):
        kinds = (NetworkSettings, TrainingSettings, RunSettings)
        settings: Any = next(each for each in kinds if parameter in vars(each()))
        for value in values:
            with pytest.raises(ParameterError) as caught:
                settings(**{parameter: value})
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
        numbers = {"epochs": np.int64(2), "lr": np.float32(0.5), "patience": np.uint8(1), "weight_decay": 1}
        plain = TrainingSettings(epochs=2, lr=0.5, patience=1, weight_decay=1.0)
        assert repr(TrainingSettings(**numbers)) == repr(plain)

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


class TestSchedules:
    def test_constant(self):
        chosen = TrainingSettings(schedule="constant", lr=0.3, epochs=3)
        assert [chosen.rate(step, 10) for step in (0, 15, 29)] == [0.3] * 3

    def test_step_is_multiplied_after_every_epoch(self):
        chosen = TrainingSettings(schedule="step", lr=1.0, epochs=3)
        assert [chosen.rate(step, 10) for step in (0, 9, 10, 19, 20, 29)] == pytest.approx(
            [1, 1, 0.7, 0.7, 0.49, 0.49]
        )

    def test_one_cycle(self):
        chosen = TrainingSettings(schedule="one-cycle", lr=2.0, epochs=10)
        rates = np.array([chosen.rate(step, 10) for step in range(100)])
        assert rates[0] == pytest.approx(0.08)  # a 25th
        assert rates[15] == pytest.approx(2 * (0.04 + 0.96 / 2))  # halfway up
        assert rates[30] == pytest.approx(2.0, rel=1e-4)
        assert rates[65] == pytest.approx(1.0, rel=1e-4)  # halfway down
        assert rates[99] < 0.002
        assert (rates > 0).all()
        assert (np.diff(rates[:31]) > 0).all()
        assert (np.diff(rates[30:]) < 0).all()

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize(("epochs", "n_steps"), [(1, 1), (1, 2), (2, 1), (3, 1)])
    def test_the_shortest_runs_have_a_rate(self, schedule, epochs, n_steps):
        chosen = TrainingSettings(schedule=schedule, epochs=epochs)
        rates = [chosen.rate(step, n_steps) for step in range(epochs * n_steps)]
        assert all(0 < rate <= chosen.lr * 1.0001 for rate in rates)
