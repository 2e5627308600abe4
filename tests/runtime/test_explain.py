"""Contributions are integrated gradients: they add up, and are those of captum."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from hypothesis import given
from hypothesis import strategies as st

from circlet.errors import CircletError
from circlet.model import Model
from circlet.runtime import RuntimeModel, explain
from circlet.runtime.explain import Attribution, Contribution, Explanation, attributed, explained, mean_slopes
from circlet.runtime.network import Linear
from circlet.scoring.heads import HEADS
from circlet.scoring.scorers import Scorer
from circlet.scoring.tensors import rectified
from circlet.storage.tensors import Stored


def loaded(model: Model, store: str = "float32") -> RuntimeModel:
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, store)
        return RuntimeModel.load(folder)


def first_row(model: RuntimeModel, documents: Any) -> Any:
    return model._rows(model.checked(documents[:1]), 0, 1)


def attribution_of(model: RuntimeModel, documents: Any, labels: list[int]) -> Attribution:
    return attributed(model, first_row(model, documents), np.array(labels, dtype=np.int64))


def scores_in_torch(model: Model, rows: torch.Tensor) -> torch.Tensor:
    """Scores of dense scaled rows, also where the first layer is for sparse ones, in double precision."""
    outputs = []
    for network in model.networks:
        encoder: Any = network.encoder
        first, *others = encoder.hidden
        hidden = rectified(rows @ (first.weight if model.sparse else first.weight.T) + first.bias, encoder.leak)
        for layer in others:
            hidden = rectified(layer(hidden), encoder.leak)
        outputs.append(network.head(hidden))
    if len(outputs) == 1:
        return model.network.scorer.logits(outputs[0])
    # The mean of probabilities as it is defined; the model's own code works in place, without gradients.
    each = zip(model.networks, outputs, model.ranker.calibrations, strict=True)
    logits = (slope * one.scorer.logits(output) + intercept for one, output, (slope, intercept) in each)
    return torch.logit(torch.stack([torch.sigmoid(own) for own in logits]).mean(dim=0))


def by_captum(model: Model, runtime: RuntimeModel, documents: Any, labels: list[int]) -> np.ndarray:
    row = first_row(runtime, documents)
    dense = row if isinstance(row, np.ndarray) else row.matrix(runtime.n_features).toarray()
    model.ranker.eval()
    gradients = IntegratedGradients(lambda rows: scores_in_torch(model, rows))
    found = [
        gradients.attribute(torch.from_numpy(dense), n_steps=1500, method="riemann_middle", target=label)
        for label in labels
    ]
    return torch.cat(found).numpy()


def assert_like_captum(model: Model, documents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, labels = loaded(model), [0, 7, 3]
    wanted = by_captum(model, runtime, documents, labels)
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    found = attribution_of(runtime, documents, labels)
    spread = np.zeros_like(wanted)
    spread[:, found.columns] = found.values
    np.testing.assert_allclose(spread / largest, wanted / largest, atol=3 * explain.ACCURACY)
    assert (found.errors <= explain.ACCURACY * np.abs(found.values).max(axis=1)).all()
    monkeypatch.setattr(explain, "ACCURACY", 1e-4)
    found = attribution_of(runtime, documents, labels)
    spread[:, found.columns] = found.values
    np.testing.assert_allclose(spread / largest, wanted / largest, atol=2e-3)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("head", HEADS)
def test_like_captum(head, kind, made, some, monkeypatch):
    assert_like_captum(made(kind, head=head, hidden=(24,)), some(kind, 1, 1), monkeypatch)


@pytest.mark.parametrize(
    "changes",
    [{"hidden": (12, 8)}, {"hidden": (10, 8, 6)}, {"activation": "leaky-relu"}, {"loss": "absolute-cosine"},
     {"loss": "cosine"}, {"loss": "softmax"}, {"members": 3}, {"members": 2, "head": "fc"},
     {"codebook": "independent"}, {"head": "hrr", "loss": "absolute-cosine"}],
)  # fmt: skip
def test_like_captum_with_other_settings(changes, made, some, monkeypatch):
    assert_like_captum(made("sparse", **changes), some("sparse", 1, 1), monkeypatch)


def test_by_hand():
    """One hidden unit, relu(2 a − b − 1), and one label, 3 times it: only above a threshold does it count."""

    def layer(weight: list[list[float]], bias: list[float]) -> Linear:
        return Linear(Stored(np.array(weight, dtype=np.float32)), Stored(np.array(bias, dtype=np.float32)))

    first, last = layer([[2, -1]], [-1]), layer([[3]], [0.5])
    network = SimpleNamespace(first=first, others=[], head=HEADS["fc"], leak=0.0, head_layers=[last])
    scorer = Scorer(None, 1, 1.0, None)
    model: Any = SimpleNamespace(networks=[network], scorers=[scorer], scorer=scorer)
    found = attributed(model, np.array([[2.0, 1.0]], dtype=np.float32), np.array([0]))
    # The unit is active for α above 1/3, and its slope is 1 there: 3 · 2/3 · (2 · 2, −1 · 1) is (8, −2).
    np.testing.assert_allclose(found.values, [[8, -2]], rtol=1e-6)
    assert found.columns.tolist() == [0, 1]
    assert found.bases.tolist() == [0.5]
    np.testing.assert_allclose(found.scores, [6.5])


@pytest.mark.parametrize("kind", ["sparse", "dense", "texts"])
def test_an_empty_document_and_no_label(kind, made, some):
    model = loaded(made(kind, members=2))
    empty = [""] if kind == "texts" else some(kind, 1, 1) * 0
    if kind == "dense":
        empty = model.scaling.arrays["mean"][None, :]
    found = attribution_of(model, empty, [0, 1])
    assert found.values.shape == (2, 0)
    # Both ends of the line are the same point, but some BLAS round the same sum differently in other places.
    np.testing.assert_allclose(found.scores, found.bases, rtol=1e-14)
    nothing = attribution_of(model, some(kind, 1, 1), [])
    assert nothing.values.shape[0] == len(nothing.scores) == 0


def test_many_labels_are_explained_some_at_a_time(made, some, monkeypatch):
    model, documents = loaded(made()), some("sparse", 1, 1)
    together = attribution_of(model, documents, list(range(23)))
    monkeypatch.setattr(explain, "LABELS", 5)
    one_by_one = attribution_of(model, documents, list(range(23)))
    np.testing.assert_allclose(one_by_one.values, together.values, atol=3e-2 * np.abs(together.values).max())


def test_what_does_not_add_up_is_an_error(made, some, monkeypatch):
    model = loaded(made(members=2))
    monkeypatch.setattr(explain, "_mean_weights", lambda log_odds: 2 * np.ones_like(log_odds[:, :, 1:]))
    with pytest.raises(CircletError, match=r"off by .* from score − base"):
        attribution_of(model, some("sparse", 1, 1), [0])


def test_mean_slopes_by_hand():
    starts, ends = np.array([1.0, -1.0, -1.0, 3.0, 0.0, 2.0, -2.0, 0.0]), np.array([2.0, -2, 3, -1, 0, 0, 0, -1])
    assert mean_slopes(starts, ends, 0.0).tolist() == [1, 0, 0.75, 0.75, 0, 1, 0, 0]
    np.testing.assert_allclose(mean_slopes(starts, ends, 0.2), [1, 0.2, 0.8, 0.8, 0.2, 1, 0.2, 0.2])
    # The slope of the absolute value.
    np.testing.assert_allclose(mean_slopes(starts, ends, -1.0), [1, -1, 0.5, 0.5, -1, 1, -1, -1])


# Explanations in words


def made_of(contributions: list[Contribution]) -> Explanation:
    return Explanation("label", 1.0, 0.7, 0.0, contributions, 0.0)


def test_spans_by_hand():
    """ "red red fox": red is there twice, and a run of two words covers the space between them."""
    found = made_of(
        [
            Contribution("red", "word", 1.2, [(0, 3), (4, 7)]),
            Contribution("red fox", "word", -0.7, [(4, 11)]),
            Contribution("column", "feature", 5.0, []),
        ]
    ).spans()
    assert [each[:2] for each in found] == [(0, 3), (4, 7), (7, 11)]
    np.testing.assert_allclose([each[2] for each in found], [0.6, 0.6 - 0.3, -0.4])
    assert made_of([]).spans() == []


spans = st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.tuples(st.floats(-5, 5), st.lists(spans, min_size=1, max_size=3)), max_size=8))
def test_spans_do_not_overlap_and_add_up(terms):
    found = made_of([Contribution("t", "word", value, places) for value, places in terms]).spans()
    assert all(before[1] <= after[0] for before, after in pairwise(found))
    covered = {place for _, places in terms for start, end in places for place in range(start, end)}
    assert {place for start, end, _ in found for place in range(start, end)} == covered
    np.testing.assert_allclose(sum(each[2] for each in found), sum(value for value, _ in terms), atol=1e-9)


def test_terms_of_a_text(made, tmp_path):
    made("texts", named=True, text={"char_ngrams": (2, 3)}).save(tmp_path)
    model = RuntimeModel.load(tmp_path)
    text = "FOX foze, 日本 unknown"
    (found,) = explained(model, [text], np.array([3]), names=["label 3"])
    assert found.label == "label 3"
    values = [abs(each.value) for each in found.contributions]
    assert values == sorted(values, reverse=True)
    np.testing.assert_allclose(
        sum(each.value for each in found.contributions), found.score - found.base, atol=1e-5
    )
    assert {each.kind for each in found.contributions} == {"word", "characters"}
    words = {each.term: each.spans for each in found.contributions if each.kind == "word"}
    assert words["fox"] == [(0, 3)]
    assert words["foze"] == [(4, 8)]
    assert words["日"] == [(10, 11)]
    runs = {each.term: each.spans for each in found.contributions if each.kind == "characters"}
    assert runs["fo"] == [(0, 2), (4, 6)]
    np.testing.assert_allclose(found.probability, model.probabilities(found.score))
    np.testing.assert_allclose(found.score, next(model.score_blocks([text]))[0, 3], atol=1e-5)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_features_of_rows(kind, made, some, tmp_path):
    made(kind).save(tmp_path)
    model, row = RuntimeModel.load(tmp_path), some(kind, 1, 1)
    found = explained(model, row, np.array([5, 0]), names=[5, 0])
    assert [each.label for each in found] == [5, 0]
    assert {each.kind for each in found[0].contributions} == {"feature"}
    present = np.flatnonzero(row.toarray()[0] if kind == "sparse" else row[0])
    assert sorted(int(each.term) for each in found[0].contributions) == present.tolist()
    assert found[0].spans() == []
    named = explained(model, row, np.array([5]), names=[5], features=[f"f{i}" for i in range(30)])
    assert named[0].contributions[0].term == f"f{found[0].contributions[0].term}"
