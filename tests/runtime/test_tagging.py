"""What every tagger does; `tests/estimator/test_tagging.py` has the same with a classifier."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from circlet.errors import DataError, ParameterError
from circlet.runtime.tagger import Tagging, mask_of

SCORES = np.array([[2.0, -1.0, 0.0], [-3.0, 1.0, 0.5]], dtype=np.float32)


class Fixed(Tagging):
    """Tags with the same scores, whatever the documents."""

    def __init__(
        self,
        *,
        single: bool = False,
        threshold: float | str = 0.5,
        stored: float | None = None,
        top_k: int | None = None,
    ) -> None:
        self.classes_ = np.array(["a", "b", "c"], dtype=object)
        self.threshold, self.top_k, self.one_each = threshold, top_k, single
        self.model_: Any = SimpleNamespace(
            vectorizer=None,
            calibration=(1.0, 0.0),
            threshold=stored,
            gain=lambda favor: SimpleNamespace(weights=np.array([1.0, 1.0, 9.0])) if favor else None,
            top_k=self.best,
            score_blocks=lambda documents: iter([SCORES[:1], SCORES[1:]]),
            probabilities=lambda scores: (1 / (1 + np.exp(-np.asarray(scores)))).astype(np.float32),
            least_score=lambda p: np.log(p / (1 - p)) if p else None,
        )

    def best(self, documents, k, *, memory=None, allowed=None, threshold=None, favor_rare=0.0):
        scores = np.where(True if allowed is None else allowed, SCORES, -np.inf).astype(np.float32)
        ids = np.argsort(-scores, axis=1)[:, :k]
        values = np.take_along_axis(scores, ids, axis=1)
        return np.where(np.isinf(values), -1, ids), values

    has_index = False

    @property
    def _runtime(self):
        raise NotImplementedError

    @property
    def _columns(self):
        return None

    @property
    def _single(self) -> bool:
        return self.one_each

    def _rows(self, X):
        return np.asarray(X)


X = np.zeros((2, 4))


def test_suggest():
    labels, chances = Fixed().suggest(X, k=2)
    assert labels.tolist() == [["a", "c"], ["b", "c"]]
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-np.array([[2, 0], [1, 0.5]]))), rtol=1e-6)
    labels, chances = Fixed().suggest(X, k=3, allowed=["b", "c"], threshold=0.3)
    assert labels.tolist() == [["c", None, None], ["b", "c", None]]
    assert (chances[:, 2] == 0).all()
    assert chances[0, 1] == 0


@pytest.mark.parametrize(("stored", "least"), [(0.7, 0.7), (None, 0.5)])
def test_suggestions_that_reach_the_stored_threshold(stored, least):
    labels, chances = Fixed(stored=stored).suggest(X, k=3, threshold="auto")
    expected = Fixed().suggest(X, k=3, threshold=least)
    assert labels.tolist() == expected[0].tolist()
    assert chances.tolist() == expected[1].tolist()
    assert None in labels[0].tolist()


def test_names_of_labels():
    assert Fixed().predict_labels(X) == [["a", "c"], ["b", "c"]]  # the best first
    assert Fixed(threshold=0.7).predict_labels(X) == [["a"], ["b"]]
    assert Fixed(threshold=1).predict_labels(X) == [[], []]
    assert Fixed(top_k=2).predict_labels(X) == [["a", "c"], ["b", "c"]]
    assert Fixed(single=True).predict_labels(X) == [["a"], ["b"]]


def test_inverse_transform():
    tagger = Fixed()
    marked = tagger.predict(X)
    before = marked.copy()
    assert tagger.inverse_transform(marked) == [["a", "c"], ["b", "c"]]
    assert (marked != before).nnz == 0
    assert tagger.inverse_transform(np.array([[0, 0, 0], [0, 1, 1]])) == [[], ["b", "c"]]
    assert tagger.inverse_transform(np.zeros((0, 3))) == []
    with pytest.raises(DataError, match="found an indicator of 2 labels; wanted 3"):
        tagger.inverse_transform(np.zeros((1, 2)))


def test_one_class_per_document():
    odds = np.exp(SCORES)
    labels, chances = Fixed(single=True).suggest(X, k=1)
    assert labels.tolist() == [["a"], ["b"]]
    np.testing.assert_allclose(chances[:, 0], odds.max(axis=1) / odds.sum(axis=1), rtol=1e-6)
    assert Fixed(single=True).suggest(X, k=1, favor_rare=1)[0].tolist() == [["c"], ["c"]]
    assert Fixed(single=True).predict(X).tolist() == ["a", "b"]
    np.testing.assert_allclose(Fixed(single=True).predict_proba(X).sum(axis=1), 1, rtol=1e-6)


def test_predict():
    assert Fixed().predict(X).toarray().tolist() == [[1, 0, 1], [0, 1, 1]]
    assert Fixed(threshold=0.7).predict(X).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert Fixed(threshold="auto", stored=0.7).predict(X).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (
        Fixed(threshold="auto").predict(X).toarray().tolist() == Fixed(threshold=0.5).predict(X).toarray().tolist()
    )
    assert Fixed(top_k=1).predict(X).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(Fixed().decision_function(X), SCORES)
    np.testing.assert_allclose(Fixed().predict_proba(X), 1 / (1 + np.exp(-SCORES)), rtol=1e-6)


def test_mistakes():
    for call, error, words in (
        (lambda: Fixed().suggest(X, k=0), ParameterError, "`k` must be an integer >= 1, got 0"),
        (lambda: Fixed().suggest(X, threshold=2), ParameterError, '`threshold` must be "auto" or between 0 and 1'),
        (lambda: Fixed(threshold=-1).predict(X), ParameterError, "`threshold` must be between 0 and 1, got -1"),
        (lambda: Fixed(top_k=0).predict(X), ParameterError, "`top_k` must be None or an integer >= 1, got 0"),
        (lambda: Fixed().suggest(["a text"]), DataError, "found texts; .* wants rows"),
    ):
        with pytest.raises(error, match=words):
            call()


class TestMask:
    CLASSES = np.array([7, 3, 5])

    def test_some(self):
        for labels in ([3], (3,), {3}, np.array([3]), {3: "x"}.keys()):
            assert mask_of(labels, self.CLASSES).tolist() == [False, True, False]
        assert not mask_of([], self.CLASSES).any()

    def test_mistakes(self):
        for labels, error, words in (
            ("37", ParameterError, "`allowed` must be a collection of labels, got '37'"),
            (3, ParameterError, "`allowed` must be a collection of labels, got 3"),
            ([3, 4], ParameterError, "`allowed` has 4, which is none of the 3 labels"),
            ([[3]], DataError, "found a label that is a collection"),
        ):
            with pytest.raises(error, match=words):
                mask_of(labels, self.CLASSES)
