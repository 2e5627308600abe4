from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.errors import DataError
from circlet.features.rows import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.runtime.model import BaseModel


def base(**about) -> BaseModel:
    return BaseModel(Scaling("none"), **{"n_features": 3, "sparse": True, **about})


class TestProbabilities:
    def test_by_hand(self):
        model = base(calibration=(2.0, -1.0))
        found = model.probabilities([0.5, 1.0, -np.inf])
        assert found.dtype == np.float32
        assert found == pytest.approx([0.5, 1 / (1 + math.exp(-1)), 0])

    def test_like_torch(self):
        scores = np.concatenate([np.linspace(-800, 800, 999), np.linspace(-3, 3, 999)])
        expected = torch.sigmoid(torch.from_numpy(1.7 * scores + 0.3)).float().numpy()
        np.testing.assert_allclose(base(calibration=(1.7, 0.3)).probabilities(scores), expected, rtol=1e-6)

    @pytest.mark.parametrize("probability", [1e-30, 0.2, 0.5, 0.99, 1.0])
    def test_no_label_of_a_probability_is_below_its_least_score(self, probability):
        model = base(calibration=(1.3, -0.7))
        least = model.least_score(probability)
        around = np.linspace(least - 0.1, least + 0.1, 2001).astype(np.float32)
        assert (model.probabilities(around[around < least]) < probability).all()

    def test_everything_has_a_probability_of_at_least_0(self):
        assert base().least_score(0) is None


class TestDocuments:
    def test_as_they_are(self):
        X, texts = sp.csr_matrix((2, 3)), ["a"]
        assert base().checked(X) is X
        assert base(vectorizer=TextVectorizer()).checked(texts) is texts

    def test_sparse_or_dense_like_the_model(self):
        assert sp.issparse(base().checked(np.zeros((2, 3))))
        assert isinstance(base(sparse=False).checked(sp.csr_matrix((2, 3))), np.ndarray)

    def test_of_another_kind(self):
        for model, documents in (
            (base(), ["a"]),
            (base(), np.zeros((2, 4))),
            (base(), np.zeros(3)),
            (base(vectorizer=TextVectorizer()), np.zeros((2, 3))),
        ):
            with pytest.raises(DataError, match="want"):
                model.checked(documents)


def test_documents_seen():
    assert base().documents_seen == 0
    assert base(training={"documents": 5, "held_out": 2}).documents_seen == 7
