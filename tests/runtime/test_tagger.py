"""A tagger decides what is answered, and does what the classifier does that saved it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from torch import nn

import circlet
from circlet import CircletClassifier, files
from circlet.errors import DataError, ParameterError
from circlet.runtime import Tagger, Threshold, load
from circlet.runtime.answers import Suggestion
from circlet.runtime.tagger import mask_of

TEXTS = ["a red apple", "a green apple", "a red car", "a green car"] * 5
TAGS = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5
ROWS = np.array([[1.0, 0, 2], [0, 1, 1], [1, 1, 0], [0, 0, 3]] * 5)
Y = (ROWS > 0).astype(int)
NUMBERED = [[len(tag) for tag in row] for row in TAGS]


def learner(**parameters) -> CircletClassifier:
    small = {"dim": 16, "hidden": (8,), "epochs": 2, "validation": 0, "device": "cpu"}
    return CircletClassifier(**{**small, **parameters})


#: What was fitted, and documents that it takes.
FITTED = {
    "label lists": lambda: (learner(threshold=0.3).fit(TEXTS, TAGS), TEXTS[:5]),
    "the best two": lambda: (learner(top_k=2).fit(TEXTS, TAGS), TEXTS[:5]),
    "labels that are numbers": lambda: (learner().fit(TEXTS, NUMBERED), TEXTS[:5]),
    "an indicator": lambda: (learner().fit(sp.csr_matrix(ROWS), Y), sp.csr_matrix(ROWS[:5])),
    "dense rows": lambda: (learner().fit(ROWS, Y), ROWS[:5]),
    "one class": lambda: (learner().fit(TEXTS, [row[0] for row in TAGS]), TEXTS[:5]),
    "one of two classes": lambda: (learner().fit(ROWS, [len(row) for row in TAGS]), ROWS[:5]),
    "several networks": lambda: (learner(members=2).fit(TEXTS, TAGS), TEXTS[:5]),
}


@pytest.fixture(scope="module", params=FITTED)
def fitted(request, tmp_path_factory):
    classifier, documents = FITTED[request.param]()
    folder = tmp_path_factory.mktemp("tagger")
    classifier.save(folder)
    return classifier, load(folder), documents


def test_everything_that_the_classifier_does(fitted):
    classifier, tagger, documents = fitted
    assert isinstance(tagger, Tagger)
    assert tagger.classes_.dtype == classifier.classes_.dtype
    assert tagger.classes_.tolist() == classifier.classes_.tolist()
    for method in ("decision_function", "predict_proba"):
        expected, found = (getattr(each, method)(documents) for each in (classifier, tagger))
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, atol=1e-5)
    expected, found = classifier.predict(documents), tagger.predict(documents)
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert (found != expected).sum() == 0


@pytest.mark.parametrize(
    "options", [{}, {"k": 1}, {"k": 99}, {"threshold": 0.4}, {"favor_rare": 0.8}, {"memory": 1, "k": 2}]
)
def test_suggestions(options, fitted):
    classifier, tagger, documents = fitted
    for some in (documents, documents[0]):
        (labels, scores), (found, close) = (each.suggest(some, **options) for each in (classifier, tagger))
        assert found.dtype == labels.dtype
        np.testing.assert_array_equal(found, labels)
        np.testing.assert_allclose(close, scores, atol=1e-5)
    allowed = classifier.classes_[:1].tolist()
    labels, _ = tagger.suggest(documents, k=2, allowed=allowed)
    assert labels.tolist() == [[*allowed, None]] * 5


def test_uris(tmp_path):
    classifier = learner()
    with pytest.raises(NotFittedError):
        _ = classifier.uris_
    classifier.fit(TEXTS, TAGS)
    assert classifier.uris_ is None
    uris = [f"http://example.org/{name}" for name in classifier.classes_]
    classifier.model_.label_uris = [*uris]  # as `circlet train --names` does
    classifier.save(tmp_path)
    assert load(tmp_path).uris_ == CircletClassifier.load(tmp_path).uris_ == uris
    names = classifier.classes_.tolist()
    # A new label is its own URI, and a known one may be called by either of its names.
    grown = classifier.partial_fit(["a red boat"], [["boat", uris[0]]], classes=[uris[1], "ship"])
    assert grown.classes_.tolist() == [*names, "boat", "ship"]
    assert grown.uris_ == [*uris, "boat", "ship"]


def refused(predict, documents) -> bool:
    try:
        predict(documents)
    except DataError:
        return True
    return False


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], ["a"], "a", iter(["a"]), [3.0], [["a", "b", "c"]], {"a": 1}])
def test_the_same_is_refused(wrong, fitted):
    classifier, tagger, _ = fitted
    assert refused(tagger.predict, wrong) == refused(classifier.predict, wrong)


def test_a_folder_that_the_command_wrote(tmp_path, made, some):
    for named in (True, False):
        model = made(named=named)
        model.save(tmp_path)
        tagger = load(str(tmp_path))
        documents = some("sparse", 3, 1)
        ids, scores = model.top_k(documents, 4)
        labels, chances = tagger.suggest(documents, k=4)
        assert labels.tolist() == ([[f"label {i}" for i in row] for row in ids] if named else ids.tolist())
        np.testing.assert_allclose(chances, model.probabilities(scores), atol=1e-5)


def test_columns_of_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["a", "b", "c"])
    learner().fit(frame, Y).save(tmp_path)
    tagger = circlet.load(tmp_path)
    assert tagger.suggest(frame[:2])[0].shape == (2, 3)
    with pytest.raises(DataError, match="a data frame with other columns"):
        tagger.suggest(frame[["b", "a", "c"]])


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        learner().fit(TEXTS, TAGS).save(tmp_path)
        return tmp_path

    @pytest.mark.parametrize(
        "change",
        [{"format": 2}, {"target": "tree"}, {"weights_sha256": "0"}, {"classes": None}, {"parameters": 3},
         {"parameters": {"threshold": 7}}, {"parameters": {"top_k": 0}}, {"more": 1}],
    )  # fmt: skip
    def test_of_the_description(self, change, folder, change_config):
        path = folder / "estimator.json"
        files.write_json(path, {**json.loads(path.read_text()), **change})
        change_config(folder)
        with pytest.raises(DataError, match=r"estimator\.json: "):
            load(folder)

    def test_parameters_of_a_newer_version_do_not_matter(self, folder, change_config):
        path = folder / "estimator.json"
        state = json.loads(path.read_text())
        files.write_json(path, {**state, "parameters": {**state["parameters"], "new": 1}})
        change_config(folder)
        assert load(folder).threshold == "auto"

    def test_a_custom_encoder(self, tmp_path):
        learner(encoder=nn.Linear(3, 8)).fit(ROWS, Y).save(tmp_path)
        with pytest.raises(DataError, match=r"only torch can run; load it with .*CircletClassifier\.load"):
            load(tmp_path)


def test_neither_torch_nor_scikit_learn_is_imported(tmp_path, made):
    made("texts", members=2, text={"char_ngrams": (2, 3)}, named=True).save(tmp_path / "texts", "int8")
    made("dense", head="hrr").save(tmp_path / "dense", "bf16")
    code = (
        "import sys, numpy as np, circlet; folder = sys.argv[1]\n"
        "texts = circlet.load(folder + '/texts')\n"
        "texts.suggest(['fox quze', 'müra'], allowed=['label 3', 'label 1'], threshold=0.1, favor_rare=0.5)\n"
        "texts.predict(['fox']); texts.predict_proba(['fox'])\n"
        "circlet.load(folder + '/dense').suggest(np.zeros((3, 30)))\n"
        "heavy = {'torch', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


# Decisions, with scores that are given

SCORES = np.array([[2.0, -1.0, 0.0], [-3.0, 1.0, 0.5]], dtype=np.float32)


def fixed(scores: Any = SCORES, *, stored: float | None = None, calibration=(1.0, 0.0), **options: Any) -> Tagger:
    """A tagger for which all documents have these scores."""
    scores = np.asarray(scores, dtype=np.float32)

    def top_k(documents, k, *, memory=None, allowed=None, threshold=None, favor_rare=0.0):
        left = np.where(True if allowed is None else allowed, scores, -np.inf).astype(np.float32)
        ids = np.argsort(-left, axis=1)[:, :k]
        values = np.take_along_axis(left, ids, axis=1)
        return np.where(np.isinf(values), -1, ids), values

    slope, intercept = calibration
    model = SimpleNamespace(
        vectorizer=None,
        calibration=calibration,
        threshold=stored,
        label_uris=None,
        n_features=4,
        gain=lambda favor: SimpleNamespace(weights=np.array([1.0, 1.0, 9.0])) if favor else None,
        top_k=top_k,
        score_blocks=lambda documents: iter([scores[:1], scores[1:]] if len(scores) > 1 else [scores]),
        probabilities=lambda x: (1 / (1 + np.exp(-slope * np.asarray(x) - intercept))).astype(np.float32),
        least_score=lambda p: np.log(p / (1 - p)) if 0 < p < 1 else None,
    )
    classes = np.array(["a", "b", "c"][: scores.shape[1]], dtype=object)
    return Tagger(model, options.pop("classes", classes), **{"threshold": 0.5, **options})


MANY = np.zeros((2, 4))


def test_suggest():
    labels, chances = fixed().suggest(MANY, k=2)
    assert labels.tolist() == [["a", "c"], ["b", "c"]]
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-np.array([[2, 0], [1, 0.5]]))), rtol=1e-6)
    labels, chances = fixed().suggest(MANY, k=3, allowed=["b", "c"], threshold=0.3)
    assert labels.tolist() == [["c", None, None], ["b", "c", None]]
    assert (chances[:, 2] == 0).all()
    assert chances[0, 1] == 0


@pytest.mark.parametrize(("stored", "least"), [(0.7, 0.7), (None, 0.0)])
def test_suggestions_that_reach_the_stored_threshold(stored, least):
    labels, chances = fixed(stored=stored).suggest(MANY, k=3, threshold="auto")
    expected = fixed().suggest(MANY, k=3, threshold=least)
    assert labels.dtype == object
    assert labels.tolist() == expected[0].tolist()
    assert chances.tolist() == expected[1].tolist()
    assert (None in labels[0].tolist()) == (stored is not None)


def test_names_of_labels():
    assert fixed().predict_labels(MANY) == [["a", "c"], ["b", "c"]]  # the best first
    assert fixed(threshold=0.7).predict_labels(MANY) == [["a"], ["b"]]
    assert fixed(threshold=1).predict_labels(MANY) == [[], []]
    assert fixed(top_k=2).predict_labels(MANY) == [["a", "c"], ["b", "c"]]
    assert fixed(single=True).predict_labels(MANY) == [["a"], ["b"]]


def test_inverse_transform():
    tagger = fixed()
    marked = tagger.predict(MANY)
    before = marked.copy()
    assert tagger.inverse_transform(marked) == [["a", "c"], ["b", "c"]]
    assert (marked != before).nnz == 0
    assert tagger.inverse_transform(np.array([[0, 0, 0], [0, 1, 1]])) == [[], ["b", "c"]]
    assert tagger.inverse_transform(np.zeros((0, 3))) == []
    with pytest.raises(DataError, match="found an indicator of 2 labels; wanted 3"):
        tagger.inverse_transform(np.zeros((1, 2)))


def test_predict():
    assert fixed().predict(MANY).toarray().tolist() == [[1, 0, 1], [0, 1, 1]]
    assert fixed(threshold=0.7).predict(MANY).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert fixed(threshold="auto", stored=0.7).predict(MANY).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert fixed(threshold="auto").predict(MANY).toarray().tolist() == [[1, 0, 1], [0, 1, 1]]
    assert fixed(top_k=1).predict(MANY).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(fixed().decision_function(MANY), SCORES)
    np.testing.assert_allclose(fixed().predict_proba(MANY), 1 / (1 + np.exp(-SCORES)), rtol=1e-6)


def test_mistakes():
    for call, error, words in (
        (lambda: fixed().suggest(MANY, k=0), ParameterError, "`k`: found 0; wanted an integer >= 1"),
        (lambda: fixed(top_k=0).predict(MANY), ParameterError, "`top_k`: found 0; wanted None or an integer >= 1"),
        (lambda: fixed().suggest(["a text"]), DataError, "found texts; .* wants rows"),
    ):
        with pytest.raises(error, match=words):
            call()


class TestThreshold:
    """Rankings are cut only by a threshold that is stored or asked for; sets of labels always."""

    def test_of_rankings(self):
        for stored in (None, 0.7):
            tagger = fixed(stored=stored)
            assert tagger.ranking_threshold() == (Threshold(stored, "stored") if stored else (None, "none"))
            assert tagger.ranking_threshold(0.2) == Threshold(0.2, "asked")
            assert tagger.ranking_threshold(0) == Threshold(0.0, "asked")
            assert tagger.ranking_threshold(None) == Threshold(None, "none")
            # It was chosen for labels in the order of their probability.
            assert tagger.ranking_threshold(favor_rare=0.5) == Threshold(None, "none")
            assert tagger.ranking_threshold(0.2, favor_rare=0.5) == Threshold(0.2, "asked")

    def test_of_sets(self):
        assert fixed(threshold="auto").labels_threshold() == Threshold(0.5, "default")
        assert fixed(threshold="auto", stored=0.7).labels_threshold() == Threshold(0.7, "stored")
        assert fixed(threshold=0.3, stored=0.7).labels_threshold() == Threshold(0.3, "asked")
        assert fixed(threshold=0.3, stored=0.7).labels_threshold(0.1) == Threshold(0.1, "asked")

    @pytest.mark.parametrize("threshold", [-0.1, 1.1, "half", True, math.nan])
    def test_mistakes(self, threshold):
        with pytest.raises(ParameterError, match=r"`threshold`: found .*; wanted a number from 0 to 1"):
            fixed(threshold=threshold).predict(MANY)
        wanted = r'`threshold`: found .*; wanted "auto" or a number from 0 to 1'
        for method in (fixed().answers, fixed().suggest):
            with pytest.raises(ParameterError, match=wanted):
                method(MANY, threshold=threshold)

    def test_the_score_at_the_threshold(self):
        # σ(2 s − 1) = 0.8 where 2 s − 1 = log(0.8 / 0.2).
        least = (math.log(4) + 1) / 2
        near = fixed([[least - 1e-3, least + 1e-3]], threshold=0.8, calibration=(2.0, -1.0))
        assert near.predict(MANY[:1]).toarray().tolist() == [[0, 1]]
        ends = [[-np.finfo(np.float32).max, np.finfo(np.float32).max]]
        assert fixed(ends, threshold=1, calibration=(2.0, 1.0)).predict(MANY[:1]).nnz == 0
        for calibration in ((2.0, 1.0), (1e-300, 1.0)):  # the latter is beyond single precision
            assert fixed(ends, threshold=0, calibration=calibration).predict(MANY[:1]).nnz == 2


class TestAnswers:
    def test_by_hand(self):
        a, c = Suggestion("a", 0.880797), Suggestion("c", 0.5)  # σ(2) = 0.8807970779
        assert fixed(stored=0.4).answers(MANY, k=3)[0] == [a, c]
        assert fixed(stored=0.4).answers(MANY, k=1)[0] == [a]
        assert fixed().answers(MANY, k=3)[0] == [a, c, Suggestion("b", 0.268941)]
        assert fixed(stored=0.4).answers(MANY, k=3, threshold=0.6)[0] == [a]
        assert fixed().answers(MANY, k=3, allowed=["b"])[0] == [Suggestion("b", 0.268941)]
        assert fixed(stored=0.4).answers(MANY, k=3, threshold=None)[0][2].label == "b"

    def test_six_significant_digits(self):
        scores = fixed([[-20.0, -5.0, 0.7]]).answers(MANY[:1], k=3)[0]
        assert [each.score for each in scores] == [0.668188, 0.00669285, 2.06115e-09]

    def test_what_labels_are_called(self):
        for classes, named, expected in (
            (np.array([7, 3, 5]), False, [7, 5]),
            (np.array([0.5, 1.5, 2.5]), True, ["0.5", "2.5"]),
            (np.array(["x", "y", "z"]), True, ["x", "z"]),
        ):
            tagger = fixed(classes=classes)
            assert tagger.named == named
            found = [each.label for each in tagger.answers(MANY, k=2)[0]]
            assert found == expected
            assert [type(label) for label in found] == [type(label) for label in expected]

    def test_uris(self):
        tagger = fixed()
        tagger.model_.label_uris = ["u:a", "u:b", "u:c"]
        best = Suggestion("a", 0.880797, "u:a"), Suggestion("b", 0.731059, "u:b")
        assert tagger.answers(MANY, k=1) == [[each] for each in best]


class TestOneOfSeveralClasses:
    # The odds of each class by itself are e^(2 s): 2, 5 and 3; then 4, 2 and 4.
    SCORES = np.log([[2, 5, 3], [4, 2, 4]]) / 2

    def suggest(self, **options):
        labels, chances = fixed(self.SCORES, calibration=(2.0, 0.0), single=True).suggest(MANY, **options)
        return labels.tolist(), chances

    def test_probabilities_are_in_proportion_to_the_odds(self):
        labels, chances = self.suggest(k=2)
        assert labels == [["b", "c"], ["a", "c"]]  # the first of equals comes first
        np.testing.assert_allclose(chances, [[0.5, 0.3], [0.4, 0.4]], rtol=1e-6)
        assert self.suggest(k=9)[1].shape == (2, 3)
        assert fixed(self.SCORES, single=True).predict(MANY).tolist() == ["b", "a"]

    def test_large_scores_do_not_overflow(self):
        found = fixed([[1e4, -1e4, 1e4]], calibration=(3.0, 0.0), single=True).predict_proba(MANY[:1])
        np.testing.assert_allclose(found, [[0.5, 0, 0.5]])
        assert found.dtype == np.float32

    def test_only_some_are_allowed_or_above_a_threshold(self):
        for options, wanted, expected in (
            ({"allowed": ["c"]}, [["c", None], ["c", None]], [[0.3, 0], [0.4, 0]]),
            ({"threshold": 0.35}, [["b", None], ["a", "c"]], [[0.5, 0], [0.4, 0.4]]),
        ):
            labels, chances = self.suggest(k=2, **options)
            assert labels == wanted
            np.testing.assert_allclose(chances, expected, rtol=1e-6)

    def test_rare_ones_are_favored(self):
        labels, chances = self.suggest(k=2, favor_rare=1)  # 9 times the probability of c
        assert labels == [["c", "b"], ["c", "a"]]
        np.testing.assert_allclose(chances, [[0.3, 0.5], [0.4, 0.4]], rtol=1e-6)
        assert self.suggest(k=2, favor_rare=1, allowed=["a", "c"], threshold=0.25)[0] == [["c", None], ["c", "a"]]


class TestMask:
    CLASSES = np.array([7, 3, 5])

    def test_some(self):
        for labels in ([3], (3,), {3}, np.array([3]), {3: "x"}.keys()):
            assert mask_of(labels, self.CLASSES).tolist() == [False, True, False]
        assert not mask_of([], self.CLASSES).any()

    def test_mistakes(self):
        for labels, error, words in (
            ("37", ParameterError, "`allowed`: found '37'; wanted a collection of labels"),
            (3, ParameterError, "`allowed`: found 3; wanted a collection of labels"),
            ([3, 4], ParameterError, "`allowed` has 4, which is none of the 3 labels"),
            ([[3]], DataError, "found a label that is a collection"),
        ):
            with pytest.raises(error, match=words):
                mask_of(labels, self.CLASSES)
