"""A codebook written as CONTRIBUTING says works everywhere: in the network, the estimator and the commands."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from circlet import CircletClassifier, codebooks, load
from circlet.codebooks import Codebook
from circlet.runtime import codebooks as runtime_codebooks
from circlet.runtime.codebooks import CodesInBlocks
from circlet.settings import network as names

TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 8
LABELS = [["animal", "red"], ["vehicle"], ["animal"], ["vehicle", "old"]] * 8
SMALL = {"dim": 64, "hidden": (32,), "epochs": 25, "batch_size": 8, "dropout": 0.0, "validation": 0}


class WalshCodebook(Codebook):
    """Rows of a Hadamard matrix in Sylvester's order, scaled to norm 1: orthogonal while labels last."""

    @property
    def width(self) -> int:
        return self.dim

    def _generate(self, ids: Tensor) -> Tensor:
        shared = ids[:, None] & torch.arange(self.dim, device=ids.device)
        bits = sum(((shared >> bit) & 1) for bit in range(16))
        return (1 - 2 * (bits % 2)).float() / math.sqrt(self.dim)


class WalshCodebookOfArrays(CodesInBlocks):
    """The same for a model in use."""

    numbers = 1

    def _generate(self, ids: np.ndarray) -> np.ndarray:
        shared = ids[:, None] & np.arange(self.dim)
        bits = sum(((shared >> bit) & 1) for bit in range(16))
        return (1 - 2 * (bits % 2)).astype(np.float32) / np.float32(math.sqrt(self.dim))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(codebooks.CODEBOOKS, "walsh", WalshCodebook)
    monkeypatch.setitem(runtime_codebooks.CODEBOOKS, "walsh", WalshCodebookOfArrays)
    monkeypatch.setitem(names.CODEBOOKS, "walsh", "real")


def test_scores_and_ranking():
    book = WalshCodebook(50, 64)
    codes = book.codes(torch.arange(50))
    torch.testing.assert_close(book.scores(codes), torch.eye(50))
    ids, scores = book.top_k(codes, 1, bias=torch.zeros(50))
    assert ids[:, 0].tolist() == list(range(50))
    torch.testing.assert_close(scores[:, 0], torch.ones(50))
    assert torch.equal(torch.cat(list(book.blocks())), codes)
    assert book.slots_on(torch.device("cpu")) is None


def test_a_model_in_use_has_the_same_codes():
    ids = np.arange(50)
    expected = WalshCodebook(50, 64).codes(torch.from_numpy(ids)).numpy()
    np.testing.assert_array_equal(WalshCodebookOfArrays(50, 64).codes(ids), expected)


@pytest.mark.parametrize("loss", ["bce", "cosine", "softmax"])
def test_estimator(loss, tmp_path):
    classifier = CircletClassifier(head="hrr", codebook="walsh", loss=loss, **SMALL).fit(TEXTS, LABELS)
    found, scores = classifier.suggest(TEXTS[:4], k=2)
    assert found[:, 0].tolist()[1:3] == ["vehicle", "animal"]
    assert classifier.score(TEXTS, LABELS) == 1
    classifier.partial_fit(["a red lorry"], [["red", "vehicle"]])
    found, scores = classifier.suggest(TEXTS[:4], k=2)
    classifier.save(tmp_path)
    again, same = CircletClassifier.load(tmp_path).suggest(TEXTS[:4], k=2)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(same, scores)
    np.testing.assert_allclose(load(tmp_path).suggest(TEXTS[:4], k=2)[1], scores, atol=1e-5)


def test_command(circlet, tmp_path):
    lines = (json.dumps({"text": text, "labels": own}) for text, own in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    options = ["--head", "hrr", "--codebook", "walsh", "--dim", "64", "--hidden", "32", "--epochs", "20"]
    data, model = str(tmp_path / "mine.jsonl"), str(tmp_path / "model")
    finished = circlet("train", data, "--model", model, *options, "--batch-size", "8")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(circlet("predict", model, "-", "-k", "1", stdin="a brown bear\n").stdout)
    assert found["labels"] == ["animal"]
    assert "WalshCodebook" in circlet("info", model).stdout
