from __future__ import annotations

from datetime import date

import numpy as np
import pytest
import scipy.sparse as sp
from tests.estimator.conftest import LABELS

from circlet.errors import DataError
from circlet.estimator.targets import renamed


def test_representations_agree(indicator, learner):
    X, Y = indicator()
    dense = Y.toarray().astype(int)
    predictions = [
        learner(epochs=8).fit(X, y).predict(X)
        for y in (Y, sp.coo_array(Y), dense, dense.astype(bool), dense.tolist(), list(dense))
    ]
    for prediction in predictions:
        assert isinstance(prediction, sp.csr_matrix)
        assert prediction.dtype == np.float32
        assert (prediction != predictions[0]).nnz == 0
    assert predictions[0].shape == Y.shape


def test_labels_that_are_numbers(documents, learner):
    texts, labels = documents()
    numbers = [[10 * LABELS.index(label) for label in row] for row in labels]
    classifier = learner().fit(texts, numbers)
    assert classifier.classes_.tolist() == [0, 10, 20, 30, 40, 50]
    assert classifier.suggest("blue", k=1)[0].tolist() == [[20]]
    assert classifier.score(texts, numbers) == 1


def test_lists_of_zero_and_one_stay_labels_once_labels_are_named(learner):
    texts = ["a", "b", "a b", ""] * 5
    classifier = learner().fit(texts, [[0], [1], [0, 1], []] * 5)
    assert classifier.score(["a b"], [[0, 1]]) == 1  # by itself this could be an indicator of two columns
    assert classifier.classes_.tolist() == [0, 1]


def test_empty_lists_sets_and_repetitions(documents, learner):
    texts, labels = documents()
    odd = [{*row} if i % 2 else row * 2 for i, row in enumerate(labels)]
    classifier = learner().fit([*texts, "none"], [*odd, []])
    np.testing.assert_array_equal(
        classifier.decision_function(texts),
        learner().fit([*texts, "none"], [*labels, []]).decision_function(texts),
    )


@pytest.mark.parametrize("members", [1, 2])
def test_one_class_per_row(members, documents, learner):
    texts, labels = documents()
    first = [min(row) for row in labels]
    classifier = learner(epochs=40, members=members).fit(texts, first)
    assert classifier.predict(texts).shape == (len(texts),)
    shares = classifier.predict_proba(texts)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(classifier.classes_[shares.argmax(axis=1)], classifier.predict(texts))
    found, scores = classifier.suggest(texts, k=2)
    np.testing.assert_array_equal(found[:, 0], classifier.predict(texts))
    np.testing.assert_array_equal(scores[:, 0], shares.max(axis=1))
    accuracy = (classifier.predict(texts) == np.array(first)).mean()
    assert classifier.score(texts, first) == pytest.approx(accuracy)
    assert accuracy > 0.9
    assert classifier.score(texts, ["?"] * len(texts)) == 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([["a"]], "found 2 rows in X and 1 in y; wanted the same number"),
        ([[], []], "found no label in any row"),
        ([["a"], "b"], "y, row 2: found 'b'; wanted a list of labels"),
        ([["a"], [1]], "found the label 1 of type int; wanted labels that are all text"),
        ([[1.5], [2]], "found the label 1.5 of type float; wanted labels that are all text or all integers"),
        ([["a"], [["b"]]], "found a label that is a collection"),
        ([["a"], ["b\tc"]], "a label name with a tab"),
        (np.array([[0, 1], [2, 0]]), "y: found 2.0 at row 2, label 0; wanted 0 or 1"),
        (np.array([["a", "b"], ["c", "d"]]), "found a matrix that is not of numbers"),
        (np.eye(2, dtype=complex), r"not of numbers \(complex numbers\)"),
        (sp.eye(2, dtype=complex), "y: found values of type complex128; wanted real numbers"),
        (sp.csr_matrix((2, 2**31 - 1)), "y: found 2,147,483,647 columns; wanted at most 100,000,000 labels"),
        (sp.csr_matrix([[0.5], [1]]), "y: found 0.5 at row 1, label 0"),
        ([0.5, 1.5], "Unknown label type"),
    ],
)
def test_bad_targets(y, message, learner):
    with pytest.raises(DataError, match=message):
        learner().fit(["a", "b"], y)


def test_targets_of_another_kind(on_texts, on_rows, documents, indicator):
    texts, _ = documents()
    X, Y = indicator()
    with pytest.raises(DataError, match="kind indicator; this classifier was fitted on the kind named"):
        on_texts.score(texts, Y)
    with pytest.raises(DataError, match="found an indicator of 2 labels; this classifier knows 6"):
        on_rows.score(X, Y[:, :2])
    with pytest.raises(DataError, match="found the label 3; wanted labels like 'B'"):
        on_texts._targets.extended([[3]])


def test_large_numbers_are_exact(learner):
    """Labels are 64-bit integers with a sign; whoever has larger ones can give them as text."""
    largest = 2**63 - 1
    named = learner(epochs=1).fit(["a", "b"], [[largest], [largest - 1]])
    assert named.classes_.tolist() == [largest - 1, largest]
    single = learner(epochs=1).fit(["a", "b"], np.array([largest, largest - 1], dtype=np.uint64))
    assert single.classes_.tolist() == [largest - 1, largest]
    assert set(single.predict(["a", "b"]).tolist()) <= {largest, largest - 1}
    objects = learner(epochs=1).fit(["a", "b"], np.array([7, 2**62], dtype=object))
    assert objects.classes_.tolist() == [7, 2**62]


@pytest.mark.parametrize(
    ("y", "classes"), [(np.array([1, 2]), ["x"]), (["a", "b"], [1, 2]), ([["a"], ["b"]], [1, 2])]
)
def test_further_classes_of_another_type(learner, y, classes):
    with pytest.raises(DataError, match=r"classes: found .*; wanted labels like"):
        learner().partial_fit(["x", "y"], y, classes=classes)


def test_labels_that_are_collections(learner):
    classifier = learner(epochs=1).fit(["a", "b"], [["x"], ["y"]])
    with pytest.raises(DataError, match="found a label that is a collection"):
        classifier.score(["a"], [[{}]])
    with pytest.raises(DataError, match="found a label that is a collection"):
        classifier.suggest("a", allowed=[["x"]])


class TestClassesThatNoFolderCanHold:
    """What `save` could not write is refused by `fit`, before any training."""

    LARGE = "the label 9223372036854775808; wanted integers from"
    MIXED = "classes of the types int, str; wanted classes of one type"

    @pytest.mark.parametrize(
        ("y", "found"),
        [
            (["a\ud800", "b"], "half of a surrogate pair; wanted text"),
            ([["a\udfff"], ["b"]], "half of a surrogate pair; wanted text"),
            ([["a\nb"], ["b"]], "with a tab, line end or zero character"),
            (["a\r", "b"], "with a tab, line end or zero character"),
            (
                [date(2020, 1, 1), date(2020, 1, 2)],
                r"the class datetime.date\(2020, 1, 1\) of type date; wanted text",
            ),
            (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), r"classes of type datetime64\[D\]; wanted text"),
            ([b"a", b"b"], "the class b'a' of type bytes; wanted text"),
            (np.array([b"a", b"b"]), r"classes of type \|S1; wanted text or numbers"),
            ([2**63, 1], LARGE),
            ([[2**63], [1]], f"{LARGE} .*, or the labels as"),
            ([[-(2**63) - 1], [1]], "the label -9223372036854775809"),
            (np.array([2**63, 1], dtype=np.uint64), LARGE),
            ([*np.array([2**63, 1], dtype=np.uint64)], LARGE),
            (np.array(["a", None], object), "classes of the types NoneType, str; wanted classes of one type"),
            (np.array(["a", 2.5], object), "classes of the types float, str; wanted classes of one type"),
            (np.array([-(2**63) - 1, 1], object), "the label -9223372036854775809; wanted integers from"),
            (["1", 1], MIXED),
            (np.array(["1", 1], object), MIXED),
            (["", "b"], "an empty label name"),
            (np.zeros((2, 0)), "an indicator without columns"),
        ],
    )
    def test_refused(self, learner, y, found):
        with pytest.raises(DataError, match=rf"found .*{found}") as refused:
            learner().fit(["a", "b"], y)
        assert "\n" not in str(refused.value)


def test_label_lists_in_other_words():
    names = {"u:1": "one"}
    assert renamed([["u:1", "two"], [], {"u:1"}], names) == [["one", "two"], [], ["one"]]
    assert renamed(np.array([["u:1"], [2]], dtype=object)[:, 0], names).tolist() == ["u:1", 2]
    indicator = sp.csr_matrix(np.eye(2))
    assert renamed(indicator, names) is indicator
    with pytest.raises(DataError, match="y, row 2: found 'u:1'; wanted a list of labels"):
        renamed([["u:1"], "u:1"], names)
