from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.runtime import RuntimeModel
from circlet.runtime.explain import Contribution, Explanation, explained


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
