from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from tests.estimator.conftest import LABELS, WORDS

from circlet.errors import DataError, DTypeError


def series(given):
    return pytest.importorskip("pandas").Series(given)


@pytest.mark.parametrize("wrap", [tuple, np.array, lambda texts: np.array(texts, dtype=object), series])
def test_texts_in_any_container(on_texts, wrap, documents, learner):
    texts, labels = documents()
    classifier = learner().fit(wrap(texts), series(labels) if wrap is series else labels)
    np.testing.assert_array_equal(classifier.decision_function(wrap(texts)), on_texts.decision_function(texts))


def test_one_document_follows_the_same_rule(on_texts, on_rows, indicator):
    X, _ = indicator()
    row = X[0].toarray()[0]
    for classifier, many, ones in (
        (on_texts, ["red flat"], ["red flat"]),
        (on_rows, X[:1], [row, row.tolist(), sp.csr_array(X)[0], X[0]]),
    ):
        labels, scores = classifier.suggest(many, k=3)
        assert labels.shape == scores.shape == (1, 3)
        for one in ones:
            alone = classifier.suggest(one, k=3)
            np.testing.assert_array_equal(alone[0], labels)
            np.testing.assert_array_equal(alone[1], scores)


def test_sparse_and_dense_rows_are_the_same_documents(on_rows, indicator, learner):
    X, Y = indicator()
    for kind in (X.tocoo(), X.tocsc(), sp.csr_array(X), X.toarray(), X.toarray().tolist()):
        np.testing.assert_allclose(on_rows.decision_function(kind), on_rows.decision_function(X), rtol=1e-5)
    twice = sp.csr_matrix((X.data.repeat(2) / 2, X.indices.repeat(2), X.indptr * 2), shape=X.shape)
    np.testing.assert_allclose(on_rows.decision_function(twice), on_rows.decision_function(X), rtol=1e-5)
    assert not twice.has_canonical_format
    dense = learner().fit(X.toarray(), Y)
    np.testing.assert_allclose(dense.decision_function(X), dense.decision_function(X.toarray()), rtol=1e-5)


def test_documents_without_known_features_and_none(on_texts, on_rows):
    for classifier, empty in ((on_texts, ["", "unheard-of"]), (on_rows, sp.csr_matrix((2, len(WORDS))))):
        labels, scores = classifier.suggest(empty, k=3)
        assert labels.shape == (2, 3)
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(labels[0], labels[1])
        assert classifier.predict(empty).shape == (2, len(LABELS))
    assert [each.shape for each in on_texts.suggest([], k=2)] == [(0, 2), (0, 2)]
    assert on_texts.predict([]).shape == on_texts.predict_proba([]).shape == (0, len(LABELS))


def test_bad_documents(on_texts, on_rows, indicator, learner):
    X, Y = indicator()
    wrong = X.copy()
    wrong.data[0] = np.nan
    for rows in (wrong, wrong.toarray()):
        with pytest.raises(DataError, match="Input X contains NaN"):
            learner().fit(rows, Y)
    for classifier, rows, error, message in (
        (on_rows, wrong, DataError, "Input X contains NaN"),
        (on_rows, wrong.toarray(), DataError, "Input X contains NaN"),
        (on_rows, X[:, :3], DataError, "X has 3 features, but CircletClassifier is expecting 6"),
        (on_rows, ["red"], DataError, "found texts; this classifier was fitted on feature rows"),
        (on_texts, X, DataError, "found feature rows; this classifier was fitted on texts"),
        (on_texts, ["red", None], DTypeError, r"texts\[1\]: found NoneType; wanted a str"),
    ):
        with pytest.raises(error, match=message):
            classifier.predict(rows)
    with pytest.raises(DataError, match="too large for dtype"):
        learner().fit(X.toarray().astype(float) * 1e300, Y)
    with pytest.raises(DataError, match="found one text; wanted a list of texts"):
        learner().fit("red", [["red"]])
    with pytest.raises(DataError, match="found 1 rows in X and 2 in y"):
        on_texts.score(["red"], [["R"], ["G"]])


def test_refitted_on_another_kind_of_document(documents, indicator, learner):
    X, Y = indicator()
    classifier = learner(epochs=2).fit(X, Y)
    classifier.fit(*documents())
    assert not hasattr(classifier, "n_features_in_")
    assert classifier.fit(X, Y).n_features_in_ == len(WORDS)


def test_documents_that_can_be_read_only_once(on_texts, learner, documents):
    texts, labels = documents()
    with pytest.raises(DataError, match="found a generator, which has no fixed order; wanted a list of texts"):
        learner().fit((text for text in texts), labels)
    for once in (set(texts), dict.fromkeys(texts), dict.fromkeys(texts).keys()):
        with pytest.raises(DataError, match=f"found a {type(once).__name__}, which has no fixed order"):
            learner().fit(once, labels)
    for method in (on_texts.predict, on_texts.suggest, on_texts.predict_proba, on_texts.decision_function):
        with pytest.raises(DataError, match="found a map, which has no fixed order"):
            method(map(str.upper, texts))
