from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circlet
from circlet.data.feedback import TextFeedback
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.model import Model
from circlet.model.feedback import Update
from circlet.model.session import update_saved
from circlet.runtime.compression import compress
from circlet.serve import feedback
from circlet.serve.feedback import KEPT, Learner, answer_to, versions_folder, why_not
from circlet.serve.served import Served

MUSIC = TextFeedback("drum piano", ("music",), ("food",))


@pytest.fixture
def trainings(monkeypatch, train_here) -> list[int]:
    """Learn in this process; gives the number of entries of each training."""
    counts: list[int] = []

    def train(self: Learner, output: Path, corrections: list[Any]) -> dict[str, Any]:
        counts.append(len(corrections))
        return train_here(self, output, corrections)

    monkeypatch.setattr(Learner, "_train", train)
    return counts


class Swaps:
    """What a service would serve."""

    def __init__(self) -> None:
        self.tagger: Any = None
        self.version, self.swaps = "0", 0

    def __call__(self, tagger: Any, version: str) -> None:
        self.tagger, self.version, self.swaps = tagger, version, self.swaps + 1

    def best(self, text: str) -> str:
        assert self.tagger is not None
        return str(self.tagger.suggest([text], k=1)[0][0, 0])


@pytest.fixture
def served() -> Swaps:
    return Swaps()


@pytest.fixture
def started(model_folder, log, served) -> Iterator[Callable[[], Learner]]:
    learners: list[Learner] = []

    def start() -> Learner:
        learners.append(Learner(model_folder, log, on_swap=served, pause=0.0))
        return learners[-1]

    yield start
    for each in learners:
        each.close()


def settled(learner: Learner) -> dict[str, Any]:
    """The state once nothing is being learned."""
    for _ in range(6000):
        state = learner.state()
        if state["state"] != "learning":
            return state
        time.sleep(0.01)
    raise AssertionError("it does not end")


def taught(learner: Learner, text: str, *accepted: str, rejected: str | None = None) -> dict[str, Any]:
    """The state once it has learned feedback, by default that a text is about music."""
    learner.feedback.add(text, accepted or ("music",), filter(None, [rejected]), learner.state()["version"])
    learner.notify()
    return settled(learner)


def test_feedback_is_learned_and_swapped_in(trainings, started, log, served, model_folder):
    learner, idle = started(), {"state": "idle", "waiting": 0, "message": None}
    assert settled(learner) == {**idle, "version": "0", "taught": 0, "can_roll_back": False}
    after = taught(learner, "drum piano", rejected="food")
    assert after == {**idle, "version": "1", "taught": 1, "can_roll_back": True}
    assert (served.version, served.best("drum piano")) == ("1", "music")
    assert served.best("fox wolf") == "animal"
    assert [each.name for each in versions_folder(model_folder).iterdir() if each.is_dir()] == ["1"]
    assert circlet.load(model_folder).classes_.tolist() == ["animal", "food", "vehicle"]


def test_an_undo_is_exact(trainings, started, log, served, model_folder):
    learner = started()
    taught(learner, "drum piano")
    alone = served.tagger.predict_proba(["drum flute"])
    taught(learner, "drum flute", "noise", rejected="music")
    first, second = log.entries()
    both = dict(zip(served.tagger.classes_, served.tagger.predict_proba(["drum flute"])[0], strict=True))
    assert both["noise"] > 0.5 > both["music"]
    log.undo(second.id)
    learner.notify()
    assert settled(learner)["taught"] == 1
    np.testing.assert_array_equal(served.tagger.predict_proba(["drum flute"]), alone)
    log.undo(first.id)
    learner.notify()
    settled(learner)
    for text in ("drum flute", "fox", "bread and a van"):
        np.testing.assert_array_equal(
            served.tagger.predict_proba([text]), circlet.load(model_folder).predict_proba([text])
        )


def test_roll_back(trainings, started, log, served, model_folder):
    learner = started()
    with pytest.raises(CircletError, match="no earlier version"):
        learner.roll_back()
    for text in ("drum piano", "drum flute"):
        taught(learner, text)
    assert served.version == "2"
    assert learner.roll_back() == "1"
    assert served.version == "1"
    state = settled(learner)
    assert (state["version"], state["waiting"], state["can_roll_back"]) == ("1", 0, True)
    assert learner.roll_back() == "0"
    assert served.tagger.classes_.tolist() == ["animal", "food", "vehicle"]
    # Nothing is learned again by itself, not even by another process.
    learner.close()
    again = started()
    assert settled(again)["version"] == "0"
    assert len(trainings) == 2
    assert taught(again, "piano")["taught"] == 3
    assert served.version == "3"  # numbers are not used again


def test_only_some_versions_are_kept(trainings, started, log, model_folder):
    learner = started()
    for number in range(KEPT + 2):
        taught(learner, f"drum {number}")
    learner.close()
    folders = sorted(int(each.name) for each in versions_folder(model_folder).iterdir() if each.is_dir())
    assert folders == list(range(3, KEPT + 3))
    again = started()
    assert [again.roll_back() for _ in range(KEPT)] == [*map(str, range(KEPT + 1, 2, -1)), "0"]


def test_notifications_are_coalesced(monkeypatch, trainings, started, log):
    entered, leave, train = threading.Event(), threading.Event(), Learner._train

    def slow(self: Learner, output: Path, corrections: list[Any]) -> Any:
        entered.set()
        assert leave.wait(60)
        return train(self, output, corrections)

    monkeypatch.setattr(Learner, "_train", slow)
    learner = started()
    log.add("drum 0", ["music"], [], "0")
    learner.notify()
    assert entered.wait(60)
    for number in range(1, 6):
        log.add(f"drum {number}", ["music"], [], "0")
        learner.notify()
    state = learner.state()
    assert (state["state"], state["waiting"], state["version"]) == ("learning", 6, "0")
    leave.set()
    assert settled(learner)["taught"] == 6
    assert trainings == [1, 6]


def test_a_failure_leaves_the_old_model(monkeypatch, trainings, started, log, served, model_folder):
    learner = started()
    taught(learner, "drum piano")
    works = Learner._train

    def broken(*_: Any) -> None:
        raise OutputError("cannot write: the disk is full")

    monkeypatch.setattr(Learner, "_train", broken)
    state = taught(learner, "flute")
    assert (state["state"], state["message"]) == ("failed", "cannot write: the disk is full")
    assert (state["version"], state["taught"], state["waiting"]) == ("1", 1, 1)
    assert served.version == "1"
    monkeypatch.setattr(Learner, "_train", works)
    learner.notify()
    state = settled(learner)
    assert (state["state"], state["version"], state["message"]) == ("idle", "2", None)


def test_another_process_goes_on(trainings, started, log, served, model_folder):
    learner = started()
    taught(learner, "drum piano")
    learner.close()
    log.add("flute", ["music"], [], "1")
    swaps = served.swaps
    again = started()
    assert served.swaps > swaps  # with the version that was served last
    state = settled(again)
    assert (state["version"], state["taught"]) == ("2", 2)


@pytest.mark.parametrize("damaged", [True, False])
def test_versions_that_are_damaged_or_of_another_model_are_not_served(
    trainings, started, log, served, model_folder, damaged
):
    learner = started()
    with pytest.raises(OutputError, match="another process does"):  # one at a time
        Learner(model_folder, log, on_swap=served)
    taught(learner, "drum piano")
    learner.close()
    if damaged:
        (versions_folder(model_folder) / "1" / "labels.txt").write_text("x\n")
    else:
        Model.load(model_folder).save(model_folder)  # the same weights, saved again
    served.swaps = 0
    state = settled(started())
    assert (state["version"], state["taught"], served.swaps) == ("2", 1, 1)
    assert served.best("drum piano") == "music"


def test_a_damaged_list_of_versions(trainings, model_folder, log, served):
    place = versions_folder(model_folder)
    place.mkdir()
    for content in ('{"kept": []}', '{"kept": [{"version": "1", "taught": 1}], "last": 1}', "{}"):
        (place / "versions.json").write_text(content)
        with pytest.raises(DataError, match=r"versions\.json: found no readable list of versions"):
            Learner(model_folder, log, on_swap=served)


def test_what_no_room_is_for_is_said(trainings, started, log):
    learner = started()
    state = taught(learner, "drum", *(f"new {i}" for i in range(300)))
    assert state["message"].startswith("the model has no room for ")


def test_why_not(model_folder, tmp_path, shared, monkeypatch, log, served):
    assert why_not(model_folder) is None
    compress(model_folder, tmp_path / "small", "int8")
    assert "has no training rows" in str(why_not(tmp_path / "small"))
    with pytest.raises(ParameterError, match="has no training rows"):
        Learner(tmp_path / "small", log, on_swap=served)
    shared("sparse").save(tmp_path / "rows")
    with pytest.raises(ParameterError, match="--learn: this model was trained on feature rows"):
        Served.load(tmp_path / "rows", "rows").learn(tmp_path / "rows")
    monkeypatch.setattr(feedback, "find_spec", lambda _: None)
    assert "pip install 'circlet[train]'" in str(why_not(model_folder))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "can't be written" in str(why_not(model_folder))


def test_a_served_model_learns_until_it_is_closed(model_folder):
    model = Served.load(model_folder, "tagger")
    digest = model.current.version
    model.learn(model_folder)
    assert model.learner.feedback.path == model_folder.with_name("tagger.feedback.jsonl")
    assert model.current.version == "0" != digest  # the learner knows better than the folder
    model.learner.on_swap(circlet.load(model_folder), "2")
    assert model.current.version == "2"
    model.learner.close()


class TestChild:
    def test_a_taught_model_is_written_and_the_model_stays(self, model_folder, tmp_path):
        before = {path.name: path.read_bytes() for path in model_folder.iterdir()}
        assert update_saved(model_folder, tmp_path / "out", [MUSIC]) == Update(1, ["music"], [])
        assert circlet.load(tmp_path / "out").suggest(["drum piano"], k=1)[0][0, 0] == "music"
        assert {path.name: path.read_bytes() for path in model_folder.iterdir()} == before
        asked = {"folder": str(tmp_path / "none"), "output": str(tmp_path / "out"), "corrections": []}
        assert "is not a circlet model" in answer_to(json.dumps(asked))["error"]

    def test_a_classifier_stays_one(self, tmp_path):
        texts, labels = ["red fox", "fast car", "brown bear", "old lorry"] * 10, ["a", "v", "a", "v"] * 10
        options = {"dim": 16, "hidden": (8,), "epochs": 5, "validation": 0}
        m, n, out = (tmp_path / name for name in ("m", "n", "out"))
        circlet.CircletClassifier(top_k=1, **options).fit(texts, [[label] for label in labels]).save(m)
        assert update_saved(m, out, [TextFeedback("old bear", ("b",), ())]).new == ["b"]
        assert circlet.load(out).top_k == 1
        assert circlet.CircletClassifier.load(out).classes_.tolist() == ["a", "v", "b"]
        circlet.CircletClassifier(**options).fit(texts, [{"a": 1, "v": 2}[label] for label in labels]).save(n)
        # Its classes are numbers, and a user's new label is not.
        assert update_saved(n, tmp_path / "out-n", [TextFeedback("old bear", ("b",), ("1",))]).left_out == ["b"]
        assert circlet.load(tmp_path / "out-n").classes_.tolist() == [1, 2]

    @pytest.mark.slow
    def test_it_ends_with_the_process_that_asked(self, model_folder, tmp_path):
        command = [sys.executable, "-m", "circlet.serve.feedback"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        corrections = [["drum", ["music"], []]]
        asked = {"folder": str(model_folder), "output": str(tmp_path / "out"), "corrections": corrections}
        child.communicate(json.dumps(asked) + "\n")  # and the input ends
        assert child.returncode in (0, 3)


SERVING = """
import json, sys, time
from circlet.data.feedback import FeedbackLog
from circlet.serve.feedback import Learner
log = FeedbackLog(sys.argv[2])
learner = Learner(sys.argv[1], log, on_swap=lambda tagger, version: None)
for number in range(1000):
    entry = log.add(f"drum {sys.argv[3]} {number}", ["music"], [], learner.state()["version"])
    learner.notify()
    print(entry.id, flush=True)
    time.sleep(0.3)
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_a_real_child_process_learns(started, log, served):
    learner = started()
    assert taught(learner, "drum piano")["version"] == "1"
    assert served.best("drum piano") == "music"


@pytest.mark.slow
def test_a_child_process_that_dies(started, log, monkeypatch):
    learner = started()
    popen = subprocess.Popen
    dying = [sys.executable, "-c", "import sys; sys.exit('it broke')"]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: popen(dying, **options))
    state = taught(learner, "drum piano")
    assert state["state"] == "failed"
    assert state["message"] == "the process that learns ended with status 1: it broke"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="wanted a signal that ends a process at once")
def test_a_service_that_is_killed_at_any_time(model_folder, log, served):
    known: set[str] = set()
    for attempt, seconds in enumerate((0.5, 2.5, 3.5, 5.0)):
        words = [sys.executable, "-c", SERVING, str(model_folder), str(log.path), str(attempt)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        lines = child.communicate()[0].splitlines(keepends=True)
        known |= {line.strip() for line in lines if line.endswith("\n")}
        assert known <= {entry.id for entry in log.entries()}
        path = versions_folder(model_folder) / "versions.json"
        if path.exists():
            version = json.loads(path.read_text())["kept"][-1]["version"]
            circlet.load(model_folder if version == "0" else path.parent / version)  # whole
    learner = Learner(model_folder, log, on_swap=served)
    assert settled(learner)["taught"] == len(log.entries()) >= len(known) > 0
    chances = served.tagger.predict_proba([log.entries()[0].text])[0]
    assert chances[served.tagger.classes_.tolist().index("music")] >= 0.5
    learner.close()
