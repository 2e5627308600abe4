"""A tagger does what the classifier does that saved it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from torch import nn

import circlet
from circlet import CircletClassifier, files
from circlet.errors import DataError, ParameterError
from circlet.runtime import Tagger, load

pytestmark = pytest.mark.usefixtures("one_thread")

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
    "labels that are numbers": lambda: (
        learner().fit(TEXTS, NUMBERED),
        TEXTS[:5],
    ),
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


def test_circlet_load(tmp_path, made):
    made("texts").save(tmp_path)
    assert isinstance(circlet.load(tmp_path), Tagger)


def test_columns_of_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["a", "b", "c"])
    learner().fit(frame, Y).save(tmp_path)
    tagger = load(tmp_path)
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

    def test_no_model(self, tmp_path):
        with pytest.raises(DataError, match="is not a circlet model"):
            load(tmp_path / "nowhere")

    def test_a_custom_encoder(self, tmp_path):
        learner(encoder=nn.Linear(3, 8)).fit(ROWS, Y).save(tmp_path)
        with pytest.raises(DataError, match=r"only torch can run; load it with .*CircletClassifier\.load"):
            load(tmp_path)

    def test_mistakes(self, folder):
        with pytest.raises(ParameterError, match="`allowed` has 'blue', which is none of the 3 labels"):
            load(folder).suggest("a", allowed=["blue"])


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
