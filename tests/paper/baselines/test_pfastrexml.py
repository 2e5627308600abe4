"""PfastreXML: its second ranking by hand, and what it does for rare labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.features.rows import Scaling
from circlet.metrics import evaluate, inverse_propensity
from circlet_paper.baselines.fastxml import FastXML
from circlet_paper.baselines.pfastrexml import PfastreXML, reranked
from circlet_paper.baselines.trees import TreeSettings, prepared


class TestRerank:
    def test_by_hand(self):
        scores = sp.csr_matrix([[0.5, 0.25, 0.0], [0.0, 0.0, 1.0]])
        X = sp.csr_matrix([[1.0, 0.0], [0.6, 0.8]])
        centroids = sp.csr_matrix([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
        found = reranked(scores, X, centroids, alpha=0.8, gamma=2.0)
        # Squared distances: 2 and 0 for the first document, 0 for the second.
        far = 0.8 * math.log(0.5) + 0.2 * math.log(1 / (1 + math.exp(2 * 2)))
        near = 0.8 * math.log(0.25) + 0.2 * math.log(1 / 2)
        assert found[0, 0] == pytest.approx(far)
        assert found[0, 1] == pytest.approx(near)
        assert found[1, 2] == pytest.approx(0.2 * math.log(0.5))
        assert found.nnz == 3  # a label without a score stays without

    def test_shares(self):
        scores = sp.csr_matrix([[0.5, 0.25]])
        X, centroids = sp.csr_matrix([[1.0, 0.0]]), sp.csr_matrix([[0.0, 1.0], [1.0, 0.0]])
        best = [int(np.argmax(reranked(scores, X, centroids, alpha, 30.0).toarray())) for alpha in (1.0, 0.0)]
        assert best == [0, 1]

    def test_large_distances_overflow_nothing(self):
        X = sp.csr_matrix([[1e3]])
        found = reranked(sp.csr_matrix([[0.5]]), X, sp.csr_matrix([[-1e3]]), 0.5, 30.0)
        assert found[0, 0] == pytest.approx(0.5 * math.log(0.5) - 0.5 * 30 * 4e6)

    def test_more_rows_than_a_block(self):
        random = np.random.default_rng(0)
        scores, X, centroids = (
            sp.csr_matrix(random.random(shape) * (random.random(shape) < 0.5))
            for shape in ((600, 5), (600, 4), (5, 4))
        )
        found = reranked(scores, X, centroids, 0.8, 3.0)
        alone = reranked(scores[[599]], X[[599]], centroids, 0.8, 3.0)
        np.testing.assert_allclose(found[[599]].toarray(), alone.toarray())


class TestFit:
    def test_weights_and_centroids_by_hand(self):
        X = sp.csr_matrix([[0.0, 0.0], [math.sqrt(3), 0.0]])
        Y = sp.csr_matrix([[1.0, 0, 0], [1, 1, 0]])
        model = PfastreXML(np.array([2.0, 5.0, 9.0]), TreeSettings(trees=1, scaling="none")).fit(X, Y)
        # One leaf, of both documents: means of the labels, times their weights.
        np.testing.assert_allclose(model.forest_.trees[0].leaves.toarray(), [[2.0, 2.5, 0]])
        # With its bias of 1, the second row has the length 2. Nobody has the last label.
        half = math.sqrt(3) / 2
        np.testing.assert_allclose(
            model.centroids_.toarray(), [[half / 2, 0, 0.75], [half, 0, 0.5], [0, 0, 0]], atol=1e-6
        )
        assert model.nbytes > model.forest_.nbytes
        # What is combined are probabilities again: 1 for label 0, of two documents, and 1/2 for label 1.
        rows = Scaling("l2").transform(prepared(X, model.settings))
        by_hand = reranked(sp.csr_matrix([[1.0, 0.5, 0]] * 2), rows, model.centroids_, 0.8, 30.0)
        np.testing.assert_allclose(model.scores(X).toarray(), by_hand.toarray(), rtol=1e-6)

    def test_finds_rare_labels(self, synthetic):
        train, test = synthetic.train.take(np.arange(400)), synthetic.test
        weights, settings = inverse_propensity(train.Y), TreeSettings(trees=4)
        fast, rare = (
            evaluate(test.Y, model.fit(train.X, train.Y).scores(test.X), weights, (1, 5), metrics=("P", "PSP"))
            for model in (FastXML(settings), PfastreXML(weights, settings))
        )
        assert rare["PSP@1"] > fast["PSP@1"]
        assert rare["PSP@5"] > fast["PSP@5"]
