from __future__ import annotations

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.settings import TrainingSettings
from circlet.settings.run import SCHEDULES


class TestSettings:
    WRONG = (
        ("epochs", "an integer >= 1", [0, 2.5, "3"]),
        ("batch_size", "an integer >= 1", [0, 0.5, None]),
        ("optimizer", "one of adamw, adam, adadelta, sgd", ["rmsprop"]),
        ("lr", "above 0", [0, -1.0, float("nan"), float("inf"), "fast"]),
        ("schedule", "one of one-cycle, constant, step", ["cosine"]),
        ("weight_decay", "at least 0", [-0.1, float("nan"), None]),
        ("input_dropout", "at least 0 and below 1", [1, -0.5, "half"]),
        ("metric", "like P@1 or nDCG@5", ["F1", "P@0", "P@", "PSP@1", "P@²", "P@٣", 1]),
        ("patience", "None or an integer >= 1", [0, 1.5]),
    )

    @pytest.mark.parametrize(("parameter", "wanted", "values"), WRONG)
    def test_every_parameter_is_checked(self, parameter, wanted, values):
        for value in values:
            with pytest.raises(ParameterError) as caught:
                TrainingSettings(**{parameter: value})
            assert str(caught.value).startswith(f"`{parameter}`: found {value!r}; wanted ")
            assert wanted in str(caught.value)

    def test_numpy_numbers_become_plain_ones(self):
        given = TrainingSettings(
            epochs=np.int64(2), batch_size=np.int32(8), lr=np.float32(0.5), patience=np.uint8(1), weight_decay=1
        )
        assert repr(given) == repr(TrainingSettings(epochs=2, batch_size=8, lr=0.5, patience=1, weight_decay=1.0))


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
