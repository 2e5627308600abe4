"""What taggers say about their answers, with torch and without: the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import spearmanr
from torch import nn

import circlet
from circlet import CircletClassifier
from circlet.errors import DataError, ParameterError

TOPICS = {"animal": "fox wolf bear", "vehicle": "car tram lorry", "food": "bread soup rice"}


def topics() -> tuple[list[str], list[list[str]]]:
    texts, labels = [], []
    for i in range(60):
        chosen = sorted({list(TOPICS)[i % 3], list(TOPICS)[i // 3 % 3]})
        texts.append("the " + " and ".join(TOPICS[name].split()[(i + j) % 3] for name in chosen for j in range(2)))
        labels.append(chosen)
    return texts, labels


@pytest.fixture(scope="module")
def fitted() -> CircletClassifier:
    sizes = {"dim": 64, "hidden": (32,), "epochs": 40, "lr": 0.01, "validation": 0, "char_ngrams": None}
    return CircletClassifier(**sizes, keep_index=True, random_state=0).fit(*topics())


@pytest.fixture(scope="module")
def tagger(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explaining") / "m"
    fitted.save(folder)
    return circlet.load(folder)


def test_words_of_a_label_speak_for_it(fitted):
    (found,) = fitted.explain("The Wolf in the car", labels=["animal", "vehicle"])
    for each, word in zip(found, ("wolf", "car"), strict=True):
        by_value = {one.term: one.value for one in each.contributions}
        assert max(by_value, key=by_value.get) == word
        assert by_value[word] > 0 > by_value["car" if word == "wolf" else "wolf"]
        strongest = max(each.spans(), key=lambda span: span[2])
        assert "The Wolf in the car"[strongest[0] : strongest[1]].lower() == word


def test_leaving_words_out_agrees(fitted):
    """Occlusion: the more a word adds, the more its absence costs; where either matters, signs agree."""
    agreeing, orders = [], []
    for text in topics()[0][::6]:
        for each in fitted.explain(text, labels=["animal", "food"])[0]:
            values = {one.term: one.value for one in each.contributions}
            label = fitted.classes_.tolist().index(each.label)
            words = sorted(values)
            without = [" ".join(word for word in text.split() if word != left) for left in words]
            lost = each.score - fitted.decision_function(without)[:, label]
            added = np.array([values[word] for word in words])
            orders.append(spearmanr(lost, added).statistic)
            clear = (np.abs(lost) > 0.5) & (np.abs(added) > 0.5)
            agreeing += (np.sign(lost) == np.sign(added))[clear].tolist()
    assert len(agreeing) > 40
    assert np.mean(agreeing) > 0.9
    assert np.mean(orders) > 0.7


def test_the_best_labels_and_their_probabilities(fitted):
    texts = ["fox and car", "rice", ""]
    found = fitted.explain(texts, k=2)
    names, chances = fitted.suggest(texts, k=2)
    assert [[each.label for each in document] for document in found] == names.tolist()
    np.testing.assert_allclose([[each.probability for each in document] for document in found], chances, atol=1e-5)
    assert found[2][0].contributions == []
    assert found[2][0].score == pytest.approx(found[2][0].base)
    assert fitted.explain([], k=2) == []


def test_with_torch_and_without(fitted, tagger):
    texts = ["The fox, the CAR", "soup"]
    assert fitted.explain(texts, k=3) == tagger.explain(texts, k=3)
    for method, argument in (("similar", texts), ("near_labels", "animal")):
        for one, other in zip(getattr(fitted, method)(argument), getattr(tagger, method)(argument), strict=True):
            np.testing.assert_array_equal(one, other)
    assert fitted.has_index
    assert tagger.has_index


def test_similar_documents(fitted):
    texts, labels = topics()
    ids, similarities = fitted.similar(texts[:5], k=4)
    assert ids.shape == similarities.shape == (5, 4)
    assert (np.diff(similarities, axis=1) <= 0).all()
    np.testing.assert_allclose(similarities[:, 0], 1, atol=0.01)
    for row in range(5):
        assert all(labels[found] == labels[row] for found in ids[row])
    assert fitted.similar("soup", k=1000)[0].shape == (1, 60)
    assert fitted.similar([], k=3)[0].shape == (0, 3)


def test_near_labels(fitted):
    names, similarities = fitted.near_labels("food", k=99)
    assert sorted(names.tolist()) == ["animal", "vehicle"]
    assert (np.abs(similarities) <= 1).all()
    assert len(fitted.near_labels("food", k=1)[0]) == 1


def test_further_documents_are_added_to_the_index(fitted, tmp_path):
    fitted.save(tmp_path)
    more = CircletClassifier.load(tmp_path)
    more.partial_fit(["tram tram lorry", "wolf bear"], [["vehicle"], ["animal"]])
    assert len(more.model_.index) == 62
    assert 60 in more.similar("tram tram lorry", k=30)[0]


def test_one_class_each(some):
    rows, classes = some("sparse", 60, 1), np.array(["a", "b", "c"])[np.arange(60) % 3]
    clf = CircletClassifier(dim=16, hidden=(8,), epochs=2, validation=0).fit(rows, classes)
    (found,) = clf.explain(rows[:1], k=3)
    chances = clf.predict_proba(rows[:1])[0]
    assert [each.label for each in found] == clf.classes_[np.argsort(-chances)].tolist()
    np.testing.assert_allclose([each.probability for each in found], np.sort(chances)[::-1], atol=1e-6)


def test_columns_of_a_data_frame_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.eye(30, 3), columns=["width", "height", "depth"])
    clf = CircletClassifier(dim=16, hidden=(8,), epochs=2, validation=0).fit(frame, np.arange(30) % 2)
    assert {each.term for each in clf.explain(frame[:1])[0][0].contributions} <= {"width", "height", "depth"}


class TestMistakes:
    def test_odd_arguments(self, fitted, tagger):
        for each in (fitted, tagger):
            for call in (partial(each.explain, "fox", labels=["cat"]), partial(each.near_labels, "cat")):
                with pytest.raises(ParameterError, match="found the label 'cat', which is none of the 3 labels"):
                    call()
        with pytest.raises(ParameterError, match="`labels`: found 'animal'; wanted a collection of labels"):
            tagger.explain("fox", labels="animal")
        for call in (tagger.explain, tagger.similar):
            with pytest.raises(ParameterError, match="`k`: found 0; wanted an integer >= 1"):
                call("fox", k=0)
        with pytest.raises(DataError, match="found feature rows"):
            tagger.explain(sp.csr_matrix((1, 3)))

    def test_no_index(self, tmp_path, made):
        made().save(tmp_path)
        tagger = circlet.load(tmp_path)
        assert not tagger.has_index
        with pytest.raises(DataError, match=r"without an index .*; wanted one trained with --keep-index"):
            tagger.similar(np.ones((1, 30)))

    def test_an_encoder_of_its_own(self):
        encoder = nn.Linear(4, 8)
        rows, labels = np.eye(4, dtype=np.float32).repeat(3, axis=0), np.eye(4)[:, :2].repeat(3, axis=0)
        clf = CircletClassifier(dim=8, hidden=(8,), epochs=1, validation=0, encoder=encoder).fit(rows, labels)
        with pytest.raises(ParameterError, match="found an encoder that only torch can run"):
            clf.explain(rows[:1])
        wanted = "`keep_index`: found True; wanted False with an encoder that only torch can run"
        with pytest.raises(ParameterError, match=wanted):
            clf.set_params(keep_index=True).fit(rows, labels)
        with pytest.raises(ParameterError, match="`keep_index`: found 'yes'; wanted True or False"):
            CircletClassifier(keep_index="yes").fit(rows, labels)
