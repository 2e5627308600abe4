from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.metrics.decisions import best_threshold, curve_of
from circlet.settings.run import Aim

#: Probabilities of six labels, which of them are right, and one more true label that is not among them.
CHANCES = np.array([0.2, 0.9, 0.4, 0.6, 0.4, 0.1])
RIGHT = np.array([True, True, False, True, True, False])
N_TRUE = 5


def test_the_curve_by_hand():
    curve = curve_of(CHANCES, RIGHT, N_TRUE)
    assert curve.thresholds.tolist() == [0.9, 0.6, 0.4, 0.2, 0.1]
    assert curve.precision.tolist() == [1, 1, 3 / 4, 4 / 5, 4 / 6]  # both labels of 0.4 come together
    assert curve.recall.tolist() == [1 / 5, 2 / 5, 3 / 5, 4 / 5, 4 / 5]
    assert curve.f1.tolist() == pytest.approx([2 / 6, 4 / 7, 6 / 9, 8 / 10, 8 / 11])


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        ("f1", 0.15),
        ("precision=1", 0.5),
        ("precision=0.8", 0.15),
        ("precision=0.5", 0.1),  # all labels reach it, so the lowest probability is enough
        ("recall=0.4", 0.5),
        ("recall=0.6", 0.3),
        ("recall=1", 0.15),  # can't be reached: the highest threshold that comes closest
    ],
)
def test_the_best_by_hand(aim, expected):
    assert best_threshold(CHANCES, RIGHT, N_TRUE, Aim.of(aim)) == pytest.approx(expected)


def test_a_precision_that_is_never_reached():
    assert (
        best_threshold(np.array([0.9, 0.8, 0.2]), np.array([False, True, False]), 1, Aim("precision", 0.9)) == 0.5
    )


def test_nothing_right_shows_nothing():
    assert best_threshold(np.array([0.9, 0.8]), np.array([False, False]), 3, Aim("f1")) is None
    assert best_threshold(np.array([]), np.array([], dtype=bool), 3, Aim("f1")) is None


@given(
    pairs=st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=30),
    missed=st.integers(0, 5),
)
def test_no_threshold_has_a_higher_f1(pairs, missed):
    chances = np.array([chance / 20 for chance, _ in pairs], dtype=np.float32)
    right = np.array([each for _, each in pairs])
    n_true = int(right.sum()) + missed
    found = best_threshold(chances, right, n_true, Aim("f1"))
    if found is None:
        assert not right.any()
        return

    def f1(threshold: float) -> float:
        predicted = chances >= threshold
        return 2 * (predicted & right).sum() / (predicted.sum() + n_true)

    assert f1(found) == max(map(f1, chances.tolist()))
