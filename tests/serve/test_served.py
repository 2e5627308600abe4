from __future__ import annotations

import json

import numpy as np
import pytest

from circlet.errors import DataError
from circlet.runtime import load
from circlet.serve.served import Options, Served, Snapshot


def test_load(folder):
    made = Served.load(folder, "name")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert made.current.version == config["sha256"][:12]
    assert made.summary()["id"] == "name"
    assert made.card()["can_learn"] is False
    json.dumps(made.card(), allow_nan=False)


def test_damaged_folders(tmp_path):
    with pytest.raises(DataError, match="is not a circlet model"):
        Served.load(tmp_path, "name")


def test_labels_without_names(shared, tmp_path):
    shared("sparse", False).save(tmp_path / "rows")
    now = Snapshot(load(tmp_path / "rows"), "v")
    assert now.names == ["0", "1", "2", "3", "4", "5"]
    assert now.labels["3"] == 3
    assert now.takes == "rows"
    ((label, chance), _) = now.suggest(Options(2), [{0: 2.0}])[0]
    assert isinstance(label, str)
    assert 0 < chance < 1


def test_suggestions_are_those_of_the_tagger(tagger, documents):
    now, texts = Snapshot(tagger, "v"), documents("texts")[:5]
    labels, chances = tagger.suggest(texts, k=2)
    found = now.suggest(Options(2), texts)
    assert [[label for label, _ in row] for row in found] == labels.tolist()
    np.testing.assert_allclose([[chance for _, chance in row] for row in found], chances, atol=1e-6)
    assert now.suggest(Options(3, threshold=1.0), texts) == [[]] * 5


def test_equal_options_have_equal_keys(tagger):
    now = Snapshot(tagger, "v")
    assert now.suggesting(Options(2))[0] == now.suggesting(Options(2))[0]
    assert now.suggesting(Options(2))[0] != now.suggesting(Options(3))[0]
    assert now.suggesting(Options(2))[0] != Snapshot(tagger, "v").suggesting(Options(2))[0]
