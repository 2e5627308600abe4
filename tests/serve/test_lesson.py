from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

import circlet
from circlet.data.feedback import Judged
from circlet.errors import ParameterError
from circlet.folder.compress import compress
from circlet.model import Model
from circlet.serve import lesson
from circlet.serve.lesson import give

pytestmark = pytest.mark.usefixtures("one_thread")

MUSIC = Judged("drum piano", ("music",), ("food",))


def test_a_taught_model_is_written_and_the_model_stays(teachable, tmp_path):
    before = {path.name: path.read_bytes() for path in teachable.iterdir()}
    answer = give(teachable, tmp_path / "out", [MUSIC])
    assert answer == {"texts": 1, "new": ["music"], "left_out": []}
    assert circlet.load(tmp_path / "out").suggest(["drum piano"], k=1)[0][0, 0] == "music"
    assert {path.name: path.read_bytes() for path in teachable.iterdir()} == before


def test_a_classifier_stays_one(tmp_path):
    texts, labels = ["red fox", "fast car", "brown bear", "old lorry"] * 10, ["a", "v", "a", "v"] * 10
    options = {"dim": 16, "hidden": (8,), "epochs": 5, "validation": 0}
    circlet.CircletClassifier(top_k=1, **options).fit(texts, [[label] for label in labels]).save(tmp_path / "m")
    assert give(tmp_path / "m", tmp_path / "out", [Judged("old bear", ("b",), ())])["new"] == ["b"]
    assert circlet.load(tmp_path / "out").top_k == 1
    assert circlet.CircletClassifier.load(tmp_path / "out").classes_.tolist() == ["a", "v", "b"]
    numbers = [{"a": 1, "v": 2}[label] for label in labels]
    circlet.CircletClassifier(**options).fit(texts, numbers).save(tmp_path / "n")
    # Its classes are numbers, and a user's new label is not.
    assert give(tmp_path / "n", tmp_path / "out-n", [Judged("old bear", ("b",), ("1",))])["left_out"] == ["b"]
    assert circlet.load(tmp_path / "out-n").classes_.tolist() == [1, 2]


def test_labels_with_uris(teachable, tmp_path):
    named, uris = Model.load(teachable), [f"http://example.org/{n}" for n in range(3)]
    named.label_uris = uris
    named.save(tmp_path / "named")
    by_uri = Judged("drum flute", ("http://example.org/2",), ())
    assert give(tmp_path / "named", tmp_path / "out", [MUSIC, by_uri])["new"] == ["music"]
    taught = circlet.load(tmp_path / "out")
    assert taught.classes_.tolist() == ["animal", "food", "vehicle", "music"]
    assert taught.uris_ == [*uris, "music"]


def test_a_small_copy_remembers_nothing(teachable, tmp_path):
    compress(teachable, tmp_path / "small", "int8")
    with pytest.raises(ParameterError, match="remembers no rows"):
        give(tmp_path / "small", tmp_path / "out", [MUSIC])
    assert not (tmp_path / "out").exists()


def test_mistakes_are_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(lesson, "_end_with", lambda _: None)  # it would end this process
    asked = {"folder": str(tmp_path / "none"), "output": str(tmp_path / "out"), "corrections": []}
    answers = io.StringIO()
    assert lesson.main(io.StringIO(json.dumps(asked) + "\n"), answers) == 1
    assert "is not a circlet model" in json.loads(answers.getvalue())["error"]


@pytest.mark.slow
def test_it_ends_with_the_process_that_asked(teachable, tmp_path):
    child = subprocess.Popen([sys.executable, "-m", "circlet.serve.lesson"], stdin=subprocess.PIPE, text=True)
    asked = {"folder": str(teachable), "output": str(tmp_path / "out"), "corrections": [["drum", ["music"], []]]}
    child.communicate(json.dumps(asked) + "\n")  # and the input ends
    assert child.returncode in (0, 3)
