"""Commands with a model that has an encoder of texts."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from circlet import CircletClassifier, load
from circlet.errors import DataError
from circlet.model import Model

SIZES = [
    *("--dim", "32", "--hidden", "24", "--embedding", "16", "--dropout", "0.1"),
    *("--epochs", "8", "--lr", "0.01", "--batch-size", "16"),
]
#: Runs a command where torch is not installed.
WITHOUT = "import sys; sys.modules['torch'] = None; from circlet.cli import main; main()"


@pytest.fixture(scope="module")
def reader(tmp_path_factory, as_json, data):
    folder = tmp_path_factory.mktemp("reader") / "model"
    summary = as_json("train", data, "--model", folder, "--encoder", "cnn", *SIZES, "--validation", "20")
    assert summary["network"]["encoder"] == "cnn"
    return folder


def test_it_is_used_as_any_model(reader, as_json, predict, data):
    texts = ["the fox and the wolf and the bear", "the rain and the snow", "nothing known"]
    model = Model.load(reader)
    wanted = [[model.label_names[label] for label in row] for row in model.top_k(texts, 2)[0].tolist()]
    found = predict(reader, "".join(f"{text}\n" for text in texts), "-k", "2", "--threshold", "0")
    assert [each["labels"] for each in found] == wanted
    assert as_json("evaluate", reader, data)["P@1"] > 0.9


def test_info(reader, as_json, works):
    words = " ".join(works("info", reader, "--verify").stdout.split())
    assert "cnn, embedding 16, max_words 256, min_df 1, max_features none" in words
    assert "texts, 1,536 numbers of an encoder" in words
    described = as_json("info", reader)
    assert described["network"]["encoder"] == "cnn"
    assert described["parameters"]["encoder"] > 0
    assert {each["setting"]: each["value"] for each in described["training"]["decided"]}["first_layer"] == "same"


def test_a_bag_of_words_beside_it(works, data, as_json, predict, refused, tmp_path):
    both = tmp_path / "both"
    options = [*SIZES, "--epochs", "2", "--encoder", "lstm", "--bag-of-words", "--char-ngrams", "2,3"]
    works("train", data, "--model", both, *options)
    shown = " ".join(works("info", both).stdout.split())
    assert "lstm, embedding 16, max_words 256" in shown
    assert "beside a bag of words" in shown
    assert predict(both, "the fox\n")
    works("train", data, "--model", both, "--continue", "--epochs", "1")
    assert as_json("evaluate", both, data)["P@1"] > 0.5
    assert "found encoder lstm" in refused("export", both, tmp_path / "tagger.onnx")


def test_smaller_copies_and_exports(reader, predict, works, refused, tmp_path):
    line = refused("compress", reader, "--output", tmp_path / "copy")
    assert "found encoder cnn; wanted encoder features to search for the smallest copy" in line
    works("compress", reader, "--store", "int8", "--output", tmp_path / "copy")
    assert predict(tmp_path / "copy", "the fox\n")
    line = refused("export", reader, tmp_path / "tagger.onnx")
    assert "found encoder cnn; only models with encoder features can be exported" in line
    assert not (tmp_path / "tagger.onnx").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "cnn", "--char-ngrams", "3,5"], "`char_ngrams`: found (3, 5); wanted None for encoder cnn"),
        (["--encoder", "lstm", "--first-layer", "sgd"], "`first_layer`: found 'sgd'; wanted same"),
        (["--encoder", "transformer", "--embedding", "30"], "`embedding`: found 30; wanted a multiple of 4"),
        (["--encoder", "cnn", "--keep-index"], "--keep-index: found encoder cnn, which only torch can run"),
    ],
)
def test_settings_that_do_not_fit(options, message, refused, data, tmp_path):
    assert message in refused("train", data, "--model", tmp_path / "new", *options)
    assert not (tmp_path / "new").exists()


def test_matrices_have_no_texts_to_read(circlet, tmp_path):
    for part in ("X", "Y"):
        sp.save_npz(tmp_path / f"{part}.trn.npz", sp.csr_matrix(np.eye(5, dtype=np.float32)))
    refused = circlet("train", tmp_path, "--model", tmp_path / "new", "--encoder", "cnn")
    assert refused.returncode == 2
    assert "found feature rows without texts; encoder cnn reads texts" in refused.stderr
    assert not list(tmp_path.glob("new/*.safetensors"))


def test_without_torch(reader, data, process):
    for words in (["predict", reader, "-"], ["evaluate", reader, data]):
        done = process(sys.executable, "-c", WITHOUT, *map(str, words))
        wanted = "a model with encoder cnn needs torch, which is not installed: pip install 'circlet[train]'\n"
        assert (done.returncode, done.stderr) == (2, f"circlet: {wanted}")
    described = process(sys.executable, "-c", WITHOUT, "info", str(reader), "--json")
    assert json.loads(described.stdout)["network"]["encoder"] == "cnn"


def test_the_runtime_says_what_to_install(reader):
    with pytest.raises(DataError, match=r"encoder cnn, which only torch can run: pip install 'circlet\[train\]'"):
        load(reader)
    loaded = CircletClassifier.load(reader)
    assert (loaded.encoder, loaded.embedding) == ("cnn", 16)
    assert loaded.suggest("the fox and the wolf", k=1)[0].shape == (1, 1)
