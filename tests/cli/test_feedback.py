"""`circlet feedback`, and `circlet train --feedback`."""

from __future__ import annotations

import json
import shutil

import pytest

from circlet.data.feedback import FeedbackLog

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def log(tmp_path) -> FeedbackLog:
    log = FeedbackLog(tmp_path / "log.jsonl")
    for text in ("the piano and the drum", "the violin and the drum", "the drum and the flute"):
        log.add(text, ["music"], ["weather"], "0")
    log.undo(log.add("the fog", ["music"], [], "1").id)
    log.add("the hail", [], ["food"], "1")
    return log


def test_list(circlet, refused, log, tmp_path):
    shown = " ".join(circlet("feedback", "list", log.path).stdout.split())
    assert "the piano" in shown
    assert "4 entries" in shown
    assert "the fog" not in shown
    found = json.loads(circlet("feedback", "list", log.path, "--all", "--json").stdout)
    assert [each["undone"] for each in found] == [False, False, False, True, False]
    assert found[0]["accepted"] == ["music"]
    assert "found no file; wanted a log of feedback" in refused("feedback", "list", tmp_path / "none")


def test_export_is_what_train_reads(circlet, refused, log, tmp_path, small):
    exported = tmp_path / "out.jsonl"
    assert "3 texts" in circlet("feedback", "export", log.path, exported).stderr
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert lines[0] == {"text": "the piano and the drum", "labels": ["music"], "rejected": ["weather"]}
    trained = circlet("train", exported, "--model", tmp_path / "m", *small, "--epochs", "1")
    assert trained.returncode == 0, trained.stderr
    empty = FeedbackLog(tmp_path / "empty.jsonl")
    empty.add("the hail", [], ["food"], "1")
    assert "found no text with an accepted label" in refused("feedback", "export", empty.path, tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_train_from_scratch(circlet, refused, log, data, small, tmp_path):
    options = ["train", data, "--model", tmp_path / "m", *small, "--feedback"]
    summary = json.loads(circlet(*options, log.path, "--json").stdout)
    assert (summary["n_labels"], summary["training"]["documents"]) == (5, 203)
    found = json.loads(circlet("predict", tmp_path / "m", "-", "-k", "2", stdin="the drum\n").stdout)
    assert "music" in found["labels"]
    assert "wanted a log of feedback" in refused(*options, tmp_path / "none")


def test_train_further(circlet, log, model, data, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    further = circlet("train", data, "--model", tmp_path / "m", "--continue", "--feedback", log.path, "--json")
    assert further.returncode == 0, further.stderr
    assert json.loads(further.stdout)["n_labels"] == 5


def test_a_resumed_run_reads_what_there_was(log, data, tmp_path):
    from circlet.cli.feedback import described
    from circlet.cli.runs import READ, _dataset

    run = {"data": str(data), "read": READ, "feedback": described(log.path)}
    log.add("something new", ["other"], [], "2")
    assert _dataset(run, ids=False).label_names == ["animal", "food", "vehicle", "weather", "music"]
