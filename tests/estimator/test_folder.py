from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from tests.estimator.conftest import LABELS, WORDS

from circlet import CircletClassifier
from circlet.data.dataset import Split
from circlet.errors import DataError
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.storage.layout import read_config


def test_saved_and_loaded_is_the_same(tmp_path, documents, learner):
    texts, labels = documents()
    classifier = learner(validation=0.2, char_ngrams=(2, 3), threshold=0.3).fit(texts, labels)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.get_params() == classifier.get_params()
    assert loaded.history_ == classifier.history_
    for before, after in zip(classifier.suggest(texts), loaded.suggest(texts), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(loaded.predict_proba(texts), classifier.predict_proba(texts))
    assert (loaded.predict(texts) != classifier.predict(texts)).nnz == 0
    assert Model.load(tmp_path).label_names == sorted(LABELS)
    classifier.save(tmp_path, store="int8")
    assert read_config(tmp_path)["store"] == "int8"
    assert (CircletClassifier.load(tmp_path).predict(texts) != classifier.predict(texts)).nnz == 0


def test_grown_and_saved(tmp_path, documents, learner):
    texts, labels = documents()
    classifier = learner().fit(texts, labels).partial_fit(["tall"] * 4, [["t"]] * 4)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path, device="cpu").partial_fit(texts, [[*row, "u"] for row in labels])
    classifier.partial_fit(texts, [[*row, "u"] for row in labels])
    np.testing.assert_array_equal(loaded.decision_function(texts), classifier.decision_function(texts))
    assert loaded.classes_.tolist() == classifier.classes_.tolist()


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 1, 7]),
        np.array([0.0, 1.0, 2.0]),
        np.array([False, True, True]),
        np.array(["no", "yes", "maybe"]),
        np.array(["x", "y", "z"], dtype=object),
    ],
)
def test_classes_are_saved_with_their_type(tmp_path, classes, indicator, learner):
    X, _ = indicator()
    y = classes[np.arange(X.shape[0]) % 3]
    classifier = learner(epochs=2, random_state=np.random.RandomState(0)).fit(X, y)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.classes_.dtype.kind == classifier.classes_.dtype.kind
    assert loaded.random_state == classifier.model_.network.settings.seed
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_the_command_wrote(tmp_path, named, indicator):
    X, Y = indicator()
    settings = NetworkSettings(dim=20, hidden=(24, 16), loss="cosine", seed=4)
    run = RunSettings(settings, TrainingSettings(epochs=2, lr=0.01), scaling="sqrt", members=1 + named)
    model = fit(Split(X, Y), run, label_names=LABELS if named else None)
    model.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert (loaded.dim, loaded.hidden, loaded.loss, loaded.epochs, loaded.lr) == (20, (24, 16), "cosine", 2, 0.01)
    assert (loaded.scaling, loaded.random_state, loaded.n_features_in_) == ("sqrt", 4, len(WORDS))
    assert loaded.members == 1 + named
    assert loaded.classes_.tolist() == (LABELS if named else list(range(6)))
    view = model.as_runtime()  # which is what answers on a CPU
    np.testing.assert_array_equal(loaded.suggest(X, k=6)[1], view.probabilities(view.top_k(X, 6)[1]))
    clone(loaded).fit(X, Y)


def test_a_text_model_that_the_command_wrote(tmp_path, documents, learner):
    texts, labels = documents()
    classifier = learner(char_ngrams=(2, 3), min_df=2, max_features=50).fit(texts, labels)
    classifier.model_.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert (loaded.char_ngrams, loaded.min_df, loaded.max_features) == ((2, 3), 2, 50)
    np.testing.assert_array_equal(loaded.decision_function(texts), classifier.decision_function(texts))


def damaged(**changes):
    """Write other values into estimator.json; those of parameters beside those that it has."""

    def damage(folder):
        path = folder / "estimator.json"
        state = json.loads(path.read_text())
        if isinstance(changes.get("parameters"), dict):
            changes["parameters"] = {**state["parameters"], **changes["parameters"]}
        path.write_text(json.dumps({**state, **changes}))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "estimator.json").write_text("{"), "estimator.json: found no readable JSON"),
        (lambda folder: (folder / "config.json").unlink(), "is not a circlet model"),
        (lambda folder: (folder / "weights.safetensors").write_bytes(b""), "the model is damaged"),
        (lambda folder: (folder / "estimator.json").write_text("[{}]"), "found no description of a classifier"),
        (damaged(format=3), "found format 3; circlet .* reads format 1"),
        (damaged(more=1), "found the keys .*; wanted"),
        (damaged(parameters={"dims": 4}), r"found the parameters \['activation', .*'dims'"),
        (damaged(parameters=4), "found the parameters 4; wanted"),
        (damaged(target="odd"), "found the target 'odd'; wanted one of indicator"),
        (
            damaged(parameters={"device": None}),
            r"`device`: found None; wanted auto, .*; to use another one, load\(folder, device=...\)",
        ),
        (damaged(classes=None), "found damaged classes"),
        (damaged(classes={"dtype": "int64", "values": [1, 2]}), "found 2 different"),
        (damaged(classes={"dtype": "int64", "values": [1] * 6}), "found 1 different"),
        (damaged(classes={"dtype": "M8", "values": []}), "wanted 6 labels"),
        (damaged(classes={"dtype": "U999999999", "values": []}), "damaged classes"),
        (damaged(feature_names=["a"]), "found 1 feature names; wanted 6"),
        (damaged(feature_names=[1]), "wanted a list of text"),
        (
            damaged(parameters={"threshold": 3}),
            "estimator.json: `threshold`: found 3; wanted a number from 0 to 1",
        ),
        (damaged(parameters={"hidden": 3}), "estimator.json: "),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, damage, message, on_texts, change_config):
    on_texts.save(tmp_path)
    damage(tmp_path)
    if (tmp_path / "weights.safetensors").stat().st_size and (tmp_path / "config.json").exists():
        change_config(tmp_path)  # someone has described the new files too
    with pytest.raises(DataError, match=message):
        CircletClassifier.load(tmp_path)


def test_training_over_a_saved_folder_leaves_nothing_of_it(tmp_path, indicator):
    texts, labels = ["red fox", "fast car"] * 8, [["animal"], ["vehicle"]] * 8
    small = {"dim": 16, "hidden": (8,), "epochs": 1, "validation": 0.0, "device": "cpu"}
    CircletClassifier(**small).fit(texts, labels).save(tmp_path)
    rows, indicator = np.eye(4, dtype=np.float32).repeat(4, axis=0), np.eye(2)[[0, 1] * 8]
    CircletClassifier(**small).fit(rows, indicator).model_.save(tmp_path)
    names = ["MODEL_CARD.md", "config.json", "history-2.json"]
    names += [f"{name}-2.safetensors" for name in ("remembered", "weights")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert CircletClassifier.load(tmp_path).predict_proba(rows).shape == (16, 2)
