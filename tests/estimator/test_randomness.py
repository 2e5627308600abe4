from __future__ import annotations

import numpy as np
import pytest

from circlet import CircletClassifier
from circlet.errors import ParameterError

pytestmark = pytest.mark.usefixtures("one_thread")


def test_same_seed_same_weights(indicator, learner):
    X, Y = indicator()
    for loss in ("bce", "cosine"):
        runs = [
            learner(epochs=5, loss=loss, dropout=0.3, random_state=seed).fit(X, Y).decision_function(X)
            for seed in (5, 5, 6)
        ]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert not np.array_equal(runs[0], runs[2])
    states = [
        learner(epochs=5, random_state=np.random.RandomState(3)).fit(X, Y).decision_function(X) for _ in range(2)
    ]
    np.testing.assert_array_equal(*states)


def test_the_same_generator_state_gives_the_same_weights(learner, indicator):
    X, Y = indicator()
    scores = [
        learner(epochs=3, random_state=np.random.default_rng(seed)).fit(X, Y).decision_function(X)
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_a_generator_moves_on(learner, indicator):
    X, Y = indicator(20)
    classifier = learner(epochs=1, random_state=np.random.default_rng(0))
    first, second = (classifier.fit(X, Y).decision_function(X) for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_classifier_with_a_generator_is_saved_with_its_seed(learner, indicator, tmp_path):
    X, Y = indicator(20)
    classifier = learner(epochs=1, random_state=np.random.default_rng(0)).fit(X, Y)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.random_state == classifier.model_.network.settings.seed
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))
    np.testing.assert_array_equal(loaded.fit(X, Y).decision_function(X), classifier.decision_function(X))


def seed_of(state):
    return CircletClassifier(random_state=state)._settings().network.seed


class TestSeedOf:
    @pytest.mark.parametrize("seed", [0, 7, 2**40, np.int64(7), np.uint8(7)])
    def test_an_integer_is_the_seed(self, seed):
        assert seed_of(seed) == int(seed)
        assert type(seed_of(seed)) is int

    def test_states_are_drawn_from(self):
        for make in (np.random.RandomState, np.random.default_rng):
            state, twin = make(5), make(5)
            drawn = [seed_of(state) for _ in range(3)]
            assert drawn == [seed_of(twin) for _ in range(3)]
            assert len(set(drawn)) == 3
            assert all(0 <= seed < 2**31 for seed in drawn)

    def test_none_follows_numpys_global_state(self):
        before = np.random.get_state()  # noqa: NPY002
        try:
            np.random.seed(1)  # noqa: NPY002
            first = seed_of(None)
            np.random.seed(1)  # noqa: NPY002
            assert seed_of(None) == first
        finally:
            np.random.set_state(before)  # noqa: NPY002

    @pytest.mark.parametrize("value", [-1, np.int64(-1), -(2**70)])
    def test_negative_seeds(self, value):
        with pytest.raises(ParameterError, match=f"`random_state` must be at least 0, got {value}"):
            seed_of(value)

    @pytest.mark.parametrize("value", ["luck", 1.5, [1], np.array([1, 2]), np.float64(2)])
    def test_bad_states(self, value):
        with pytest.raises(
            ParameterError, match="`random_state` must be an int, a RandomState, a Generator or None"
        ):
            seed_of(value)
