"""`CircletClassifier` with encoders that read texts."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from circlet import CircletClassifier
from circlet.errors import DataError, ParameterError

TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 8
LABELS = [["animal", "red"], ["vehicle"], ["animal"], ["vehicle", "old"]] * 8
SMALL = {"dim": 16, "hidden": (16,), "embedding": 16, "epochs": 12, "batch_size": 4, "lr": 0.01, "validation": 0}


def test_fitted_saved_and_loaded(tmp_path):
    classifier = CircletClassifier(encoder="cnn", **SMALL, dropout=0.0).fit(TEXTS, LABELS)
    names, _ = classifier.suggest(["red fox", "old lorry"], k=2)
    assert [set(row) for row in names.tolist()] == [{"animal", "red"}, {"vehicle", "old"}]
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.get_params() == clone(classifier).get_params()
    assert np.array_equal(loaded.predict_proba(TEXTS[:4]), classifier.predict_proba(TEXTS[:4]))
    loaded.partial_fit(TEXTS, [["new", *labels] for labels in LABELS])
    assert "new" in loaded.classes_


def test_rows_have_no_words():
    with pytest.raises(DataError, match="found feature rows without texts; encoder lstm reads texts"):
        CircletClassifier(encoder="lstm", **SMALL).fit(np.eye(32), LABELS)


def test_settings_that_do_not_fit():
    with pytest.raises(ParameterError, match="`char_ngrams` must be None"):
        CircletClassifier(encoder="cnn", char_ngrams=(2, 3)).fit(TEXTS, LABELS)
    assert CircletClassifier(encoder=None)._settings().network.encoder == "features"
