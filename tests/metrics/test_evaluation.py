from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.errors import DataError
from circlet.metrics import evaluate, inverse_propensity
from circlet.metrics.evaluation import evaluate_model, in_label_space
from circlet.model import fit
from circlet.runtime import Tagger

NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]  # of the models in conftest.py
DEPTHS = [1, 3]


def lone(texts: list[str], labels: list[list[str]]) -> Dataset:
    """A file of its own, whose labels are numbered in its own order."""
    names = sorted({name for row in labels for name in row})
    Y = sp.csr_matrix([[float(name in row) for name in names] for row in labels], dtype=np.float32)
    return Dataset("lone", Split(None, Y, texts), label_names=names)


def test_unknown_labels_are_counted_and_missed(shared):
    model = shared("texts")
    best = [NAMES[model.top_k([text], 1)[0][0, 0]] for text in ("label1", "label2")]
    data = lone(["label1", "label2"], [[best[0], "mauve"], ["puce", "mauve"]])
    found = evaluate_model(Tagger(model), data, [1])
    assert found.unknown_labels == 2
    assert found.documents == 2
    assert found.values["P@1"] == 0.5  # the second document has no label that could be suggested
    assert found.values["nDCG@1"] == 0.5
    # One that no document has is not counted.
    Y = sp.csr_matrix(np.eye(2, 3, dtype=np.float32))
    wider = Dataset("lone", Split(None, Y, ["a", "b"]), label_names=["red", "green", "mauve"])
    assert evaluate_model(Tagger(model), wider, [1]).unknown_labels == 0


@pytest.fixture(scope="module")
def whole(split) -> Dataset:
    return Dataset("whole", split("texts"), split("texts", 2), label_names=NAMES)


@pytest.fixture(scope="module")
def model(whole, small_run):
    settings = replace(small_run, validation=0.2)
    trained = fit(whole.train, settings, label_names=NAMES)
    assert trained.training["held_out"] == 16
    return trained


def test_propensities_of_a_lone_file_are_those_of_the_rows_that_the_model_has_seen(whole, model):
    beside = evaluate_model(Tagger(model), whole, DEPTHS)
    alone = evaluate_model(Tagger(model), Dataset("lone", whole.test, label_names=NAMES), DEPTHS)
    assert alone == beside
    assert set(alone.values) == {f"{name}@{depth}" for name in ("P", "PSP", "nDCG") for depth in DEPTHS}
    weights = inverse_propensity(whole.train.Y)
    ids, _ = model.top_k(whole.test.texts, 3)
    assert alone.values == evaluate(whole.test.Y, ids, weights, DEPTHS, metrics=("P", "PSP", "nDCG"))
    # The order of the labels does not matter.
    order = np.array([3, 1, 0, 5, 4, 2])
    shuffled = Split(None, whole.test.Y[:, order], whole.test.texts)
    shuffled = Dataset("lone", shuffled, label_names=[NAMES[i] for i in order])
    assert evaluate_model(Tagger(model), shuffled, DEPTHS).values == pytest.approx(beside.values)


@pytest.mark.parametrize(
    "seen",
    [{"label_counts": None}, {"training": {"documents": 2, "held_out": 0}}],
    ids=["no counts", "too few"],
)
def test_without_counts_of_three_documents_there_are_no_propensities(seen, whole, model):
    changed = copy(model)
    for name, value in seen.items():
        setattr(changed, name, value)
    alone = evaluate_model(Tagger(changed), Dataset("lone", whole.test, label_names=NAMES), DEPTHS)
    assert set(alone.values) == {"P@1", "P@3", "nDCG@1", "nDCG@3"}
    assert "PSP@1" in evaluate_model(Tagger(changed), whole, DEPTHS).values


def test_data_that_does_not_go_with_the_model(shared, split):
    none = sp.csr_matrix((2, 6), dtype=np.float32)
    rows, fewer = (Split(split("sparse").X, split("sparse").Y[:, :n]) for n in (6, 4))
    texts, sparse, unnamed = shared("texts"), shared("sparse"), shared("sparse", names=False)
    for model, data, words in (
        (
            texts,
            lone(["label1"], [["mauve", "puce"]]),
            "found 2 labels, none of which the model knows; wanted data with labels like",
        ),
        (
            texts,
            Dataset("none", Split(None, none, ["a", "b"]), label_names=NAMES),
            "found no label in any of the 2 documents",
        ),
        (texts, Dataset("rows", rows, label_names=NAMES), "this model wants texts"),
        (sparse, Dataset("texts", split("texts"), label_names=NAMES), "this model wants feature rows"),
        (unnamed, Dataset("rows", fewer), "found 4 labels; wanted 6, as in the model"),
    ):
        with pytest.raises(DataError, match=words):
            evaluate_model(Tagger(model), data, [1])


def test_known_labels_keep_their_columns_and_others_follow(shared, split):
    data = lone(["a", "b"], [["puce", "red"], ["mauve", "日本"]])
    Y = in_label_space(shared("texts"), data, data.train.Y)
    assert Y.shape == (2, 8)
    assert [row.indices.tolist() for row in Y] == [[0, 7], [4, 6]]  # mauve is before puce in the file's order
    same = Dataset("same", split("texts"), label_names=list(NAMES))
    assert in_label_space(shared("texts"), same, same.train.Y) is same.train.Y


def test_rare_labels_are_favored(shared, split):
    data = Dataset("rare", split("sparse", 2), label_names=NAMES)
    model = shared("sparse")
    ids, _ = model.top_k(data.train.X, 3, favor_rare=1.0)
    found = evaluate_model(Tagger(model), data, DEPTHS, favor_rare=1.0).values
    plain = evaluate_model(Tagger(model), data, DEPTHS).values
    assert found["P@3"] == evaluate(data.train.Y, ids, k=[3], metrics=("P",))["P@3"]
    assert found != plain


def test_depths_beyond_the_labels_count_as_wrong(shared, split):
    data = Dataset("more", split("sparse", 2), label_names=NAMES)
    found = evaluate_model(Tagger(shared("sparse")), data, [6, 12]).values
    assert found["P@12"] == pytest.approx(found["P@6"] / 2)
