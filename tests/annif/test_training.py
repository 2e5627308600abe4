"""Training from a file of documents, and learning more; Annif has no part in it."""

from __future__ import annotations

import numpy as np
import pytest

from circlet import load
from circlet.annif.parameters import DEFAULTS, settings_of
from circlet.annif.training import fitted, learn, with_room
from circlet.data.load import read_splits
from circlet.data.records import Record, write_records
from circlet.errors import CircletError
from circlet.storage.layout import read_config

QUICK = settings_of({**DEFAULTS, "preset": "fast", "hidden": "32", "epochs": "15"})
COLORS = ("red", "green", "blue")
OLD = [
    Record(i, f"{color} {'and some violet' if i == 0 else i % 3}", (f"http://x/{color}",))
    for i in range(12)
    for color in COLORS
]
#: Of a new subject, in words that are known already: learning adds no words.
NEW = [Record(i, "violet", ("http://x/violet",)) for i in range(8)]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("annif") / "train.jsonl.gz"
    write_records(path, OLD, "jsonl")
    return path


def test_a_model_has_labels_and_slots_for_every_subject(train, tmp_path):
    said: list[str] = []
    fitted(train, QUICK, "cpu", said.append, subjects=500).save(tmp_path, "int8")
    assert any(line.startswith("decided: ") and "dropout" in line for line in said)
    assert sum("of 15: loss" in line for line in said) == 15
    labels, _ = load(tmp_path).suggest(["red", "blue"], k=1)
    assert labels.ravel().tolist() == ["http://x/red", "http://x/blue"]
    assert read_config(tmp_path)["members"][0]["codebook"]["length"] >= 500


@pytest.mark.parametrize("subjects", [4, 5, 79, 82, 501])
def test_room_fits_every_dimension(subjects):
    split, _, _ = read_splits(OLD)
    slots = with_room(QUICK, split, subjects).network.slots
    assert slots % 2 == 0
    assert slots >= max(subjects, 2 * (32 + 1))  # 32 is the least dimension that rules decide


def test_learning_adds_a_subject_and_keeps_the_others(train, tmp_path):
    model = fitted(train, QUICK, "cpu", str)
    model.save(tmp_path, "int8")
    before = load(tmp_path)
    with pytest.raises(CircletError):
        learn(tmp_path, NEW, epochs=0, device="cpu", say=str)
    said: list[str] = []
    learn(tmp_path, NEW, epochs=20, device="cpu", say=said.append)
    after = load(tmp_path)
    assert said[0] == "learning from 8 documents, with 1 new subjects"
    assert after.classes_.tolist() == [*before.classes_.tolist(), "http://x/violet"]
    assert after.suggest(["violet"], k=1)[0][0, 0] == "http://x/violet"
    assert after.suggest(["green"], k=1)[0][0, 0] == "http://x/green"
    assert after.model_.documents_seen == before.model_.documents_seen + 8
    assert read_config(tmp_path)["store"] == "int8"
    np.testing.assert_array_equal(after.model_.label_counts, [12, 12, 12, 8])
