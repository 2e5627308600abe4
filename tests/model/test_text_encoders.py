"""The seam for what reads texts: encoders of one's own, frozen or trained, alone or beside a bag of words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.training.runs import CtrlC, assert_same

import circlet
from circlet import CircletClassifier, encoders
from circlet.data.feedback import TextFeedback
from circlet.encoders import RowPairs, TextEncoder, TextInput, find, register
from circlet.errors import DataError, ParameterError
from circlet.model import Model, fit, fit_further, further_settings
from circlet.model.feedback import update
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import compress
from circlet.settings import RunSettings
from circlet.training import InterruptedRunError

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
KINDS = {"letters": ("letters", False), "letters and words": ("letters", True), "cnn and words": ("cnn", True)}


@pytest.fixture(params=KINDS)
def settings(request) -> RunSettings:
    register(Letters)
    encoder, bag = KINDS[request.param]
    return run(encoder=encoder, bag_of_words=bag, **({"embedding": 8} if encoder == "cnn" else {}))


class TestModels:
    @pytest.mark.parametrize("changes", [{}, {"members": 2}, {"join": False, "input_dropout": 0.1}])
    def test_an_interrupted_run_ends_with_the_same_weights(self, changes, settings, split, tmp_path):
        settings = settings.with_values(changes)
        whole = fit(split("texts"), settings)
        with pytest.raises(InterruptedRunError):
            fit(split("texts"), settings, folder=tmp_path, reporter=CtrlC(6))
        assert_same(whole, fit(split("texts"), settings, folder=tmp_path, resume=True))

    def test_saved_loaded_and_trained_further(self, settings, split, documents, tmp_path):
        model, texts = fit(split("texts"), settings), documents("texts")
        model.save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model")
        assert_same(model, loaded)
        wanted = next(model.score_blocks(texts))
        assert np.array_equal(next(loaded.score_blocks(texts)), wanted)
        compress(tmp_path / "model", tmp_path / "int8", "int8")
        found = next(Model.load(tmp_path / "int8").score_blocks(texts))
        assert np.abs(found - wanted).max() < 0.1 * np.ptp(wanted)
        fit_further(loaded, texts, split("texts").Y[: len(texts)], further_settings(loaded, epochs=1))
        assert not np.array_equal(next(loaded.score_blocks(texts)), wanted)

    def test_a_frozen_one_needs_no_torch(self, settings, split, documents, tmp_path):
        model, texts = fit(split("texts"), settings), documents("texts")
        model.save(tmp_path)
        if settings.network.encoder == "cnn":
            with pytest.raises(DataError, match="found a model with encoder cnn, which only torch can run"):
                circlet.load(tmp_path)
            return
        runtime = RuntimeModel.load(tmp_path)
        blocks = np.concatenate(list(runtime.score_blocks(texts)))
        np.testing.assert_allclose(blocks, next(model.score_blocks(texts)), rtol=1e-4, atol=1e-4)
        assert np.array_equal(runtime.top_k(texts, 3)[0], model.top_k(texts, 3)[0])
        assert "pip install circlet` is enough" in (tmp_path / "MODEL_CARD.md").read_text()
        with pytest.raises(ParameterError, match="found encoder letters; only features can be explained"):
            circlet.load(tmp_path).explain(texts[:1])

    def test_the_rows_are_those_of_vectorizer_and_encoder(self, settings, split, documents):
        model = fit(split("texts"), settings)
        assert isinstance(model.vectorizer, TextInput)
        rows = model.rows(documents("texts"))
        assert isinstance(rows, RowPairs) == settings.network.bag_of_words
        assert rows.shape == (len(documents("texts")), model.vectorizer.n_features)
        assert rows[:3].shape == rows[np.array([4, 1, 1])].shape == (3, model.n_features)

    def test_a_vector_beside_a_bag_of_words_makes_a_difference(self, settings, split, documents):
        model = fit(split("texts"), settings)
        layer = model.network.encoder.beside
        assert (layer is not None) == settings.network.bag_of_words
        if layer is not None:
            wanted = next(model.score_blocks(documents("texts")))
            with torch.no_grad():
                layer.weight.zero_()
            assert not np.allclose(next(model.score_blocks(documents("texts"))), wanted)

    def test_few_documents_have_a_calibration_run(self, settings, split):
        settings = RunSettings.of(settings.flat() | {"join": True})
        assert settings.has_calibration_run(80)
        assert "nDCG@5" in fit(split("texts"), settings).history[-1]


def test_feedback_is_for_models_that_keep_rows(split):
    entry = TextFeedback("a text", ("1",), ())
    model = fit(split("texts"), run(), encoder=Letters())
    before = next(model.score_blocks(["a text"]))
    assert update(model, [entry]).texts == 1
    assert not np.array_equal(next(model.score_blocks(["a text"])), before)
    for settings in (run(encoder="cnn", embedding=8), run(encoder="letters", bag_of_words=True)):
        with pytest.raises(ParameterError, match="wanted one without --remember 0, and without an encoder that"):
            update(fit(split("texts"), settings), [entry])


def test_open_settings_of_a_frozen_encoder(split):
    register(Letters)
    for bag in (False, True):
        given = {"encoder": "letters", "bag_of_words": bag, "epochs": 1, "dim": 16, "hidden": (8,)}
        model = fit(split("texts"), RunSettings.from_preset("default", given))
        decided = {each["setting"]: each["value"] for each in model.training["decided"]}
        assert decided["char_ngrams"] == ([3, 5] if bag else None)


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

    def test_an_encoder_that_gives_something_else(self, split):
        class Wide(Letters):
            name, width = "wide", 5

        with pytest.raises(
            DataError, match=r"found vectors of shape \(60, 26\) from encoder wide; wanted 5 finite"
        ):
            fit(split("texts"), run(), encoder=Wide())

        class Endless(Letters):
            name = "endless"

            def documents(self, texts):
                return np.full((len(texts), 26), np.inf)

        with pytest.raises(DataError, match="from encoder endless; wanted 26 finite numbers for each text"):
            fit(split("texts"), run(), encoder=Endless())


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
