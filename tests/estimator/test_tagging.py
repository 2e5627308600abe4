from __future__ import annotations

import numpy as np
import pytest

from circlet import CircletClassifier
from circlet.errors import ParameterError, ShapeError

TEXTS = ["a red apple", "a green apple", "a red car", "a green car"] * 5


TAGS = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5


@pytest.fixture(scope="module")
def tagger():
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, TAGS)


@pytest.fixture(scope="module")
def sorter():
    kinds = ["fruit", "fruit", "vehicle", "bicycle"] * 5
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, kinds)


class TestThroughModelAndEstimator:
    def test_model(self, tagger):
        model = tagger.model_
        ids, scores = model.top_k(TEXTS[:4], 3)
        for memory in (1, 1 << 40):
            assert all(map(np.array_equal, model.top_k(TEXTS[:4], 3, memory=memory), (ids, scores)))
        few, _ = model.top_k(TEXTS[:4], 3, allowed=np.array([True, False, False]))
        assert few.tolist() == [[0, -1, -1]] * 4
        kept, values = model.top_k(TEXTS[:4], 3, threshold=float(scores[0, 1]))
        assert kept[0].tolist() == [*ids[0, :2], -1]
        assert values[0, 2] == -np.inf

    def test_mistakes_are_found_without_documents_too(self, tagger):
        with pytest.raises(ParameterError, match="`memory` must be"):
            tagger.model_.top_k([], 3, memory=0)
        with pytest.raises(ShapeError, match=r"`allowed` must have shape \(3,\)"):
            tagger.model_.top_k([], 3, allowed=np.array([True]))

    def test_no_known_word(self, tagger):
        ids, scores = tagger.model_.top_k(["zebra", ""], 3)
        assert sorted(ids[0]) == [0, 1, 2]
        assert np.array_equal(ids[0], ids[1])
        assert np.isfinite(scores).all()

    def test_estimator(self, tagger):
        labels, scores = tagger.suggest(TEXTS[:2], k=3, memory=1)
        assert all(map(np.array_equal, tagger.suggest(TEXTS[:2], k=3), (labels, scores)))
        some, chances = tagger.suggest(TEXTS[:2], k=3, allowed=["fruit", "red"])
        assert [{*row} for row in some] == [{"fruit", "red", None}] * 2
        assert (chances[:, 2] == 0).all()
        none, chances = tagger.suggest(TEXTS[:2], k=2, threshold=1)
        assert none.tolist() == [[None, None]] * 2
        assert (chances == 0).all()
        every, chances = tagger.suggest(TEXTS[:2], k=3, threshold=0)
        assert every.tolist() == labels.tolist()
        assert np.array_equal(chances, scores)

    def test_one_class_per_row(self, sorter):
        labels, shares = sorter.suggest(TEXTS[:3], k=3, allowed={"vehicle", "bicycle"})
        assert [{*row} for row in labels] == [{"vehicle", "bicycle", None}] * 3
        assert (shares[:, 2] == 0).all()
        labels, shares = sorter.suggest(TEXTS[:3], k=3, threshold=0.5)
        assert ((shares >= 0.5) == (labels != None)).all()  # noqa: E711

    def test_mistakes(self, tagger, sorter):
        with pytest.raises(ParameterError, match="`allowed` has 'blue', which is none of the 3 labels"):
            tagger.suggest("a", allowed=["red", "blue"])
        with pytest.raises(ParameterError, match="`allowed` must be a collection of labels, got 'red'"):
            tagger.suggest("a", allowed="red")
        with pytest.raises(ParameterError, match="`threshold` must be between 0 and 1, got 2"):
            tagger.suggest("a", threshold=2)
        for clf in (tagger, sorter):
            with pytest.raises(ParameterError, match="`memory` must be a number of bytes, at least 1, got 0"):
                clf.suggest("a", memory=0)
