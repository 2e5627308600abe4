"""FastXML learns a small dataset."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from circlet.metrics import evaluate
from circlet_paper.baselines.fastxml import FastXML
from circlet_paper.baselines.trees import TreeSettings

FEW = TreeSettings(trees=4)


def popular(Y: sp.csr_matrix, n: int) -> np.ndarray:
    """The five most frequent labels, for each of n documents."""
    order = np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:5]
    return np.tile(order, (n, 1))


def test_beats_the_most_frequent_labels(synthetic):
    train, test = synthetic.train.take(np.arange(400)), synthetic.test
    model = FastXML(FEW).fit(train.X, train.Y)
    found = evaluate(test.Y, model.scores(test.X), None, (1, 5), metrics=("P",))
    least = evaluate(test.Y, popular(train.Y, test.n), None, (1, 5), metrics=("P",))
    assert found["P@1"] > 1.5 * least["P@1"]
    assert found["P@5"] > 1.2 * least["P@5"]


def test_the_seed_determines_the_forest(synthetic):
    train, rows = synthetic.train.take(np.arange(120)), synthetic.test.X[:50]
    first, same, other = (
        FastXML(TreeSettings(trees=2), seed=seed).fit(train.X, train.Y).scores(rows) for seed in (0, 0, 1)
    )
    assert (first != same).nnz == 0
    assert (first != other).nnz > 0


def test_scores_are_probabilities(synthetic):
    train = synthetic.train.take(np.arange(120))
    scores = FastXML(TreeSettings(trees=2)).fit(train.X, train.Y).scores(train.X)
    assert scores.shape == train.Y.shape
    assert scores.data.min() > 0
    assert scores.data.max() <= 1
