"""Models with an encoder of texts: fitted, interrupted, saved, used and trained further, as any other."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.runs import CtrlC, assert_same

import circlet_paper
from circlet.data.dataset import Split
from circlet.errors import DataError, ParameterError
from circlet.model import Model, fit, fit_further, further_settings
from circlet.runtime.compression import compress
from circlet.settings import RunSettings
from circlet.storage.layout import read_config
from circlet.storage.network_spec import members_of, shapes_of
from circlet.storage.tensors import STORES
from circlet.training import InterruptedRunError
from circlet_paper.reader_layers import ReaderNetwork

READERS = tuple(circlet_paper.ENCODERS)
SMALL = {"hidden": (16,), "dim": 24, "embedding": 8, "dropout": 0.2, "epochs": 3, "batch_size": 16, "lr": 0.01}


def run(encoder: str = "cnn", **changes) -> RunSettings:
    return RunSettings.of({"encoder": encoder, **SMALL, **changes}, preset="fast")


@pytest.mark.parametrize("encoder", READERS)
@pytest.mark.parametrize("join", [True, False])
def test_an_interrupted_run_ends_with_the_same_weights(encoder, join, split, tmp_path):
    settings = run(encoder, join=join, validation=20, input_dropout=0.1)
    whole = fit(split("texts"), settings)
    with pytest.raises(InterruptedRunError):
        fit(split("texts"), settings, folder=tmp_path, reporter=CtrlC(6))
    resumed = fit(split("texts"), settings, folder=tmp_path, resume=True)
    assert_same(whole, resumed)


def test_a_checkpoint_of_other_texts_is_refused(split, tmp_path):
    with pytest.raises(InterruptedRunError):
        fit(split("texts"), run(), folder=tmp_path, reporter=CtrlC(6))
    with pytest.raises(DataError, match="found a checkpoint of another run"):
        fit(split("texts", 1), run(), folder=tmp_path, resume=True)


@pytest.mark.parametrize("encoder", READERS)
def test_saved_and_loaded(encoder, split, documents, tmp_path):
    model = fit(split("texts"), run(encoder))
    assert isinstance(model.network.encoder.reader, ReaderNetwork)
    model.save(tmp_path)
    assert not (tmp_path / "vectorizer.safetensors").exists()
    loaded = Model.load(tmp_path)
    assert_same(model, loaded)
    ids, scores = loaded.top_k(documents("texts"), 3)
    assert np.array_equal(ids, model.top_k(documents("texts"), 3)[0])
    alone = np.concatenate([loaded.top_k([text], 3)[1] for text in documents("texts")])
    np.testing.assert_allclose(alone, scores, rtol=1e-3, atol=1e-4)
    (member,) = members_of(config := read_config(tmp_path))
    found = {name: tuple(weight.shape) for name, weight in model.ranker.weights().items()}
    assert shapes_of(member, config, texts=model.network.texts) == found


@pytest.mark.parametrize("store", STORES)
def test_stored_in_fewer_bits(store, split, documents, tmp_path):
    model = fit(split("texts"), run())
    model.save(tmp_path / "model")
    compress(tmp_path / "model", tmp_path / "copy", store)
    found = next(Model.load(tmp_path / "copy").score_blocks(documents("texts")))
    wanted = next(model.score_blocks(documents("texts")))
    assert np.abs(found - wanted).max() < (0.5 if store == "int4" else 0.1) * np.ptp(wanted)


def test_members_and_rare_labels(split, documents, tmp_path):
    model = fit(split("texts"), run(members=2))
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert_same(model, loaded)
    assert loaded.top_k(documents("texts"), 3, favor_rare=0.5)[0].shape == (80, 3)


def test_few_documents_have_a_calibration_run(split):
    settings = RunSettings.of({"encoder": "cnn", **SMALL, "join": True, "validation": 20})
    assert settings.has_calibration_run(80)
    model = fit(split("texts"), settings)
    assert model.sample is None
    assert "nDCG@5" in model.history[-1]
    assert "lost" not in model.history[-1]


def test_decided_from_the_data(split):
    facts = {"epochs": 2, "dim": 16, "embedding": 8}
    model = fit(split("texts"), RunSettings.from_preset("default", {"encoder": "lstm", **facts}))
    decided = {each["setting"]: each for each in model.training["decided"]}
    assert (decided["first_layer"]["value"], decided["first_layer"]["tried"]) == ("same", False)
    assert decided["hidden"]["value"] == [512]


def test_trained_further_with_new_labels(split):
    model = fit(split("texts"), run("transformer"))
    Y = sp.csr_matrix(np.eye(8, dtype=np.float32)[[6, 7] * 10])
    fit_further(model, ["entirely new words", "and others"] * 10, Y, further_settings(model, epochs=1))
    assert model.n_labels == 8
    assert model.top_k(["entirely new words"], 8)[0].shape == (1, 8)


def test_texts_beside_matrices_are_read(split):
    texts, rows = split("texts"), split("sparse")
    both = Split(rows.X, texts.Y, texts.texts)
    assert_same(fit(both, run()), fit(texts, run()))
    with pytest.raises(
        DataError, match=r"found feature rows without texts; encoder cnn reads texts: name documents"
    ):
        fit(rows, run())
    with pytest.raises(ParameterError, match="found an encoder of its own beside encoder cnn; wanted one of them"):
        fit(texts, run(), encoder=torch.nn.Linear(3, 3))


class TestDamaged:
    @pytest.fixture
    def folder(self, split, tmp_path):
        fit(split("texts"), run()).save(tmp_path)
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
        change_config(folder, network={**network, "hidden": [10**9]})
        self.refused(folder, r"found members\.0\.\S+ of shape .*; wanted")
        change_config(folder, network={**network, "encoder": "lstm"})
        self.refused(folder, "found an encoder and features of 32 columns; wanted 1536, as config.json says")
        change_config(folder, network={**network, "encoder": "bert"})
        self.refused(folder, "`encoder`: found 'bert'; wanted one of features, cnn, lstm, transformer")
        change_config(folder, network={**network, "bag_of_words": True})
        self.refused(folder, r"found a list of 3 files; wanted vectorizer\.json among them")

    def test_without_texts(self, folder, change_config):
        change_config(folder, texts=False)
        self.refused(folder, "found an encoder that reads texts; wanted `texts` to be true")
