"""What a trained model does besides the guarantees of `tests/conformance.py`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.errors import DataError, ParameterError, ShapeError
from circlet.features.rows import Scaling


def test_rows_are_scaled_like_the_training_rows(shared, documents):
    expected = Scaling("sqrt").transform(documents("sparse"))
    np.testing.assert_allclose(shared("sparse").rows(documents("sparse")).toarray(), expected.toarray())


def test_weights_that_are_not_finite_give_no_labels(trained, documents):
    model = trained("sparse")
    with torch.no_grad():
        next(model.network.parameters()).fill_(float("nan"))
    for ask in (lambda given: model.top_k(given, 3), lambda given: list(model.score_blocks(given))):
        with pytest.raises(DataError, match="found a non-finite or huge number in the output of a layer"):
            ask(documents("sparse"))


def test_no_known_word(shared):
    ids, scores = shared("texts").top_k(["zebra", ""], 6)
    assert sorted(ids[0]) == list(range(6))
    assert np.array_equal(ids[0], ids[1])
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"memory": 0}, ParameterError, "`memory`: found"),
        ({"allowed": np.array([True])}, ShapeError, r"`allowed`: found .*; wanted \(6,\)"),
        ({"favor_rare": 2}, ParameterError, "`favor_rare`: found 2; wanted a number from 0 to 1"),
    ],
)
def test_mistakes_are_found_without_documents_too(given, error, message, shared):
    with pytest.raises(error, match=message):
        shared("texts").top_k([], 3, **given)


def test_what_is_rare_follows_what_the_model_has_seen_since(trained, split):
    model = trained("sparse")
    before = model.gain(0.5).log_weights
    assert model.gain(0.5).log_weights is before
    np.testing.assert_allclose(model.gain(1).log_weights, 2 * before)
    model.count(split("sparse").Y)
    assert (model.gain(0.5).log_weights != before).any()
    model.label_counts = None
    with pytest.raises(DataError, match="train it again, or leave `favor_rare` out"):
        model.gain(0.5)
