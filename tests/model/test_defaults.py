"""The defaults need no option, for few documents, many and very many: they decide, finish, and learn something."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Split, as_labels
from circlet.data.synthetic import make_multilabel
from circlet.errors import DataError
from circlet.metrics import evaluate
from circlet.model import fit
from circlet.settings import RunSettings
from circlet.settings.auto import VERY_MANY

#: Documents, features, labels, and how many times as good as the most frequent labels the ranking must be.
SIZES = [
    pytest.param(200, 500, 20, 1.2, id="few"),
    pytest.param(15_000, 5000, 1000, 2.0, id="many", marks=pytest.mark.slow),
    pytest.param(500_000, 20_000, 5000, 2.0, id="very many", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("documents", "features", "labels", "times"), SIZES)
def test_they_are_better_than_the_most_frequent_labels(documents, features, labels, times):
    dataset = make_multilabel(documents, features, labels, seed=0, n_test=500, labels_per_row=3)
    model = fit(dataset.train, RunSettings.from_preset("default", {}))
    decided = {each["setting"]: each for each in model.training["decided"]}
    assert all(each["why"] for each in decided.values())
    assert decided["first_layer"]["tried"] == (1000 < documents <= VERY_MANY)
    assert model.training["documents"] == documents  # it has learned from all of them
    assert len(model.history) == decided["epochs"]["value"]
    frequent = np.argsort(-np.asarray(dataset.train.Y.sum(axis=0)).ravel(), kind="stable")[:5]
    rankings = model.top_k(dataset.test.X, 5)[0], np.tile(frequent, (500, 1))
    ours, theirs = (evaluate(dataset.test.Y, ids, k=5, metrics=("nDCG",))["nDCG@5"] for ids in rankings)
    assert ours > times * theirs


@pytest.mark.parametrize("documents", [1, 2, 19, 20, 21, 40])
def test_a_handful_of_documents(documents):
    dataset = make_multilabel(documents, 30, 5, seed=0)
    model = fit(dataset.train, RunSettings.from_preset("default", {"hidden": (16,)}))
    assert np.isfinite(model.top_k(dataset.train.X, 5)[1]).all()
    assert 0 < model.calibration[0] < np.inf


def test_no_word_at_all():
    split = Split(None, as_labels(sp.csr_matrix(np.ones((3, 1), dtype=np.float32)), "y"), ["", " ", ""])
    with pytest.raises(DataError, match="found no term in at least min_df=1 of the 3 texts"):
        fit(split, RunSettings.from_preset("default", {}))
