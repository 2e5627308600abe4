from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from tests.estimator.conftest import LABELS

from circlet import CircletClassifier


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


def test_one_text_is_a_batch_of_one(on_texts, documents, learner):
    texts, labels = documents()
    text, first = "red round", learner().fit(texts, [row[0] for row in labels])
    assert on_texts.predict(text).shape == on_texts.predict_proba(text).shape == (1, len(LABELS))
    assert on_texts.predict_labels(text) == on_texts.predict_labels([text])
    assert on_texts.inverse_transform(on_texts.predict(text)) == [sorted(on_texts.predict_labels(text)[0])]
    assert on_texts.suggest(text, k=2)[0].shape == (1, 2)
    assert first.predict(text).shape == (1,)
    assert first.predict_labels(text) == [first.predict(text).tolist()]
