"""A codebook written as CONTRIBUTING says works everywhere: in the network, the estimator and the commands."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from circlet import CircletClassifier, codebooks, load
from circlet.codebooks import Codebook
from circlet.settings import network as names

TEXTS = ["red fox", "fast car", "brown bear", "old lorry"] * 8
LABELS = [["animal", "red"], ["vehicle"], ["animal"], ["vehicle", "old"]] * 8
SMALL = {"dim": 64, "hidden": (32,), "epochs": 25, "batch_size": 8, "dropout": 0.0, "validation": 0}


class WalshCodebook(Codebook):
    """Rows of a Hadamard matrix in Sylvester's order, scaled to norm 1: orthogonal while labels last."""

    kind = "real"

    def _generate(self, ops: Any, ids: Any) -> Any:
        shared = ids[:, None] & ops.arange(0, self.dim, ids)
        bits = sum(((shared >> bit) & 1) for bit in range(16))
        return ops.single(1 - 2 * (bits % 2)) / math.sqrt(self.dim)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(codebooks.CODEBOOKS, "walsh", WalshCodebook)
    monkeypatch.setitem(names.CODEBOOKS, "walsh", "real")


def test_scores_and_ranking():
    book, codes = WalshCodebook(50, 64), {}
    for kind, ids in {"tensors": torch.arange(50), "arrays": np.arange(50)}.items():
        codes[kind] = book.codes(ids)
        np.testing.assert_allclose(book.scores(codes[kind]), np.eye(50), atol=1e-6)
        found, scores = book.top_k(codes[kind], 1, bias=book.scale * codes[kind][:, 0])
        assert found[:, 0].tolist() == list(range(50))
        np.testing.assert_allclose(scores[:, 0], 1.125)
    np.testing.assert_array_equal(codes["arrays"], codes["tensors"])
    assert book.slots_on(torch.device("cpu")) is None


@pytest.mark.parametrize("loss", ["bce", "cosine", "softmax"])
def test_estimator(loss, tmp_path):
    classifier = CircletClassifier(head="hrr", codebook="walsh", loss=loss, **SMALL).fit(TEXTS, LABELS)
    assert classifier.score(TEXTS, LABELS) == 1
    classifier.partial_fit(["a red lorry"], [["red", "vehicle"]])
    found, scores = classifier.suggest(TEXTS[:4], k=2)
    assert found[:, 0].tolist()[1:3] == ["vehicle", "animal"]
    classifier.save(tmp_path)
    again, same = CircletClassifier.load(tmp_path).suggest(TEXTS[:4], k=2)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(same, scores)
    np.testing.assert_allclose(load(tmp_path).suggest(TEXTS[:4], k=2)[1], scores, atol=1e-5)


def test_command(works, tmp_path):
    lines = (json.dumps({"text": text, "labels": own}) for text, own in zip(TEXTS, LABELS, strict=True))
    data, model = tmp_path / "mine.jsonl", tmp_path / "model"
    data.write_text("\n".join(lines))
    options = ["--head", "hrr", "--codebook", "walsh", "--dim", "64", "--hidden", "32", "--epochs", "20"]
    works("train", data, "--model", model, *options, "--batch-size", "8")
    found = json.loads(works("predict", model, "-", "-k", "1", stdin="a brown bear\n").stdout)
    assert found["labels"] == ["animal"]
    assert "WalshCodebook" in works("info", model).stdout
