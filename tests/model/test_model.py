from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.errors import DataError, ParameterError, ShapeError
from circlet.features.rows import Scaling
from circlet.metrics import inverse_propensity_of_counts

N, F, L = 80, 14, 6  # of every model in conftest.py


KINDS = ["sparse", "dense", "texts"]


class TestRows:
    def test_scaled_like_the_training_rows(self, shared, documents):
        model = shared("sparse")
        expected = Scaling("sqrt").transform(documents("sparse"))
        np.testing.assert_allclose(model.rows(documents("sparse")).toarray(), expected.toarray())


class TestTopK:
    def test_weights_that_are_not_finite_give_no_labels(self, trained, documents):
        model = trained("sparse")
        with torch.no_grad():
            next(model.network.parameters()).fill_(float("nan"))
        with pytest.raises(DataError, match="found a non-finite or huge number in the output of a layer"):
            model.top_k(documents("sparse"), 3)
        with pytest.raises(DataError, match="found a non-finite or huge number in the output of a layer"):
            list(model.score_blocks(documents("sparse")))

    def test_no_known_word(self, shared):
        ids, scores = shared("texts").top_k(["zebra", ""], L)
        assert sorted(ids[0]) == list(range(L))
        assert np.array_equal(ids[0], ids[1])
        assert np.isfinite(scores).all()

    def test_mistakes_are_found_without_documents_too(self, shared):
        with pytest.raises(ParameterError, match="`memory`: found"):
            shared("texts").top_k([], 3, memory=0)
        with pytest.raises(ShapeError, match=r"`allowed`: found .*; wanted \(6,\)"):
            shared("texts").top_k([], 3, allowed=np.array([True]))


class TestFavorRare:
    @pytest.mark.parametrize("favor_rare", [0.25, 1])
    def test_ranks_by_probability_and_inverse_propensity(self, favor_rare, shared, documents):
        model = shared("texts")
        ids, scores = model.top_k(documents("texts"), 3, favor_rare=favor_rare)
        every = np.concatenate(list(model.score_blocks(documents("texts"))))
        weights = inverse_propensity_of_counts(model.label_counts, model.documents_seen)
        order = np.argsort(-model.probabilities(every) * weights**favor_rare, axis=1)[:, :3]
        np.testing.assert_array_equal(ids, order)
        np.testing.assert_allclose(scores, np.take_along_axis(every, ids, axis=1), rtol=1e-4, atol=1e-5)

    def test_follows_what_the_model_has_seen_since(self, trained, split):
        model = trained("sparse")
        before = model.gain(0.5).log_weights
        assert model.gain(0.5).log_weights is before
        np.testing.assert_allclose(model.gain(1).log_weights, 2 * before)
        model.count(split("sparse").Y)
        assert (model.gain(0.5).log_weights != before).any()
        model.label_counts = None
        with pytest.raises(DataError, match="train it again, or leave `favor_rare` out"):
            model.gain(0.5)

    def test_mistakes_are_found_without_documents_too(self, shared):
        with pytest.raises(ParameterError, match="`favor_rare`: found 2; wanted a number from 0 to 1"):
            shared("texts").top_k([], 3, favor_rare=2)


class TestMembers:
    def test_the_first_network_stands_for_all(self, shared):
        model = shared(members=2)
        assert model.network is model.networks[0]
        assert shared().networks == [shared().network]
        assert model.ranker.parameter_counts()["total"] == 2 * shared().ranker.parameter_counts()["total"]
