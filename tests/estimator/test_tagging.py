from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from circlet import CircletClassifier
from circlet.errors import ParameterError

TEXTS = ["a red apple", "a green apple", "a red car", "a green car"] * 5
TAGS = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5


@pytest.fixture(scope="module")
def tagger():
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, TAGS)


@pytest.fixture(scope="module")
def sorter():
    kinds = ["fruit", "fruit", "vehicle", "bicycle"] * 5
    return CircletClassifier(dim=64, hidden=(64,), epochs=8, batch_size=4, validation=0).fit(TEXTS, kinds)


def with_counts(fitted: CircletClassifier, counts: list[int]) -> CircletClassifier:
    """The same classifier, as if it had seen 1,000 documents, so many of them with each label."""
    copied = copy.deepcopy(fitted)
    copied.model_.label_counts = np.array(counts)
    copied.model_.training["documents"] = 1000
    return copied


class TestSuggest:
    def test_options(self, tagger):
        labels, scores = tagger.suggest(TEXTS[:2], k=3, memory=1)
        found, close = tagger.suggest(TEXTS[:2], k=3)
        assert found.tolist() == labels.tolist()
        np.testing.assert_allclose(close, scores, rtol=1e-6)  # rows are computed one by one if memory is so little
        some, chances = tagger.suggest(TEXTS[:2], k=3, allowed=["fruit", "red"])
        assert [{*row} for row in some] == [{"fruit", "red", None}] * 2
        assert (chances[:, 2] == 0).all()
        none, chances = tagger.suggest(TEXTS[:2], k=2, threshold=1)
        assert none.tolist() == [[None, None]] * 2
        assert (chances == 0).all()
        every, chances = tagger.suggest(TEXTS[:2], k=3, threshold=0)
        assert every.tolist() == labels.tolist()
        assert np.array_equal(chances, close)

    def test_one_class_per_row(self, sorter):
        labels, shares = sorter.suggest(TEXTS[:3], k=3, allowed={"vehicle", "bicycle"})
        assert [{*row} for row in labels] == [{"vehicle", "bicycle", None}] * 3
        assert (shares[:, 2] == 0).all()
        labels, shares = sorter.suggest(TEXTS[:3], k=3, threshold=0.5)
        assert ((shares >= 0.5) == (labels != None)).all()  # noqa: E711

    def test_rare_labels_are_favored(self, tagger):
        # In 1,000 documents: w = 1 + 5.9 (2.5 / (count + 1.5))^0.55, so 6.9 for red and 1.2 for the others.
        tagger = with_counts(tagger, [900, 1, 900])
        assert tagger.classes_.tolist() == ["fruit", "red", "vehicle"]
        chances = tagger.predict_proba(TEXTS[:4])
        for favor_rare in (0, 0.5, 1):
            labels, scores = tagger.suggest(TEXTS[:4], k=3, favor_rare=favor_rare)
            order = np.argsort(-chances * np.array([1.227, 6.908, 1.227]) ** favor_rare, axis=1)
            assert labels.tolist() == tagger.classes_[order].tolist()
            np.testing.assert_allclose(scores, np.take_along_axis(chances, order, axis=1), rtol=1e-4)
        assert (labels[[0, 2], 0] == "red").all()
        few, scores = tagger.suggest(TEXTS[:2], k=2, favor_rare=1, allowed=["fruit", "vehicle"], threshold=0.5)
        assert few.tolist() == [["fruit", None]] * 2
        assert (scores[:, 1] == 0).all()

    def test_rare_classes_are_favored(self, sorter):
        sorter = with_counts(sorter, [1, 900, 900])
        assert sorter.classes_.tolist() == ["bicycle", "fruit", "vehicle"]
        shares = sorter.predict_proba(TEXTS[:4])
        for favor_rare in (0, 0.5, 1):
            labels, scores = sorter.suggest(TEXTS[:4], k=3, favor_rare=favor_rare)
            order = np.argsort(-shares * np.array([6.908, 1.227, 1.227]) ** favor_rare, axis=1)
            assert labels.tolist() == sorter.classes_[order].tolist()
            np.testing.assert_allclose(scores, np.take_along_axis(shares, order, axis=1), rtol=1e-4)
        few, scores = sorter.suggest(TEXTS[:1], k=2, favor_rare=1, threshold=0.5)
        assert few.tolist() == [["fruit", None]]

    def test_mistakes(self, tagger, sorter):
        with pytest.raises(ParameterError, match="`allowed` has 'blue', which is none of the 3 labels"):
            tagger.suggest("a", allowed=["red", "blue"])
        with pytest.raises(ParameterError, match="`allowed`: found 'red'; wanted a collection of labels"):
            tagger.suggest("a", allowed="red")
        with pytest.raises(ParameterError, match='`threshold`: found 2; wanted "auto" or a number from 0 to 1'):
            tagger.suggest("a", threshold=2)
        for clf in (tagger, sorter):
            with pytest.raises(ParameterError, match="`memory`: found 0; wanted a number of bytes, at least 1"):
                clf.suggest("a", memory=0)
            with pytest.raises(ParameterError, match="`favor_rare`: found -1; wanted a number from 0 to 1"):
                clf.suggest("a", favor_rare=-1)


def test_batch_equals_single(on_texts, on_rows, documents, indicator):
    texts, (X, _) = documents()[0], indicator()
    for classifier, many, singles in ((on_texts, texts, texts), (on_rows, X, [X[i] for i in range(X.shape[0])])):
        labels, scores = classifier.suggest(many, k=2)
        alone = [classifier.suggest(document, k=2) for document in singles]
        np.testing.assert_allclose(np.concatenate([part for _, part in alone]), scores, rtol=1e-4)
        clear = np.abs(scores[:, 0] - scores[:, 1]) > 1e-3  # two labels as likely may change places
        np.testing.assert_array_equal(np.concatenate([part for part, _ in alone])[clear], labels[clear])


def test_k_beyond_the_labels(on_texts, on_rows, indicator):
    assert on_texts.suggest("red", k=100)[0].shape == (1, 6)
    labels, _ = on_rows.suggest(indicator()[0], k=np.int64(100))
    assert labels.dtype.kind == "i"
    assert {*labels[0].tolist()} == set(range(6))


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


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_bad_k(on_texts, k):
    with pytest.raises(ParameterError, match=r"`k`: found .*; wanted an integer >= 1"):
        on_texts.suggest("red", k=k)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "suggest", "score", "save"])
def test_not_fitted(method):
    arguments = ["red", ["R"]] if method == "score" else ["red"]
    with pytest.raises(NotFittedError, match="CircletClassifier instance is not fitted"):
        getattr(CircletClassifier(), method)(*arguments)


def test_predict_gives_the_top_k_if_asked_to(tagger):
    clf = copy.deepcopy(tagger).set_params(top_k=2)
    marked = clf.predict(TEXTS[:5])
    assert marked.shape == (5, 3)
    assert (marked.sum(axis=1) == 2).all()
    best, _ = clf.suggest(TEXTS[:5], k=2)
    assert [set(clf.classes_[row.indices]) for row in marked] == [set(names) for names in best.tolist()]
    clf.top_k = 0
    with pytest.raises(ParameterError, match="`top_k`: found 0; wanted None or an integer >= 1"):
        clf.predict(TEXTS)


def test_one_text_is_a_batch_of_one(tagger, sorter):
    assert tagger.predict("a red car").shape == (1, 3)
    assert tagger.predict_labels("a red car") == tagger.predict_labels(["a red car"])
    assert tagger.inverse_transform(tagger.predict("a red car")) == [sorted(tagger.predict_labels("a red car")[0])]
    assert tagger.suggest("a red car", k=2)[0].shape == (1, 2)
    assert tagger.predict_proba("a red car").shape == (1, 3)
    assert sorter.predict("a green apple").shape == (1,)
    assert sorter.predict_labels("a green apple") == [sorter.predict("a green apple").tolist()]
