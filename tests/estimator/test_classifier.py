"""CircletClassifier: scikit-learn's own checks, training, growth, and parameters that make no sense."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.estimator.conftest import LABELS, WORDS

from circlet import CircletClassifier
from circlet.errors import DataError, ParameterError

QUICK = {
    "dim": 16, "hidden": (16,), "epochs": 8, "batch_size": 32, "lr": 0.03, "dropout": 0.0, "validation": 0.0,
    "device": "cpu",
}  # fmt: skip
SPARSE = "predictions of many labels are a sparse matrix, not an array"
#: Both compare or inspect the predictions as if they were dense; `test_targets.py` does the same here.
EXPECTED_FAILURES = {
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
}


# scikit-learn


@parametrize_with_checks(
    [CircletClassifier(**QUICK), CircletClassifier(**QUICK, head="fc")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_clone_has_the_parameters_and_not_the_weights(on_texts):
    twin = clone(on_texts)
    assert twin.get_params() == on_texts.get_params()
    with pytest.raises(NotFittedError, match="not fitted"):
        twin.predict(["red"])


def test_data_frames_give_their_names(indicator, learner, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, Y = indicator()
    frame, targets = pandas.DataFrame(X.toarray(), columns=WORDS), pandas.DataFrame(Y.toarray(), columns=LABELS)
    classifier = learner(dim=np.int64(32)).fit(frame, targets)
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.decision_function(frame), classifier.decision_function(frame))
    for each in (classifier, loaded):
        assert each.feature_names_in_.tolist() == WORDS
        assert each.n_features_in_ == len(WORDS)
        with pytest.raises(DataError, match="feature names should match"):
            each.predict(frame[WORDS[::-1]])


# Training


def test_texts_and_label_lists(on_texts, documents):
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


def test_several_members(indicator, learner, tmp_path):
    X, Y = indicator()
    classifier = learner(members=2, epochs=12, validation=0.2).fit(X, Y)
    one, other = classifier.model_.networks
    assert one.codebook.seed != other.codebook.seed
    assert [record["member"] for record in classifier.history_] == [1] * 12 + [2] * 12
    assert classifier.score(X, Y) > 0.9
    chances, (labels, best) = classifier.predict_proba(X), classifier.suggest(X, k=6)
    np.testing.assert_allclose(np.take_along_axis(chances, labels, axis=1), best, rtol=1e-5)
    np.testing.assert_array_equal(classifier.predict(X).toarray(), chances >= 0.5)
    np.testing.assert_array_equal(classifier.decision_function(X).argmax(axis=1), labels[:, 0])
    classifier.save(tmp_path)
    loaded = CircletClassifier.load(tmp_path)
    assert loaded.members == 2
    np.testing.assert_array_equal(loaded.predict_proba(X), chances)
    wider = sp.hstack([Y, Y[:, :1]], format="csr")
    loaded.partial_fit(X, wider)
    assert [network.n_labels for network in loaded.model_.networks] == [7, 7]
    assert loaded.predict_proba(X).shape == (60, 7)


def test_validation_rows_are_held_out(indicator, learner):
    X, Y = indicator()
    held = learner(validation=0.2, join=False).fit(X, Y)
    assert all("nDCG@5" in record for record in held.history_)
    assert held.model_.training["documents"] == 48
    for few in (learner(validation=0.2).fit(X[:19], Y[:19]), learner(validation=0.001).fit(X, Y)):
        assert "nDCG@5" not in few.history_[0]
    assert learner(validation=10, join=False).fit(X, Y).model_.training["documents"] == 50
    assert learner(validation=10).fit(X, Y).model_.training["documents"] == 60  # they have joined


class Halves(torch.nn.Module):
    """An encoder of one's own, for dense rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(len(WORDS), 32)
        torch.nn.init.constant_(self.layer.weight, 0.01)

    def forward(self, batch):
        return torch.tanh(self.layer(batch))


def test_a_custom_encoder(tmp_path, indicator, learner):
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
        CircletClassifier.load(tmp_path, encoder=Halves()).decision_function(X), classifier.decision_function(X)
    )


# Growth


def test_partial_fit_learns_new_labels(documents, learner):
    texts, labels = documents()
    classifier = learner().fit(texts, labels)
    shapes = {name: tensor.shape for name, tensor in classifier.model_.network.state_dict().items()}
    calibration, epochs = classifier.model_.calibration, len(classifier.history_)
    # "flat" is given two more labels from now on.
    further = [[*row, "low", "even"] if "f" in row else row for row in labels]
    classifier.partial_fit(texts * 3, further * 3)
    assert classifier.classes_.tolist() == [*sorted(LABELS), "even", "low"]
    assert {name: tensor.shape for name, tensor in classifier.model_.network.state_dict().items()} == shapes
    assert classifier.model_.calibration == calibration
    assert [record["epoch"] for record in classifier.history_] == list(range(1, epochs + 6))
    assert {*classifier.suggest("flat", k=3)[0][0]} == {"f", "low", "even"}
    assert classifier.score(texts, further) == 1


def test_partial_fit_does_not_start_anew(documents, learner):
    """Training used to reset the biases of labels to their frequencies in whatever rows came last."""
    texts, labels = documents()
    classifier = learner(lr=1e-9, first_layer="same").fit(texts, labels)
    before = classifier.decision_function(texts)
    classifier.partial_fit(["red"], [["R"]])
    np.testing.assert_allclose(classifier.decision_function(texts), before, rtol=1e-3, atol=1e-5)


def test_partial_fit_from_the_first_call(indicator, learner):
    X, Y = indicator()
    classifier = learner(head="fc").partial_fit(X[:, :], [["a"]] * X.shape[0], classes=["b", "a"])
    assert classifier.classes_.tolist() == ["a", "b"]
    classifier.partial_fit(X, [["b"]] * X.shape[0])
    with pytest.raises(ParameterError, match="head fc has one output per label"):
        classifier.partial_fit(X, [["c"]] * X.shape[0])
    assert (classifier.classes_.tolist(), classifier.model_.n_labels) == (["a", "b"], 2)
    classes = learner(head="fc").partial_fit(X, ["a"] * X.shape[0], classes=["b", "a"])
    assert classes.partial_fit(X, ["b"] * X.shape[0]).classes_.tolist() == ["a", "b"]
    assert learner().partial_fit(X, Y).score(X, Y) == 1


def test_indicators_and_classes_grow_too(documents, indicator, learner):
    X, Y = indicator()
    wider = sp.hstack([Y, Y[:, :1]], format="csr")
    assert learner().fit(X, Y).partial_fit(X, wider).predict(X).shape == wider.shape
    texts, labels = documents()
    grown = learner().fit(texts, [row[0] for row in labels]).partial_fit(["huge"] * 30, ["enormous"] * 30)
    assert grown.classes_.tolist() == [*sorted(LABELS), "enormous"]
    assert grown.predict(["red"]).tolist() in [["R"], ["enormous"]]


# Randomness and the log


@pytest.mark.parametrize("state", [int, np.random.RandomState, np.random.default_rng])
def test_the_same_random_state_gives_the_same_weights(state, indicator, learner):
    X, Y = indicator()
    runs = [
        learner(epochs=3, dropout=0.3, random_state=state(seed)).fit(X, Y).decision_function(X)
        for seed in (5, 5, 6)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def seed_of(state):
    return CircletClassifier(random_state=state)._settings().network.seed


class TestSeedOf:
    @pytest.mark.parametrize("seed", [0, 7, 2**40, np.int64(7), np.uint8(7)])
    def test_an_integer_is_the_seed(self, seed):
        assert seed_of(seed) == int(seed)
        assert type(seed_of(seed)) is int

    def test_states_are_drawn_from(self):
        for make in (np.random.RandomState, np.random.default_rng):
            state, twin = make(5), make(5)
            drawn = [seed_of(state) for _ in range(3)]
            assert drawn == [seed_of(twin) for _ in range(3)]
            assert len(set(drawn)) == 3
            assert all(0 <= seed < 2**31 for seed in drawn)

    def test_none_follows_numpys_global_state(self):
        before = np.random.get_state()  # noqa: NPY002
        try:
            np.random.seed(1)  # noqa: NPY002
            first = seed_of(None)
            np.random.seed(1)  # noqa: NPY002
            assert seed_of(None) == first
        finally:
            np.random.set_state(before)  # noqa: NPY002

    @pytest.mark.parametrize(
        ("value", "wanted"),
        [
            *((value, f"found {value}; wanted at least 0") for value in (-1, np.int64(-1), -(2**70))),
            *(
                (value, f"found {value!r}; wanted an int, a RandomState, a Generator or None")
                for value in ("luck", 1.5, [1], np.array([1, 2]), np.float64(2))
            ),
        ],
    )
    def test_bad_states(self, value, wanted):
        with pytest.raises(ParameterError, match=re.escape(f"`random_state`: {wanted}")):
            seed_of(value)


def test_log_and_nothing_but_the_log(caplog, capsys, indicator, learner):
    X, Y = indicator(20)
    with caplog.at_level(logging.INFO, logger="circlet"):
        learner(epochs=2).fit(X, Y)
        assert not caplog.records
        learner(epochs=2, verbose=True).fit(X, Y)
        learner(epochs=1, members=2, verbose=True).fit(X, Y)
    heads = [record.message.partition(":")[0] for record in caplog.records]
    assert "first_layer" in heads  # what was decided
    epochs = [head for head in heads if "epoch " in head]
    assert epochs == ["epoch 1 of 2", "epoch 2 of 2", "member 1, epoch 1 of 1", "member 2, epoch 1 of 1"]
    assert capsys.readouterr() == ("", "")


# Mistakes


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"head": "none"}, "`head`: found .*; wanted one of chrr"),
        ({"scaling": "odd"}, "`scaling`: found .*; wanted auto or one of"),
        ({"validation": -1}, "`validation`: found -1; wanted a share at least 0 and below 1, or a number of rows"),
        ({"validation": None}, "`validation`: found None; wanted"),
        ({"validation": 60}, "found size 60; wanted a fraction"),
        ({"threshold": 2}, "`threshold`: found 2; wanted a number from 0 to 1"),
        ({"threshold": None}, "`threshold`: found None; wanted a number from 0 to 1"),
        ({"device": "abacus"}, "`device` 'abacus' is not available"),
        ({"device": None}, "`device`: found None; wanted auto, cpu, cuda, ..."),
        ({"encoder": "bert"}, "`encoder`: found 'bert'; wanted one of features, cnn, lstm, transformer"),
        ({"min_df": 0}, "`min_df`: found"),
    ],
)
def test_bad_parameters_are_named_by_fit(parameters, message, indicator, learner):
    classifier = learner(**parameters)
    with pytest.raises(ParameterError, match=message):
        classifier.fit(*indicator())
