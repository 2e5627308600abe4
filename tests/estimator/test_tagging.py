from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from circlet import CircletClassifier

TEXTS = ["a red apple", "a green apple", "a red car", "a green car"] * 5
TAGS = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5


@pytest.fixture(scope="module")
def tagger():
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, TAGS)


@pytest.fixture(scope="module")
def sorter():
    kinds = ["fruit", "fruit", "vehicle", "bicycle"] * 5
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, kinds)


@pytest.mark.parametrize("loss", ["bce", "cosine", "softmax"])
def test_probabilities(loss, indicator, learner):
    X, Y = indicator(200)
    classifier = learner(loss=loss, validation=0.25).fit(X, Y)
    chances = classifier.predict_proba(X)
    assert chances.dtype == np.float32
    assert 0 <= chances.min() <= chances.max() <= 1
    np.testing.assert_array_equal(classifier.predict(X).toarray(), chances >= 0.5)
    assert chances.sum() == pytest.approx(Y.sum(), rel=0.2)
    order = np.argsort(classifier.decision_function(X)[0])
    assert (np.diff(chances[0, order]) >= 0).all()


@pytest.mark.parametrize("loss", ["cosine", "softmax"])
def test_scores_that_are_not_log_odds_are_calibrated_without_validation_rows_too(loss, indicator, learner):
    X, Y = indicator(100)
    classifier = learner(loss=loss).fit(X, Y)
    assert classifier.predict_proba(X).sum() == pytest.approx(Y.sum(), rel=0.2)


def test_threshold(indicator, learner):
    X, Y = indicator()
    classifier = learner(threshold=0.0).fit(X, Y)
    assert classifier.predict(X).nnz == np.prod(Y.shape)
    assert classifier.set_params(threshold=1.0).predict(X).nnz == 0


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "suggest", "score", "save"])
def test_not_fitted(method):
    arguments = ["red", ["R"]] if method == "score" else ["red"]
    with pytest.raises(NotFittedError, match="CircletClassifier instance is not fitted"):
        getattr(CircletClassifier(), method)(*arguments)


def test_one_text_is_a_batch_of_one(tagger, sorter):
    assert tagger.predict("a red car").shape == (1, 3)
    assert tagger.predict_labels("a red car") == tagger.predict_labels(["a red car"])
    assert tagger.inverse_transform(tagger.predict("a red car")) == [sorted(tagger.predict_labels("a red car")[0])]
    assert tagger.suggest("a red car", k=2)[0].shape == (1, 2)
    assert tagger.predict_proba("a red car").shape == (1, 3)
    assert sorter.predict("a green apple").shape == (1,)
    assert sorter.predict_labels("a green apple") == [sorter.predict("a green apple").tolist()]
