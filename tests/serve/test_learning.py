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
from circlet.data.feedback import Judged
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.folder.compress import compress
from circlet.model import Model
from circlet.serve import learning
from circlet.serve.learning import KEPT, Learner, taught_folder, why_not
from circlet.serve.lesson import give

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def lessons(monkeypatch) -> list[int]:
    """Give lessons in this process, which has imported torch already; the number of texts of each."""
    given: list[int] = []

    def lesson(self: Learner, output: Path, corrections: list[Any]) -> dict[str, Any]:
        given.append(len(corrections))
        return give(self.folder, output, [Judged(text, tuple(yes), tuple(no)) for text, yes, no in corrections])

    monkeypatch.setattr(Learner, "_lesson", lesson)
    monkeypatch.setattr(learning, "PAUSE", 0.0)
    return given


class Served:
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
def served() -> Served:
    return Served()


@pytest.fixture
def started(teachable, log, served) -> Iterator[Callable[[], Learner]]:
    learners: list[Learner] = []

    def start() -> Learner:
        learners.append(Learner(teachable, log, on_swap=served))
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


def test_feedback_is_learned_and_swapped_in(lessons, started, log, served, teachable):
    learner = started()
    assert settled(learner) == {
        "state": "idle",
        "version": "0",
        "taught": 0,
        "waiting": 0,
        "can_roll_back": False,
        "message": None,
    }
    log.add("drum piano", ["music"], ["food"], "0")
    learner.notify()
    assert settled(learner) == {
        "state": "idle",
        "version": "1",
        "taught": 1,
        "waiting": 0,
        "can_roll_back": True,
        "message": None,
    }
    assert (served.version, served.best("drum piano")) == ("1", "music")
    assert served.best("fox wolf") == "animal"
    assert [each.name for each in taught_folder(teachable).iterdir() if each.is_dir()] == ["1"]
    assert circlet.load(teachable).classes_.tolist() == ["animal", "food", "vehicle"]


def test_an_undo_is_exact(lessons, started, log, served, teachable):
    learner = started()
    first = log.add("drum piano", ["music"], [], "0")
    learner.notify()
    settled(learner)
    alone = served.tagger.predict_proba(["drum flute"])
    second = log.add("drum flute", ["noise"], ["music"], "1")
    learner.notify()
    settled(learner)
    both = dict(zip(served.tagger.classes_, served.tagger.predict_proba(["drum flute"])[0], strict=True))
    assert both["noise"] > 0.5 > both["music"]
    log.undo(second.id)
    learner.notify()
    assert settled(learner)["taught"] == 1
    np.testing.assert_array_equal(served.tagger.predict_proba(["drum flute"]), alone)
    log.undo(first.id)
    learner.notify()
    settled(learner)
    texts = ["drum flute", "fox", "bread and a van"]
    for text in texts:
        np.testing.assert_array_equal(
            served.tagger.predict_proba([text]), circlet.load(teachable).predict_proba([text])
        )


def test_roll_back(lessons, started, log, served, teachable):
    learner = started()
    with pytest.raises(CircletError, match="no earlier version"):
        learner.roll_back()
    for text in ("drum piano", "drum flute"):
        log.add(text, ["music"], [], "0")
        learner.notify()
        settled(learner)
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
    assert len(lessons) == 2
    log.add("piano", ["music"], [], "0")
    again.notify()
    assert settled(again)["taught"] == 3
    assert served.version == "3"  # numbers are not used again


def test_only_some_versions_are_kept(lessons, started, log, teachable):
    learner = started()
    for number in range(KEPT + 2):
        log.add(f"drum {number}", ["music"], [], "0")
        learner.notify()
        settled(learner)
    learner.close()
    folders = sorted(int(each.name) for each in taught_folder(teachable).iterdir() if each.is_dir())
    assert folders == list(range(3, KEPT + 3))
    again = started()
    assert [again.roll_back() for _ in range(KEPT)] == [*map(str, range(KEPT + 1, 2, -1)), "0"]


def test_notifications_are_coalesced(monkeypatch, lessons, started, log):
    entered, leave, lesson = threading.Event(), threading.Event(), Learner._lesson

    def slow(self: Learner, output: Path, corrections: list[Any]) -> Any:
        entered.set()
        assert leave.wait(60)
        return lesson(self, output, corrections)

    monkeypatch.setattr(Learner, "_lesson", slow)
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
    assert lessons == [1, 6]


def test_a_lesson_that_fails_leaves_the_old_model(monkeypatch, lessons, started, log, served, teachable):
    learner = started()
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    settled(learner)
    works = Learner._lesson

    def broken(*_: Any) -> None:
        raise OutputError("cannot write: the disk is full")

    monkeypatch.setattr(Learner, "_lesson", broken)
    log.add("flute", ["music"], [], "1")
    learner.notify()
    state = settled(learner)
    assert (state["state"], state["message"]) == ("failed", "cannot write: the disk is full")
    assert (state["version"], state["taught"], state["waiting"]) == ("1", 1, 1)
    assert served.version == "1"
    monkeypatch.setattr(Learner, "_lesson", works)
    learner.notify()
    state = settled(learner)
    assert (state["state"], state["version"], state["message"]) == ("idle", "2", None)


def test_another_process_goes_on(lessons, started, log, served, teachable):
    learner = started()
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    settled(learner)
    learner.close()
    log.add("flute", ["music"], [], "1")
    swaps = served.swaps
    again = started()
    assert served.swaps > swaps  # with the version that was served last
    state = settled(again)
    assert (state["version"], state["taught"]) == ("2", 2)


def test_one_process_at_a_time(lessons, started, log, teachable, served):
    started()
    with pytest.raises(OutputError, match="another process does"):
        Learner(teachable, log, on_swap=served)


def test_versions_of_another_model_are_not_served(lessons, started, log, served, teachable):
    learner = started()
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    settled(learner)
    learner.close()
    Model.load(teachable).save(teachable)  # the same weights, saved again
    served.swaps = 0
    state = settled(started())
    assert (state["version"], state["taught"], served.swaps) == ("2", 1, 1)


def test_a_damaged_version_is_learned_anew(lessons, started, log, served, teachable):
    learner = started()
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    settled(learner)
    learner.close()
    (taught_folder(teachable) / "1" / "labels.txt").write_text("x\n")
    state = settled(started())
    assert (state["version"], state["taught"], served.best("drum piano")) == ("2", 1, "music")


def test_a_damaged_list_of_versions(lessons, teachable, log, served):
    place = taught_folder(teachable)
    place.mkdir()
    for content in ('{"kept": []}', '{"kept": [{"version": "1", "taught": 1}], "last": 1}', "{}"):
        (place / "versions.json").write_text(content)
        with pytest.raises(DataError, match=r"versions\.json: found no readable list of versions"):
            Learner(teachable, log, on_swap=served)


def test_what_no_room_is_for_is_said(lessons, started, log):
    learner = started()
    log.add("drum", [f"new {i}" for i in range(300)], [], "0")
    learner.notify()
    assert "the model has no room for" in settled(learner)["message"]


def test_why_not(teachable, tmp_path, shared, monkeypatch, log, served):
    assert why_not(teachable) is None
    compress(teachable, tmp_path / "small", "int8")
    assert "remembers no rows" in str(why_not(tmp_path / "small"))
    with pytest.raises(ParameterError, match="remembers no rows"):
        Learner(tmp_path / "small", log, on_swap=served)
    shared("sparse").save(tmp_path / "rows")
    assert "takes rows" in str(why_not(tmp_path / "rows"))
    monkeypatch.setattr(learning, "find_spec", lambda _: None)
    assert "pip install 'circlet[train]'" in str(why_not(teachable))


SERVING = """
import json, sys, time
from circlet.data.feedback import FeedbackLog
from circlet.serve.learning import Learner
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
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    assert settled(learner)["version"] == "1"
    assert served.best("drum piano") == "music"


@pytest.mark.slow
def test_a_child_process_that_dies(started, log, monkeypatch):
    learner = started()
    popen = subprocess.Popen
    dying = [sys.executable, "-c", "import sys; sys.exit('it broke')"]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: popen(dying, **options))
    log.add("drum piano", ["music"], [], "0")
    learner.notify()
    state = settled(learner)
    assert state["state"] == "failed"
    assert state["message"] == "the process that learns ended with status 1: it broke"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="wanted a signal that ends a process at once")
def test_a_service_that_is_killed_at_any_time(teachable, log, served):
    known: set[str] = set()
    for attempt, seconds in enumerate((0.5, 2.5, 3.5, 5.0)):
        words = [sys.executable, "-c", SERVING, str(teachable), str(log.path), str(attempt)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        lines = child.communicate()[0].splitlines(keepends=True)
        known |= {line.strip() for line in lines if line.endswith("\n")}
        assert known <= {entry.id for entry in log.entries()}
        path = taught_folder(teachable) / "versions.json"
        if path.exists():
            version = json.loads(path.read_text())["kept"][-1]["version"]
            circlet.load(teachable if version == "0" else path.parent / version)  # whole
    learner = Learner(teachable, log, on_swap=served)
    assert settled(learner)["taught"] == len(log.entries()) >= len(known) > 0
    chances = served.tagger.predict_proba([log.entries()[0].text])[0]
    assert chances[served.tagger.classes_.tolist().index("music")] >= 0.5
    learner.close()
