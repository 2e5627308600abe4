"""Models and interrupted runs that circlet 0.1.0 wrote, one on texts and one on a matrix, still work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.torch import load_file

from circlet import CircletClassifier
from circlet.cli import app
from circlet.errors import DataError
from circlet.model import Model
from circlet.training import steps

SAVED = Path(__file__).parent / "saved_by_0_1_0"
pytestmark = pytest.mark.usefixtures("one_thread")


def test_text(capsys):
    app(["predict", str(SAVED / "text"), str(SAVED / "texts.jsonl"), "-k", "3"], standalone_mode=False)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [json.loads(line) for line in (SAVED / "text.predicted.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in found] == [row["labels"] for row in expected]
    np.testing.assert_allclose([row["scores"] for row in found], [row["scores"] for row in expected], atol=2e-4)


def test_matrix():
    classifier = CircletClassifier.load(SAVED / "matrix")
    X = sp.load_npz(SAVED / "rows" / "X.trn.npz")
    labels, scores = classifier.suggest(X, 4)
    expected = json.loads((SAVED / "matrix.suggested.json").read_text())
    np.testing.assert_array_equal(labels, expected["labels"])
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    assert classifier.scaling == "tfidf"
    assert classifier.codebook == "independent"


def test_what_they_did_not_keep_is_not_made_up():
    model = Model.load(SAVED / "text")
    assert model.label_counts is None
    model.count(sp.csr_matrix((3, model.n_labels)))  # counts of later documents alone would mislead
    assert model.label_counts is None


def test_rare_labels_are_unknown(circlet):
    for words in (["predict", SAVED / "text", "-"], ["evaluate", SAVED / "text", SAVED / "texts.jsonl"]):
        finished = circlet(*words, "--favor-rare", "0.5")
        assert finished.returncode == 2
        assert finished.stderr == (
            "circlet: found a model of an older version, which did not save how often each label occurred; wanted "
            "these counts, to favor rare labels: train it again, or leave `favor_rare` out\n"
        )
    with pytest.raises(DataError, match="train it again, or leave `favor_rare` out"):
        CircletClassifier.load(SAVED / "matrix").suggest(sp.load_npz(SAVED / "rows" / "X.trn.npz"), favor_rare=1)


@pytest.mark.parametrize(("kind", "data"), [("text", "texts.jsonl"), ("matrix", "rows")])
def test_an_interrupted_run_resumes_to_the_same_weights(kind, data, tmp_path, monkeypatch):
    shutil.copytree(SAVED, tmp_path / "saved")
    monkeypatch.chdir(tmp_path / "saved")
    monkeypatch.setattr(steps, "multiplies_bfloat16", lambda _: False)  # as 0.1.0 did on every CPU
    app(["train", data, "--model", f"interrupted-{kind}", "--resume"], standalone_mode=False)
    found = load_file(f"interrupted-{kind}/weights.safetensors")
    expected = load_file(f"resumed-{kind}.safetensors")
    del found["label_counts"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        # The last digits may differ on another processor.
        np.testing.assert_allclose(found[name].numpy(), tensor.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    records = json.loads(Path(f"interrupted-{kind}/history.json").read_text())
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 5, 6]
