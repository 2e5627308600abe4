from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.errors import DataError, ParameterError, ShapeError
from circlet.features.rows import Scaling
from circlet.metrics import inverse_propensity_of_counts
from circlet.model import Model

N, F, L = 80, 14, 6  # of every model in conftest.py


KINDS = ["sparse", "dense", "texts"]


class TestRows:
    def test_scaled_like_the_training_rows(self, shared, documents):
        model = shared("sparse")
        expected = Scaling("sqrt").transform(documents("sparse"))
        np.testing.assert_allclose(model.rows(documents("sparse")).toarray(), expected.toarray())

    @pytest.mark.parametrize(("kind", "other"), [("sparse", "dense"), ("dense", "sparse")])
    def test_the_other_kind_of_matrix_is_taken_too(self, kind, other, shared, documents):
        ids, scores = shared(kind).top_k(documents(kind), 3)
        same, close = shared(kind).top_k(documents(other), 3)
        np.testing.assert_array_equal(same, ids)
        np.testing.assert_allclose(close, scores)

    def test_texts_for_a_model_of_rows(self, shared):
        with pytest.raises(DataError, match="was trained on feature rows; wanted rows, got texts"):
            shared("sparse").rows(["a text"])

    @pytest.mark.parametrize("kind", ["sparse", "dense"])
    def test_rows_for_a_model_of_texts(self, kind, shared, documents):
        with pytest.raises(DataError, match="was trained on texts; wanted a list of texts, got feature rows"):
            shared("texts").rows(documents(kind))

    @pytest.mark.parametrize("kind", ["sparse", "dense"])
    def test_another_number_of_features(self, kind, shared, documents):
        with pytest.raises(DataError, match=rf"found rows of shape \({N}, 3\); this model wants {F} features"):
            shared(kind).rows(documents(kind)[:, :3])

    def test_one_row_that_is_not_a_matrix(self, shared, documents):
        with pytest.raises(DataError, match=rf"found rows of shape \({F},\)"):
            shared("dense").rows(documents("dense")[0])

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_documents(self, kind, shared, documents):
        ids, scores = shared(kind).top_k(documents(kind)[:0], 3)
        assert ids.shape == scores.shape == (0, 3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_document_is_like_many(self, kind, shared, documents):
        ids, scores = shared(kind).top_k(documents(kind), 3)
        alone, close = shared(kind).top_k(documents(kind)[5:6], 3)
        np.testing.assert_array_equal(alone, ids[5:6])
        np.testing.assert_allclose(close, scores[5:6], rtol=1e-4, atol=1e-5)


class TestTopK:
    @pytest.mark.parametrize("members", [1, 2])
    def test_memory_changes_nothing(self, members, shared, documents):
        model, given = shared("texts", members=members), documents("texts")
        ids, scores = model.top_k(given, 3)
        for memory in (1, 1 << 40):
            found, close = model.top_k(given, 3, memory=memory)
            np.testing.assert_array_equal(found, ids)
            assert members > 1 or np.array_equal(close, scores)

    @pytest.mark.parametrize("members", [1, 2])
    def test_only_allowed_labels(self, members, shared, documents):
        few, _ = shared("texts", members=members).top_k(documents("texts")[:4], 3, allowed=np.arange(L) == 0)
        assert few.tolist() == [[0, -1, -1]] * 4

    @pytest.mark.parametrize(("members", "rounding"), [(1, 0), (2, 1e-4)])
    def test_only_scores_from_a_threshold_on(self, members, rounding, shared, documents):
        model, given = shared("texts", members=members), documents("texts")[:1]
        ids, scores = model.top_k(given, 3)
        kept, values = model.top_k(given, 3, threshold=float(scores[0, 1]) - rounding)
        assert kept[0].tolist() == [*ids[0, :2], -1]
        assert values[0, 2] == -np.inf

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

    def test_zero_changes_nothing(self, shared, documents):
        plain = shared("texts").top_k(documents("texts"), 3)
        assert all(map(np.array_equal, shared("texts").top_k(documents("texts"), 3, favor_rare=0), plain))

    def test_with_the_other_options(self, shared, documents):
        model, texts = shared("texts"), documents("texts")[:4]
        few, _ = model.top_k(texts, 3, allowed=np.arange(L) == 2, favor_rare=1, memory=1)
        assert few.tolist() == [[2, -1, -1]] * 4
        none, scores = model.top_k(texts, 3, threshold=1e6, favor_rare=1)
        assert (none == -1).all()
        assert (scores == -np.inf).all()

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
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_best_labels_are_those_with_the_best_scores(self, kind, shared, documents):
        model, given = shared(kind, members=2), documents(kind)
        ids, best = model.top_k(given, 3)
        scores = np.concatenate(list(model.score_blocks(given)))
        np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1, kind="stable")[:, :3])
        np.testing.assert_allclose(best, np.take_along_axis(scores, ids, axis=1), rtol=1e-5)

    def test_the_first_network_stands_for_all(self, shared):
        model = shared(members=2)
        assert model.network is model.networks[0]
        assert shared().networks == [shared().network]
        assert model.ranker.parameter_counts()["total"] == 2 * shared().ranker.parameter_counts()["total"]


class TestProbabilities:
    def test_scores_of_any_size(self, shared):
        scores = [-1e30, -1000.0, 0.0, 1000.0, 1e30]
        model = Model(shared().ranker, shared().scaling, n_features=F, sparse=True, calibration=(2.0, 0.0))
        assert model.probabilities(scores).tolist() == [0, 0, 0.5, 1, 1]

    @pytest.mark.parametrize("probability", [1e-6, 0.25, 0.5, 0.999, 1.0])
    def test_no_label_below_the_least_score_is_that_probable(self, probability, shared):
        model = Model(shared().ranker, shared().scaling, n_features=F, sparse=True, calibration=(2.0, -1.0))
        least = model.least_score(probability)
        scores = np.linspace(least - 1e-4, least + 1, 1000).astype(np.float32)
        probable = model.probabilities(scores) >= probability
        assert not probable[0]
        assert probable[-1]
        assert (scores[probable] >= least).all()

    def test_every_label_has_a_probability_of_at_least_0(self, shared):
        assert shared().least_score(0.0) is None
