"""Models with an encoder of texts, frozen or trained, alone or beside a bag of words: used as any other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.runs import CtrlC, assert_same

import circlet
import circlet_paper
from circlet import CircletClassifier, encoders
from circlet.data.dataset import Split
from circlet.data.feedback import TextFeedback
from circlet.encoders import RowPairs, TextEncoder, TextInput, find, register
from circlet.errors import DataError, ParameterError
from circlet.model import Model, fit, fit_further, further_settings
from circlet.model.feedback import update
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import compress
from circlet.settings import RunSettings, TrainingSettings
from circlet.storage.layout import read_config
from circlet.storage.network_spec import members_of, shapes_of
from circlet.storage.tensors import STORES
from circlet.training import InterruptedRunError
from circlet.training.steps import Batches, recordable

SMALL = {"hidden": (16,), "dim": 24, "dropout": 0.2, "epochs": 3, "batch_size": 16, "lr": 0.01, "validation": 20}


class Letters(TextEncoder):
    """Shares of letters, relative to what is usual: frozen, with something to learn from texts."""

    name, options, width = "letters", ("alphabet",), 26

    def __init__(self, alphabet: str = "abcdefghijklmnopqrstuvwxyz") -> None:
        self.alphabet, self.usual = alphabet, np.zeros(len(alphabet), dtype=np.float32)

    def fit(self, texts):
        self.usual = self._shares(texts).mean(axis=0)
        return self.documents(texts)

    def documents(self, texts):
        return self._shares(texts) - self.usual

    def _shares(self, texts):
        counts = [[text.count(letter) / max(1, len(text)) for letter in self.alphabet] for text in texts]
        return np.array(counts, dtype=np.float32).reshape(-1, len(self.alphabet))

    def state(self):
        return {"learned": True}, {"usual": self.usual}

    def restore(self, values, arrays):
        if values != {"learned": True}:
            raise DataError(f"found {values}")
        self.usual = arrays["usual"]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Keep what a test registers out of the others."""
    before = dict(encoders._registered)
    yield
    encoders._registered.clear()
    encoders._registered.update(before)


def run(**changes) -> RunSettings:
    return RunSettings.of({**SMALL, **changes}, preset="fast")


#: Encoder, and whether a bag of words is beside it.
KINDS = {
    **{name: (name, False) for name in ("letters", *circlet_paper.ENCODERS)},
    "letters and words": ("letters", True),
    "cnn and words": ("cnn", True),
}
MODELS: dict[str, Model] = {}


def settings_of(kind: str) -> RunSettings:
    register(Letters)
    encoder, bag = KINDS[kind]
    return run(encoder=encoder, bag_of_words=bag, **({} if encoder == "letters" else {"embedding": 8}))


@pytest.fixture(params=KINDS)
def settings(request) -> RunSettings:
    return settings_of(request.param)


@pytest.fixture(params=KINDS)
def model(request, split) -> Model:
    """A model that no test changes."""
    settings = settings_of(request.param)
    if request.param not in MODELS:
        MODELS[request.param] = fit(split("texts"), settings)
    return MODELS[request.param]


class TestModels:
    @pytest.mark.parametrize("changes", [{"members": 2, "join": True}, {"join": False, "input_dropout": 0.1}])
    def test_an_interrupted_run_ends_with_the_same_weights(self, changes, settings, split, tmp_path):
        settings = settings.with_values(changes)
        whole = fit(split("texts"), settings)
        with pytest.raises(InterruptedRunError):
            fit(split("texts"), settings, folder=tmp_path, reporter=CtrlC(6))
        assert_same(whole, fit(split("texts"), settings, folder=tmp_path, resume=True))

    def test_saved_and_loaded(self, model, documents, tmp_path):
        model.save(tmp_path)
        loaded, texts, network = Model.load(tmp_path), documents("texts"), model.network
        assert_same(model, loaded)
        assert (tmp_path / "vectorizer.safetensors").exists() == network.settings.bag_of_words
        ids, scores = loaded.top_k(texts, 3, favor_rare=0.5)
        assert np.array_equal(ids, model.top_k(texts, 3, favor_rare=0.5)[0])
        alone = np.concatenate([loaded.top_k([text], 3, favor_rare=0.5)[1] for text in texts])
        np.testing.assert_allclose(alone, scores, rtol=1e-3, atol=1e-4)
        (member,) = members_of(config := read_config(tmp_path))
        found = {name: tuple(weight.shape) for name, weight in model.ranker.weights().items()}
        assert shapes_of(member, config, texts=network.texts) == found

    @pytest.mark.parametrize("store", STORES)
    def test_stored_in_fewer_bits(self, store, model, documents, tmp_path):
        model.save(tmp_path / "model")
        compress(tmp_path / "model", tmp_path / "copy", store)
        found = next(Model.load(tmp_path / "copy").score_blocks(documents("texts")))
        wanted = next(model.score_blocks(documents("texts")))
        assert np.abs(found - wanted).max() < (0.5 if store == "int4" else 0.1) * np.ptp(wanted)

    def test_trained_further_with_new_labels_after_a_calibration_run(self, settings, split):
        model = fit(split("texts"), RunSettings.of(settings.flat() | {"join": True}))
        assert model.sample is None  # few documents have a calibration run
        assert "nDCG@5" in model.history[-1]
        Y = sp.csr_matrix(np.eye(8, dtype=np.float32)[[6, 7] * 10])
        fit_further(model, ["entirely new words", "and others"] * 10, Y, further_settings(model, epochs=1))
        assert model.n_labels == 8
        assert model.top_k(["entirely new words"], 8)[0].shape == (1, 8)

    def test_a_frozen_one_needs_no_torch(self, model, documents, tmp_path):
        texts, encoder = documents("texts"), model.network.settings.encoder
        model.save(tmp_path)
        if encoder != "letters":
            with pytest.raises(DataError, match=f"found a model with encoder {encoder}, which only torch can run"):
                circlet.load(tmp_path)
            return
        runtime = RuntimeModel.load(tmp_path)
        blocks = np.concatenate(list(runtime.score_blocks(texts)))
        np.testing.assert_allclose(blocks, next(model.score_blocks(texts)), rtol=1e-4, atol=1e-4)
        assert np.array_equal(runtime.top_k(texts, 3)[0], model.top_k(texts, 3)[0])
        assert "pip install circlet` is enough" in (tmp_path / "MODEL_CARD.md").read_text()
        with pytest.raises(ParameterError, match="found encoder letters; only features can be explained"):
            circlet.load(tmp_path).explain(texts[:1])

    def test_rows_are_those_of_vectorizer_and_encoder(self, model, split, documents):
        settings, texts = model.network.settings, documents("texts")
        assert isinstance(model.vectorizer, TextInput)
        rows = model.rows(texts)
        assert isinstance(rows, RowPairs) == settings.bag_of_words
        assert rows.shape == (len(texts), model.vectorizer.n_features)
        assert rows[:3].shape == rows[np.array([4, 1, 1])].shape == (3, model.n_features)
        # A GPU records steps over matrices alone.
        batches = Batches(rows, split("texts").Y, TrainingSettings(), 0)
        matrix = settings.encoder == "letters" and not settings.bag_of_words
        assert recordable(model.network, batches, torch.device("cuda")) == matrix


def test_a_vector_beside_a_bag_of_words_makes_a_difference(split, documents):
    model, texts = fit(split("texts"), settings_of("letters and words")), documents("texts")
    wanted = next(model.score_blocks(texts))
    with torch.no_grad():
        model.network.encoder.beside.weight.zero_()
    assert not np.allclose(next(model.score_blocks(texts)), wanted)


def test_a_checkpoint_of_other_texts_is_refused(split, tmp_path):
    with pytest.raises(InterruptedRunError):
        fit(split("texts"), settings_of("cnn"), folder=tmp_path, reporter=CtrlC(6))
    with pytest.raises(DataError, match="found a checkpoint of another run"):
        fit(split("texts", 1), settings_of("cnn"), folder=tmp_path, resume=True)


def test_texts_beside_matrices_are_read(split):
    texts, rows, settings = split("texts"), split("sparse"), settings_of("cnn")
    both = Split(rows.X, texts.Y, texts.texts)
    assert_same(fit(both, settings), fit(texts, settings))
    with pytest.raises(DataError, match="found feature rows without texts; encoder cnn reads texts"):
        fit(rows, settings)
    with pytest.raises(ParameterError, match="found an encoder of its own beside encoder cnn; wanted one of them"):
        fit(texts, settings, encoder=torch.nn.Linear(3, 3))


def test_feedback_is_for_models_that_keep_rows(split):
    entry = TextFeedback("a text", ("1",), ())
    model = fit(split("texts"), run(), encoder=Letters())
    before = next(model.score_blocks(["a text"]))
    assert update(model, [entry]).texts == 1
    assert not np.array_equal(next(model.score_blocks(["a text"])), before)
    for settings in (run(encoder="cnn", embedding=8), run(encoder="letters", bag_of_words=True)):
        with pytest.raises(ParameterError, match="wanted one without --remember 0, and without an encoder that"):
            update(fit(split("texts"), settings), [entry])


@pytest.mark.parametrize("kind", ["letters", "letters and words", "lstm"])
def test_decided_from_the_data(kind, split):
    encoder, bag = KINDS[kind]
    register(Letters)
    given = {"encoder": encoder, "bag_of_words": bag, "epochs": 1, "dim": 16}
    model = fit(split("texts"), RunSettings.from_preset("default", given))
    decided = {each["setting"]: each["value"] for each in model.training["decided"]}
    assert decided["char_ngrams"] == ([3, 5] if kind == "letters and words" else None)
    assert decided["first_layer"] == ("sgd" if kind == "letters and words" else "same")
    assert decided["hidden"] == [512] or encoder == "letters"


class TestObjects:
    def test_one_that_was_made_by_the_caller(self, split, documents, tmp_path):
        model = fit(split("texts"), run(), encoder=Letters("etaoinshrdlucmfwypvbgkqjxz"))
        model.save(tmp_path)
        saved = json.loads((tmp_path / "encoder.json").read_text())
        assert saved == {"settings": {"alphabet": "etaoinshrdlucmfwypvbgkqjxz"}, "state": {"learned": True}}
        config = json.loads((tmp_path / "config.json").read_text())
        assert (config["network"]["encoder"], config["n_features"]) == ("letters", 26)
        assert_same(model, Model.load(tmp_path))

    def test_the_estimator_takes_it(self, tmp_path):
        texts, tags = ["aaa b", "zzz y"] * 20, [["first"], ["last"]] * 20
        given = {**SMALL, "dim": 8, "validation": 0, "epochs": 20, "dropout": 0.0}
        classifier = CircletClassifier(encoder=Letters(), **given).fit(texts, tags)
        assert classifier.suggest(["aab", "zzy"], k=1)[0].tolist() == [["first"], ["last"]]
        classifier.save(tmp_path)
        loaded = CircletClassifier.load(tmp_path)
        assert loaded.encoder == "letters"
        assert np.array_equal(loaded.predict_proba(texts[:2]), classifier.predict_proba(texts[:2]))
        assert np.array_equal(
            CircletClassifier(encoder="letters", **given).fit(texts, tags).predict_proba(texts[:2]),
            classifier.predict_proba(texts[:2]),
        )
        assert CircletClassifier(encoder=None)._settings().network.encoder == "features"
        assert "new" in loaded.partial_fit(texts, [["new", *own] for own in tags]).classes_

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": "wide", "width": 5}, r"of shape \(60, 26\) from encoder wide; wanted 5 finite"),
            (
                {"name": "endless", "documents": lambda self, texts: np.full((len(texts), 26), np.inf)},
                "from encoder endless; wanted 26 finite numbers for each text",
            ),
        ],
    )
    def test_an_encoder_that_gives_something_else(self, changes, message, split):
        with pytest.raises(DataError, match=f"found vectors .*{message}"):
            fit(split("texts"), run(), encoder=type("Other", (Letters,), changes)())


class TestRegistry:
    def test_a_name_belongs_to_one_class(self):
        register(Letters)
        assert register(Letters) is find("letters") is Letters
        assert "letters" in encoders.names()
        with pytest.raises(ParameterError, match="found a second encoder with the name 'letters'"):
            register(type("Other", (TextEncoder,), {"name": "letters"}))
        with pytest.raises(ParameterError, match="with the name 'features'; wanted a name of its own"):
            register(type("Other", (TextEncoder,), {"name": "features"}))

    def test_an_unknown_name_says_which_are_known(self, split, tmp_path):
        message = "`encoder`: found 'letters'; wanted one of features, cnn, lstm, transformer"
        fit(split("texts"), run(), encoder=Letters()).save(tmp_path)
        del encoders._registered["letters"]
        with pytest.raises(ParameterError, match=message):
            find("letters")
        with pytest.raises(DataError, match=message):
            Model.load(tmp_path)
        with pytest.raises(DataError, match=message):
            circlet.load(tmp_path)

    def test_installed_packages_offer_them(self, monkeypatch, tmp_path):
        package = tmp_path / "letters-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1\n")
        (package / "entry_points.txt").write_text(
            f"[{encoders.GROUP}]\nletters = {__name__}:Letters\nlost = no_such_package:Lost\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        encoders._installed.cache_clear()
        try:
            assert {"letters", "lost", "cnn"} <= set(encoders.names())
            assert find("letters").__name__ == "Letters"
            with pytest.raises(ParameterError, match="`encoder`: found 'lost', which its package cannot load"):
                find("lost")
        finally:
            encoders._installed.cache_clear()


class TestDamaged:
    @pytest.fixture
    def folder(self, split, tmp_path):
        fit(split("texts"), settings_of("cnn")).save(tmp_path)
        return tmp_path

    def refused(self, folder, message) -> None:
        with pytest.raises(DataError, match=message) as caught:
            Model.load(folder)
        assert "\n" not in str(caught.value)

    def test_other_words(self, folder, change_config):
        saved = json.loads((folder / "encoder.json").read_text())
        for changes, message in (
            (
                {"state": {"words": ["two"]}},
                r"found members\.0\.reader\.words of shape \(15, 8\); wanted \(3, 8\)",
            ),
            ({"state": {"words": [1]}}, r"encoder\.json: found damaged words of an encoder"),
            ({"settings": {"depth": 3}}, r"encoder\.json: .*unexpected keyword argument 'depth'"),
            ({"settings": {"embedding": 0}}, r"encoder\.json: `embedding`: found 0; wanted an integer >= 1"),
            ({"settings": []}, "wanted the settings and the state of an encoder"),
        ):
            (folder / "encoder.json").write_text(json.dumps({**saved, **changes}))
            self.refused(folder, "found other content than config.json describes")
            change_config(folder)
            self.refused(folder, message)

    def test_other_sizes(self, folder, change_config):
        network = json.loads((folder / "config.json").read_text())["network"]
        for changes, message in (
            ({"hidden": [10**9]}, r"found members\.0\.\S+ of shape .*; wanted"),
            ({"encoder": "lstm"}, "found an encoder and features of 32 columns; wanted 1536, as config.json says"),
            ({"encoder": "bert"}, "`encoder`: found 'bert'; wanted one of features, cnn, "),
            ({"bag_of_words": True}, r"found a list of 3 files; wanted vectorizer\.json among them"),
        ):
            change_config(folder, network={**network, **changes})
            self.refused(folder, message)
        change_config(folder, network=network, texts=False)
        self.refused(folder, "found an encoder that reads texts; wanted `texts` to be true")
