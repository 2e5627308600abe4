"""CircletClassifier: scikit-learn's own checks, every kind of input, growth, and the folder."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import circlet
from circlet import CircletClassifier
from circlet.data.dataset import Split
from circlet.errors import DataError, DTypeError, ParameterError
from circlet.model import Model, fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings

QUICK = {
    "dim": 16, "hidden": (16,), "epochs": 8, "batch_size": 32, "lr": 0.03, "dropout": 0.0, "validation": 0.0,
    "device": "cpu",
}  # fmt: skip
SPARSE = "predictions of many labels are a sparse matrix, not an array"
#: Both compare or inspect the predictions as if they were dense; `test_representations_agree` does the same here.
EXPECTED_FAILURES = {
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
}

WORDS = ["red", "green", "blue", "round", "square", "flat"]
LABELS = ["R", "G", "B", "r", "s", "f"]


pytestmark = pytest.mark.usefixtures("one_thread")


def documents(n: int = 60, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of one to three words, each of which means a label."""
    random = np.random.default_rng(seed)
    chosen = [random.permutation(len(WORDS))[: random.integers(1, 4)] for _ in range(n)]
    return [" ".join(WORDS[i] for i in row) for row in chosen], [[LABELS[i] for i in row] for row in chosen]


def indicator(n: int = 60) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """The same as rows: features are words, and column i of Y is word i."""
    texts, _ = documents(n)
    X = sp.csr_matrix([[float(word in text.split()) for word in WORDS] for text in texts], dtype=np.float32)
    return X, sp.csr_matrix(X)


def learner(**parameters) -> CircletClassifier:
    return CircletClassifier(**{**QUICK, "dim": 32, "hidden": (32,), "epochs": 25, "batch_size": 16, **parameters})


@pytest.fixture(scope="module")
def on_texts():
    return learner().fit(*documents())


@pytest.fixture(scope="module")
def on_rows():
    return learner().fit(*indicator())


def scored(classifier: CircletClassifier, X) -> np.ndarray:
    return classifier.decision_function(X)


# scikit-learn


@parametrize_with_checks(
    [CircletClassifier(**QUICK), CircletClassifier(**QUICK, head="fc")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_representations_agree():
    X, Y = indicator()
    dense = Y.toarray().astype(int)
    predictions = [
        learner().fit(X, y).predict(X)
        for y in (Y, sp.coo_array(Y), dense, dense.astype(bool), dense.tolist(), list(dense))
    ]
    for prediction in predictions:
        assert isinstance(prediction, sp.csr_matrix)
        assert prediction.dtype == np.float32
        assert (prediction != predictions[0]).nnz == 0
    assert predictions[0].shape == Y.shape


def test_clone_has_the_parameters_and_not_the_weights(on_texts):
    twin = clone(on_texts)
    assert twin.get_params() == on_texts.get_params()
    with pytest.raises(NotFittedError, match="not fitted"):
        twin.predict(["red"])


def test_grid_search_over_heads():
    X, Y = indicator()
    search = GridSearchCV(learner(epochs=10), {"head": ["chrr", "fc"]}, cv=2, error_score="raise")
    search.fit(X, Y)
    assert search.best_score_ > 0.8
    assert set(search.cv_results_["param_head"]) == {"chrr", "fc"}


def test_pipeline():
    texts, labels = documents()
    pipeline = make_pipeline(TfidfVectorizer(), learner()).fit(texts, labels)
    assert pipeline.score(texts, labels) == 1
    assert pipeline.predict(["blue flat"]).toarray().tolist() == [[1, 0, 0, 1, 0, 0]]
    assert pipeline.classes_.tolist() == ["B", "G", "R", "f", "r", "s"]


def test_data_frames_give_their_names():
    pandas = pytest.importorskip("pandas")
    X, Y = indicator()
    frame, targets = pandas.DataFrame(X.toarray(), columns=WORDS), pandas.DataFrame(Y.toarray(), columns=LABELS)
    classifier = learner().fit(frame, targets)
    assert classifier.feature_names_in_.tolist() == WORDS
    assert classifier.n_features_in_ == len(WORDS)
    with pytest.raises(DataError, match="feature names should match"):
        classifier.predict(frame[WORDS[::-1]])


# Documents


def test_texts_and_label_lists(on_texts):
    texts, labels = documents()
    assert on_texts.classes_.tolist() == sorted(LABELS)
    assert on_texts.score(texts, labels) == 1
    assert on_texts.score(texts, labels, sample_weight=np.arange(len(texts))) == 1
    assert not hasattr(on_texts, "n_features_in_")
    found, scores = on_texts.suggest(["red round thing", "flat"], k=2)
    assert {*found[0]} == {"R", "r"}
    assert found[1, 0] == "f"
    assert scores.dtype == np.float32
    assert (scores[:, 0] >= scores[:, 1]).all()
    np.testing.assert_array_equal(on_texts.predict(["red round"]).toarray(), [[0, 0, 1, 0, 1, 0]])


@pytest.mark.parametrize("wrap", [tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_texts_in_any_container(on_texts, wrap):
    texts, labels = documents()
    np.testing.assert_array_equal(scored(learner().fit(wrap(texts), labels), wrap(texts)), scored(on_texts, texts))


def test_series_of_texts_and_of_label_lists(on_texts):
    pandas = pytest.importorskip("pandas")
    texts, labels = documents()
    classifier = learner().fit(pandas.Series(texts), pandas.Series(labels))
    np.testing.assert_array_equal(scored(classifier, pandas.Series(texts)), scored(on_texts, texts))


def test_one_document_follows_the_same_rule(on_texts, on_rows):
    X, _ = indicator()
    row = X[0].toarray()[0]
    for classifier, many, ones in (
        (on_texts, ["red flat"], ["red flat"]),
        (on_rows, X[:1], [row, row.tolist(), sp.csr_array(X)[0], X[0]]),
    ):
        labels, scores = classifier.suggest(many, k=3)
        assert labels.shape == scores.shape == (1, 3)
        for one in ones:
            alone = classifier.suggest(one, k=3)
            np.testing.assert_array_equal(alone[0], labels)
            np.testing.assert_array_equal(alone[1], scores)


def test_batch_equals_single(on_texts, on_rows):
    texts, (X, _) = documents()[0], indicator()
    for classifier, many, singles in ((on_texts, texts, texts), (on_rows, X, [X[i] for i in range(X.shape[0])])):
        labels, scores = classifier.suggest(many, k=2)
        alone = [classifier.suggest(document, k=2) for document in singles]
        np.testing.assert_allclose(np.concatenate([part for _, part in alone]), scores, rtol=1e-4)
        clear = np.abs(scores[:, 0] - scores[:, 1]) > 1e-3  # two labels as likely may change places
        np.testing.assert_array_equal(np.concatenate([part for part, _ in alone])[clear], labels[clear])


def test_sparse_and_dense_rows_are_the_same_documents(on_rows):
    X, Y = indicator()
    for kind in (X.tocoo(), X.tocsc(), sp.csr_array(X), X.toarray(), X.toarray().tolist()):
        np.testing.assert_allclose(scored(on_rows, kind), scored(on_rows, X), rtol=1e-5)
    twice = sp.csr_matrix((X.data.repeat(2) / 2, X.indices.repeat(2), X.indptr * 2), shape=X.shape)
    np.testing.assert_allclose(scored(on_rows, twice), scored(on_rows, X), rtol=1e-5)
    assert not twice.has_canonical_format
    dense = learner().fit(X.toarray(), Y)
    np.testing.assert_allclose(scored(dense, X), scored(dense, X.toarray()), rtol=1e-5)


def test_documents_without_known_features(on_texts, on_rows):
    for classifier, empty in ((on_texts, ["", "unheard-of"]), (on_rows, sp.csr_matrix((2, len(WORDS))))):
        labels, scores = classifier.suggest(empty, k=3)
        assert labels.shape == (2, 3)
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(labels[0], labels[1])
        assert classifier.predict(empty).shape == (2, len(LABELS))


def test_no_documents(on_texts):
    labels, scores = on_texts.suggest([], k=2)
    assert labels.shape == scores.shape == (0, 2)
    assert on_texts.predict([]).shape == on_texts.predict_proba([]).shape == (0, len(LABELS))


def test_k_beyond_the_labels(on_texts, on_rows):
    assert on_texts.suggest("red", k=100)[0].shape == (1, len(LABELS))
    labels, _ = on_rows.suggest(indicator()[0], k=np.int64(100))
    assert labels.dtype.kind == "i"
    assert {*labels[0].tolist()} == set(range(len(LABELS)))


# Targets


def test_labels_that_are_numbers():
    texts, labels = documents()
    numbers = [[10 * LABELS.index(label) for label in row] for row in labels]
    classifier = learner().fit(texts, numbers)
    assert classifier.classes_.tolist() == [0, 10, 20, 30, 40, 50]
    assert classifier.suggest("blue", k=1)[0].tolist() == [[20]]
    assert classifier.score(texts, numbers) == 1


def test_lists_of_zero_and_one_stay_labels_once_labels_are_named():
    texts = ["a", "b", "a b", ""] * 5
    classifier = learner().fit(texts, [[0], [1], [0, 1], []] * 5)
    assert classifier.score(["a b"], [[0, 1]]) == 1  # by itself this could be an indicator of two columns
    assert classifier.classes_.tolist() == [0, 1]


def test_empty_lists_sets_and_repetitions():
    texts, labels = documents()
    odd = [{*row} if i % 2 else row * 2 for i, row in enumerate(labels)]
    classifier = learner().fit([*texts, "none"], [*odd, []])
    np.testing.assert_array_equal(
        scored(classifier, texts), scored(learner().fit([*texts, "none"], [*labels, []]), texts)
    )


def test_one_class_a_row():
    texts, labels = documents()
    first = [row[0] for row in labels]
    classifier = learner(epochs=40).fit(texts, first)
    assert classifier.predict(texts).shape == (len(texts),)
    shares = classifier.predict_proba(texts)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(classifier.classes_[shares.argmax(axis=1)], classifier.predict(texts))
    found, scores = classifier.suggest(texts, k=2)
    np.testing.assert_array_equal(found[:, 0], classifier.predict(texts))
    np.testing.assert_array_equal(scores[:, 0], shares.max(axis=1))
    accuracy = (classifier.predict(texts) == np.array(first)).mean()
    assert classifier.score(texts, first) == pytest.approx(accuracy)
    assert classifier.score(texts, ["?"] * len(texts)) == 0


@pytest.mark.parametrize("loss", ["bce", "cosine", "softmax"])
def test_probabilities(loss):
    X, Y = indicator(200)
    classifier = learner(loss=loss, validation=0.25).fit(X, Y)
    chances = classifier.predict_proba(X)
    assert chances.dtype == np.float32
    assert 0 <= chances.min() <= chances.max() <= 1
    np.testing.assert_array_equal(classifier.predict(X).toarray(), chances >= 0.5)
    assert chances.sum() == pytest.approx(Y.sum(), rel=0.2)
    order = np.argsort(scored(classifier, X)[0])
    assert (np.diff(chances[0, order]) >= 0).all()


@pytest.mark.parametrize("loss", ["cosine", "softmax"])
def test_scores_that_are_no_log_odds_are_calibrated_without_validation_rows_too(loss):
    X, Y = indicator(100)
    classifier = learner(loss=loss).fit(X, Y)
    assert classifier.predict_proba(X).sum() == pytest.approx(Y.sum(), rel=0.2)


def test_threshold():
    X, Y = indicator()
    classifier = learner(threshold=0.0).fit(X, Y)
    assert classifier.predict(X).nnz == np.prod(Y.shape)
    assert classifier.set_params(threshold=1.0).predict(X).nnz == 0


# Training


def test_same_seed_same_weights():
    X, Y = indicator()
    for loss in ("bce", "cosine"):
        runs = [scored(learner(loss=loss, dropout=0.3, random_state=seed).fit(X, Y), X) for seed in (5, 5, 6)]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert not np.array_equal(runs[0], runs[2])
    states = [scored(learner(random_state=np.random.RandomState(3)).fit(X, Y), X) for _ in range(2)]
    np.testing.assert_array_equal(*states)


def test_validation_rows_are_held_out():
    X, Y = indicator()
    held = learner(validation=0.2).fit(X, Y)
    assert all("nDCG@5" in record for record in held.history_)
    assert held.model_.training["documents"] == 48
    for few in (learner(validation=0.2).fit(X[:19], Y[:19]), learner(validation=0.001).fit(X, Y)):
        assert "P@1" not in few.history_[0]
    assert learner(validation=10).fit(X, Y).model_.training["documents"] == 50


def test_log_and_nothing_but_the_log(caplog, capsys):
    X, Y = indicator(20)
    with caplog.at_level(logging.INFO, logger="circlet"):
        learner(epochs=2).fit(X, Y)
        assert not caplog.records
        learner(epochs=2, verbose=True).fit(X, Y)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert capsys.readouterr() == ("", "")


class Halves(torch.nn.Module):
    """An encoder of one's own, for dense rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(len(WORDS), 32)
        torch.nn.init.constant_(self.layer.weight, 0.01)

    def forward(self, batch):
        return torch.tanh(self.layer(batch))


def test_encoder_of_ones_own(tmp_path):
    X, Y = indicator()
    X = X.toarray()
    encoder = Halves()
    before = encoder.layer.weight.clone()
    classifier = learner(encoder=encoder).fit(X, Y)
    assert torch.equal(encoder.layer.weight, before)
    assert isinstance(classifier.model_.network.encoder, Halves)
    assert isinstance(clone(classifier).encoder, Halves)
    classifier.save(tmp_path)
    with pytest.raises(ParameterError, match=r"a custom encoder, a Halves: load\(folder, encoder=...\)"):
        CircletClassifier.load(tmp_path)
    np.testing.assert_array_equal(
        scored(CircletClassifier.load(tmp_path, encoder=Halves()), X), scored(classifier, X)
    )


# Growth


@pytest.mark.parametrize(
    "parameters",
    [{}, {"loss": "cosine"}, {"codebook": "independent", "loss": "softmax"}, {"head": "hrr", "loss": "cosine"}],
)
def test_new_labels_change_no_shape_and_no_old_score(parameters):
    texts, labels = documents()
    classifier = learner(**parameters).fit(texts, labels)
    before, weights = scored(classifier, texts), classifier.model_.network.state_dict()
    before_weights = {name: tensor.clone() for name, tensor in weights.items()}
    classifier._grow(classifier._targets.extended([["new"], ["brand new"]]))
    assert classifier.classes_.tolist() == [*sorted(LABELS), "brand new", "new"]
    grown = scored(classifier, texts)
    assert grown.shape == (len(texts), len(LABELS) + 2)
    if parameters.get("codebook", "auto") == "auto" and "head" not in parameters:
        np.testing.assert_array_equal(grown[:, : len(LABELS)], before)
    else:  # a product with a larger matrix may round otherwise
        np.testing.assert_allclose(grown[:, : len(LABELS)], before, rtol=1e-5, atol=1e-6)
    for name, tensor in classifier.model_.network.state_dict().items():
        assert torch.equal(tensor, before_weights[name])


def test_partial_fit_learns_new_labels():
    texts, labels = documents()
    classifier = learner().fit(texts, labels)
    shapes = {name: tensor.shape for name, tensor in classifier.model_.network.state_dict().items()}
    calibration, epochs = classifier.model_.calibration, len(classifier.history_)
    # "flat" is given a second label from now on.
    further = [[*row, "low"] if "f" in row else row for row in labels]
    classifier.partial_fit(texts * 3, further * 3)
    assert classifier.classes_.tolist() == [*sorted(LABELS), "low"]
    assert {name: tensor.shape for name, tensor in classifier.model_.network.state_dict().items()} == shapes
    assert classifier.model_.calibration == calibration
    assert [record["epoch"] for record in classifier.history_] == list(range(1, epochs + 6))
    assert {*classifier.suggest("flat", k=2)[0][0]} == {"f", "low"}
    assert classifier.score(texts, further) == 1


def test_partial_fit_does_not_start_anew():
    """Training used to reset the biases of labels to their frequencies in whatever rows came last."""
    texts, labels = documents()
    classifier = learner(lr=1e-9).fit(texts, labels)
    before = scored(classifier, texts)
    classifier.partial_fit(["red"], [["R"]])
    np.testing.assert_allclose(scored(classifier, texts), before, rtol=1e-3, atol=1e-5)


def test_partial_fit_from_the_first_call():
    X, Y = indicator()
    classifier = learner(head="fc").partial_fit(X[:, :], [["a"]] * X.shape[0], classes=["b", "a"])
    assert classifier.classes_.tolist() == ["a", "b"]
    classifier.partial_fit(X, [["b"]] * X.shape[0])
    with pytest.raises(ParameterError, match="head fc has one output per label"):
        classifier.partial_fit(X, [["c"]] * X.shape[0])
    classes = learner(head="fc").partial_fit(X, ["a"] * X.shape[0], classes=["b", "a"])
    assert classes.partial_fit(X, ["b"] * X.shape[0]).classes_.tolist() == ["a", "b"]
    assert learner().partial_fit(X, Y).score(X, Y) == 1


def test_indicators_and_classes_grow_too():
    X, Y = indicator()
    wider = sp.hstack([Y, Y[:, :1]], format="csr")
    assert learner().fit(X, Y).partial_fit(X, wider).predict(X).shape == wider.shape
    texts, labels = documents()
    grown = learner().fit(texts, [row[0] for row in labels]).partial_fit(["huge"] * 30, ["enormous"] * 30)
    assert grown.classes_.tolist() == [*sorted(LABELS), "enormous"]
    assert grown.predict(["red"]).tolist() in [["R"], ["enormous"]]


# The folder


@pytest.mark.parametrize("head", ["chrr", "chrr-half", "hrr", "fc"])
def test_saved_and_loaded_is_the_same(tmp_path, head):
    texts, labels = documents()
    classifier = learner(head=head, validation=0.2, char_ngrams=(2, 3), threshold=0.3).fit(texts, labels)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.get_params() == classifier.get_params()
    assert loaded.history_ == classifier.history_
    for before, after in zip(classifier.suggest(texts), loaded.suggest(texts), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(loaded.predict_proba(texts), classifier.predict_proba(texts))
    assert (loaded.predict(texts) != classifier.predict(texts)).nnz == 0
    assert Model.load(tmp_path).label_names == sorted(LABELS)


def test_grown_and_saved(tmp_path):
    texts, labels = documents()
    classifier = learner().fit(texts, labels).partial_fit(["tall"] * 4, [["t"]] * 4)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path, device="cpu").partial_fit(texts, [[*row, "u"] for row in labels])
    classifier.partial_fit(texts, [[*row, "u"] for row in labels])
    np.testing.assert_array_equal(scored(loaded, texts), scored(classifier, texts))
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
def test_classes_are_saved_with_their_type(tmp_path, classes):
    X, _ = indicator()
    y = classes[np.arange(X.shape[0]) % 3]
    classifier = learner(epochs=2, random_state=np.random.RandomState(0)).fit(X, y)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.classes_.dtype.kind == classifier.classes_.dtype.kind
    assert loaded.random_state == classifier.model_.network.settings.seed
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))
    np.testing.assert_array_equal(scored(loaded, X), scored(classifier, X))


def test_names_of_features_are_saved(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, Y = indicator()
    frame = pandas.DataFrame(X.toarray(), columns=WORDS)
    classifier = learner(epochs=2, dim=np.int64(16)).fit(frame, Y)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.feature_names_in_.tolist() == WORDS
    np.testing.assert_array_equal(scored(loaded, frame), scored(classifier, frame))


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_the_command_wrote(tmp_path, named):
    X, Y = indicator()
    settings = NetworkSettings(dim=20, hidden=(24, 16), loss="cosine", seed=4)
    run = RunSettings(settings, TrainingSettings(epochs=2, lr=0.01), scaling="sqrt")
    model = fit(Split(X, Y), run, label_names=LABELS if named else None)
    model.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert (loaded.dim, loaded.hidden, loaded.loss, loaded.epochs, loaded.lr) == (20, (24, 16), "cosine", 2, 0.01)
    assert (loaded.scaling, loaded.random_state, loaded.n_features_in_) == ("sqrt", 4, len(WORDS))
    assert loaded.classes_.tolist() == (LABELS if named else list(range(6)))
    np.testing.assert_array_equal(loaded.suggest(X, k=6)[1], model.probabilities(model.top_k(X, 6)[1]))
    clone(loaded).fit(X, Y)


def test_a_text_model_that_the_command_wrote(tmp_path):
    texts, labels = documents()
    classifier = learner(char_ngrams=(2, 3), min_df=2, max_features=50).fit(texts, labels)
    classifier.model_.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert (loaded.char_ngrams, loaded.min_df, loaded.max_features) == ((2, 3), 2, 50)
    np.testing.assert_array_equal(scored(loaded, texts), scored(classifier, texts))


def damaged(change):
    def damage(folder):
        path = folder / "estimator.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "estimator.json").write_text("{"), "estimator.json: found no readable JSON"),
        (lambda folder: (folder / "config.json").unlink(), "is not a circlet model"),
        (lambda folder: (folder / "weights.safetensors").write_bytes(b""), "the model is damaged"),
        (damaged(lambda state: [state]), "found no description of a classifier"),
        (damaged(lambda state: {**state, "format": 2}), "found format 2; circlet .* reads format 1"),
        (damaged(lambda state: {**state, "more": 1}), "found the keys .*; wanted"),
        (damaged(lambda state: {**state, "parameters": {"dims": 4}}), r"found the parameters \['dims'\]; wanted"),
        (damaged(lambda state: {**state, "parameters": 4}), "found the parameters 4; wanted"),
        (damaged(lambda state: {**state, "target": "odd"}), "found the target 'odd'; wanted one of indicator"),
        (damaged(lambda state: {**state, "weights_sha256": ""}), "description of other weights"),
        (damaged(lambda state: {**state, "classes": None}), "found damaged classes"),
        (damaged(lambda state: {**state, "classes": {"dtype": "int64", "values": [1, 2]}}), "found 2 different"),
        (damaged(lambda state: {**state, "classes": {"dtype": "int64", "values": [1] * 6}}), "found 1 different"),
        (damaged(lambda state: {**state, "classes": {"dtype": "M8", "values": []}}), "wanted 6 labels"),
        (damaged(lambda state: {**state, "feature_names": ["a"]}), "found 1 feature names; wanted 6"),
        (damaged(lambda state: {**state, "feature_names": [1]}), "wanted a list of text"),
        (
            damaged(lambda state: {**state, "parameters": {**state["parameters"], "threshold": 3}}),
            "estimator.json: `threshold` must be between 0 and 1, got 3",
        ),
        (
            damaged(lambda state: {**state, "parameters": {**state["parameters"], "hidden": 3}}),
            "estimator.json: ",
        ),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, damage, message):
    texts, labels = documents(20)
    learner(epochs=1).fit(texts, labels).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        CircletClassifier.load(tmp_path)


# Mistakes


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"head": "none"}, "`head` must be one of chrr"),
        ({"hidden": ()}, "`hidden` must be one or more"),
        ({"codebook": "holographic"}, "codebook holographic does not fit head chrr"),
        ({"head": "fc", "loss": "cosine"}, "choose bce or softmax for fc"),
        ({"epochs": 0}, "`epochs` must be at least 1|`epochs` must be an integer"),
        ({"metric": "F1"}, "`metric` must be like P@1"),
        ({"scaling": "odd"}, "`scaling` must be auto or one of"),
        ({"validation": -1}, "`validation` must be a share at least 0 and below 1, or a number of rows, got -1"),
        ({"validation": None}, "`validation` must be .* got None"),
        ({"validation": 60}, "size is 60; wanted a fraction"),
        ({"threshold": 2}, "`threshold` must be between 0 and 1, got 2"),
        ({"threshold": None}, "`threshold` must be between 0 and 1, got None"),
        ({"random_state": -1}, "`random_state` must be at least 0, got -1"),
        ({"device": "abacus"}, "`device` 'abacus' is not available"),
        ({"encoder": "bert"}, "`encoder` must be a torch.nn.Module, got str"),
        ({"min_df": 0}, "`min_df` must be"),
    ],
)
def test_bad_parameters_are_named_by_fit(parameters, message):
    classifier = learner(**parameters)
    with pytest.raises(ParameterError, match=message):
        classifier.fit(*indicator())


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
        (sp.csr_matrix([[0.5], [1]]), "y: found 0.5 at row 1, label 0"),
        ([0.5, 1.5], "Unknown label type"),
    ],
)
def test_bad_targets(y, message):
    with pytest.raises(DataError, match=message):
        learner().fit(["a", "b"], y)


def test_bad_documents(on_texts, on_rows):
    X, Y = indicator()
    wrong = X.copy()
    wrong.data[0] = np.nan
    for rows in (wrong, wrong.toarray()):
        with pytest.raises(DataError, match="Input X contains NaN"):
            learner().fit(rows, Y)
        with pytest.raises(DataError, match="Input X contains NaN"):
            on_rows.suggest(rows)
    with pytest.raises(DataError, match="too large for dtype"):
        learner().fit(X.toarray().astype(float) * 1e300, Y)
    with pytest.raises(DataError, match="X has 3 features, but CircletClassifier is expecting 6"):
        on_rows.predict(X[:, :3])
    with pytest.raises(DataError, match="found texts; this classifier was fitted on feature rows"):
        on_rows.predict(["red"])
    with pytest.raises(DataError, match="found feature rows; this classifier was fitted on texts"):
        on_texts.predict(X)
    with pytest.raises(DataError, match="found one text; wanted a list of texts"):
        on_texts.predict("red")
    with pytest.raises(DTypeError, match=r"texts\[1\] must be a str, got NoneType"):
        on_texts.predict(["red", None])
    with pytest.raises(DataError, match="found 1 rows in X and 2 in y"):
        on_texts.score(["red"], [["R"], ["G"]])


def test_targets_of_another_kind(on_texts, on_rows):
    texts, _ = documents()
    X, Y = indicator()
    with pytest.raises(DataError, match="kind indicator; this classifier was fitted on the kind named"):
        on_texts.score(texts, Y)
    with pytest.raises(DataError, match="found an indicator of 2 labels; this classifier knows 6"):
        on_rows.score(X, Y[:, :2])
    with pytest.raises(DataError, match="found the label 3; wanted labels like 'B'"):
        on_texts._targets.extended([[3]])


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_bad_k(on_texts, k):
    with pytest.raises(ParameterError, match="`k` must be an integer >= 1"):
        on_texts.suggest("red", k=k)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "suggest", "score", "save"])
def test_not_fitted(method):
    arguments = ["red", ["R"]] if method == "score" else ["red"]
    with pytest.raises(NotFittedError, match="CircletClassifier instance is not fitted"):
        getattr(CircletClassifier(), method)(*arguments)


def test_refitted_on_another_kind_of_document():
    X, Y = indicator()
    classifier = learner(epochs=2).fit(X, Y)
    classifier.fit(*documents())
    assert not hasattr(classifier, "n_features_in_")
    assert classifier.fit(X, Y).n_features_in_ == len(WORDS)


# The package's face


def test_public_names_are_found_without_loading_torch():
    code = "import circlet, sys; dir(circlet); circlet.load_dataset; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {*circlet.__all__} <= {*dir(circlet)}
    assert all(getattr(circlet, name) for name in circlet.__all__)
    with pytest.raises(AttributeError, match="module 'circlet' has no attribute 'nothing'"):
        circlet.nothing  # noqa: B018


def test_predict_gives_the_top_k_if_asked_to():
    texts = ["red fox", "fast car", "brown bear", "old lorry"] * 8
    labels = [["animal", "red"], ["vehicle"], ["animal"], ["vehicle", "old"]] * 8
    clf = CircletClassifier(dim=32, hidden=(16,), epochs=3, validation=0.0, device="cpu", top_k=2).fit(
        texts, labels
    )
    marked = clf.predict(texts[:5])
    assert marked.shape == (5, 4)
    assert (marked.sum(axis=1) == 2).all()
    best, _ = clf.suggest(texts[:5], k=2)
    assert [set(clf.classes_[row.indices]) for row in marked] == [set(names) for names in best.tolist()]
    clf.top_k = 0
    with pytest.raises(ParameterError, match="`top_k` must be None or an integer >= 1, got 0"):
        clf.predict(texts)


def test_training_over_a_saved_folder_leaves_nothing_of_it(tmp_path):
    texts, labels = ["red fox", "fast car"] * 8, [["animal"], ["vehicle"]] * 8
    small = {"dim": 16, "hidden": (8,), "epochs": 1, "validation": 0.0, "device": "cpu"}
    CircletClassifier(**small).fit(texts, labels).save(tmp_path)
    rows, indicator = np.eye(4, dtype=np.float32).repeat(4, axis=0), np.eye(2)[[0, 1] * 8]
    CircletClassifier(**small).fit(rows, indicator).model_.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "history.json",
        "weights.safetensors",
    ]
    assert CircletClassifier.load(tmp_path).predict_proba(rows).shape == (16, 2)
