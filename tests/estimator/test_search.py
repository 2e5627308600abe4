"""scikit-learn's searches and pipelines around the classifier, with every form of documents and targets."""

from __future__ import annotations

import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from circlet import CircletClassifier

TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 9
LABELS = [["animal", "red"], ["vehicle"], ["animal"], ["vehicle", "old"]] * 9
INDICATOR = MultiLabelBinarizer(sparse_output=True).fit_transform(LABELS)
ROWS = TfidfVectorizer().fit_transform(TEXTS)
GRID = {"head": ["chrr", "fc"], "dim": [16, 32]}


def learner() -> CircletClassifier:
    return CircletClassifier(hidden=(24,), epochs=15, batch_size=8, lr=0.01, dropout=0.0, validation=0)


@pytest.mark.parametrize("documents", [TEXTS, ROWS], ids=["texts", "rows"])
def test_label_lists_with_a_splitter(documents):
    search = GridSearchCV(learner(), GRID, cv=KFold(3), error_score="raise").fit(documents, LABELS)
    assert search.best_score_ > 0.9
    assert search.cv_results_["params"] == list(ParameterGrid(GRID))
    assert list(search.best_estimator_.classes_) == ["animal", "old", "red", "vehicle"]


@pytest.mark.parametrize(
    ("documents", "targets", "scoring"),
    [
        (TEXTS, [set(own) for own in LABELS], None),
        (TEXTS, INDICATOR, None),
        (TEXTS, INDICATOR, "f1_micro"),
        (ROWS, INDICATOR.toarray(), "f1_samples"),
    ],
    ids=["label sets", "texts", "texts-scoring", "rows-scoring"],
)
def test_no_splitter_is_needed(documents, targets, scoring):
    search = GridSearchCV(learner(), {"dim": [32]}, cv=3, scoring=scoring).fit(documents, targets)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize(("targets", "cv"), [(LABELS, KFold(3)), (INDICATOR, 3)], ids=["lists", "indicator"])
def test_pipeline(targets, cv):
    pipeline = Pipeline([("words", TfidfVectorizer()), ("tags", learner())])
    search = GridSearchCV(pipeline, {"tags__dim": [32], "words__ngram_range": [(1, 1), (1, 2)]}, cv=cv)
    search.fit(TEXTS, targets)
    assert search.best_score_ > 0.9
    assert search.score(TEXTS, targets) == 1
    assert len(search.classes_) == 4
    predicted = search.predict(["brown bear"])
    assert sp.issparse(predicted)
    assert predicted.toarray().tolist() == [[1, 0, 0, 0]]
