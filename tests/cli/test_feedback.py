"""`circlet feedback`, and `circlet train --feedback`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from circlet.data.dataset import Dataset
from circlet.data.feedback import FeedbackLog
from circlet.model.session import Run, read_documents
from circlet.runtime import load

URI = "http://example.org/"
TOPICS = ("animal", "food", "vehicle", "weather")
URIS = [f"{URI}{topic}" for topic in TOPICS]


@pytest.fixture
def log(tmp_path) -> FeedbackLog:
    log = FeedbackLog(tmp_path / "log.jsonl")
    for text in ("the piano and the drum", "the violin and the drum", "the drum and the flute"):
        log.add(text, ["music"], ["weather"], "0")
    log.undo(log.add("the fog", ["music"], [], "1").id)
    log.add("the hail", [], ["food"], "1")
    return log


def test_list(as_json, works, refused, log, tmp_path):
    shown = " ".join(works("feedback", "list", log.path).stdout.split())
    assert "the piano" in shown
    assert "4 entries" in shown
    assert "the fog" not in shown
    found = as_json("feedback", "list", log.path, "--all")
    assert [each["undone"] for each in found] == [False, False, False, True, False]
    assert found[0]["accepted"] == ["music"]
    assert "found no file; wanted a log of feedback" in refused("feedback", "list", tmp_path / "none")


def test_export_is_what_train_reads(works, refused, log, tmp_path, small):
    exported = tmp_path / "out.jsonl"
    assert "3 texts" in works("feedback", "export", log.path, exported).stderr
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert lines[0] == {"text": "the piano and the drum", "labels": ["music"], "rejected": ["weather"]}
    works("train", exported, "--model", tmp_path / "m", *small, "--epochs", "1")
    empty = FeedbackLog(tmp_path / "empty.jsonl")
    empty.add("the hail", [], ["food"], "1")
    assert "found no text with an accepted label" in refused("feedback", "export", empty.path, tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_train_from_scratch(as_json, predict, refused, log, data, small, tmp_path):
    options = ["train", data, "--model", tmp_path / "m", *small, "--feedback"]
    summary = as_json(*options, log.path)
    assert (summary["n_labels"], summary["training"]["documents"]) == (5, 203)
    assert "music" in predict(tmp_path / "m", "the drum\n", "-k", "2")[0]["labels"]
    assert "wanted a log of feedback" in refused(*options, tmp_path / "none")


def test_a_resumed_run_reads_what_there_was(log, data, tmp_path):
    run = Run(str(data), {}, {}, feedback=described(log.path))
    log.add("something new", ["other"], [], "2")
    assert read_documents(run, ids=False).label_names == ["animal", "food", "vehicle", "weather", "music"]


def described(log: Path) -> dict[str, Any]:
    """The feedback in `run.json`."""
    return {"file": str(log), "records": len(FeedbackLog(log))}


def found_for(
    data: Path, log: FeedbackLog, label_names: list[str], label_uris: list[str], names: Path | None = None
) -> Dataset:
    """What is read for a model with these labels, which is trained further."""
    model: Any = SimpleNamespace(label_names=label_names, label_uris=label_uris)
    run = Run(str(data), {}, {"names": names and str(names)}, feedback=described(log.path))
    return read_documents(run, ids=False, model=model)


class TestNames:
    """Labels that have names and URIs."""

    def test_new_and_known_labels(self, works, of_uris, small, tmp_path):
        log, folder = FeedbackLog(tmp_path / "log.jsonl"), tmp_path / "m"
        log.add("the piano", ["music", f"{URI}food"], ["the vehicle"], "0")
        (data, names), options = of_uris, ["--model", folder, "--feedback", log.path, *small, "--epochs", "1"]
        works("train", data, "--names", names, *options)
        labels = [*(f"the {topic}" for topic in TOPICS[:3]), URIS[3]]  # which has no name
        assert load(folder).classes_.tolist() == [*labels, "music"]
        assert load(folder).uris_ == [*URIS, "music"]
        log.add("the flute", [f"{URI}game", "the food"], [], "0")
        for again in (["--names", names], []):
            options = ["--model", folder, "--feedback", log.path, "--epochs", "1", "--device", "cpu"]
            works("train", data, *again, "--continue", *options)
            assert load(folder).classes_.tolist() == [*labels, "music", f"{URI}game"]
            assert load(folder).uris_ == [*URIS, "music", f"{URI}game"]

    @pytest.mark.parametrize("with_names", [True, False])
    @pytest.mark.parametrize("prefix", ["the ", URI])
    def test_a_model_is_trained_further(self, of_uris, tmp_path, with_names, prefix):
        """Feedback has names or URIs, whichever of them the data has."""
        log, (data, names) = FeedbackLog(tmp_path / "log.jsonl"), of_uris
        text = json.loads(data.read_text(encoding="utf-8").splitlines()[0])["text"]
        log.add(text, [f"{prefix}food"], [f"{prefix}animal"], "0")
        found = found_for(data, log, [f"the {topic}" for topic in TOPICS], URIS, names if with_names else None)
        assert (found.label_uris or found.label_names) == URIS
        assert found.train.Y[0].indices.tolist() == [TOPICS.index("food")]

    def test_names_that_mean_other_labels_now(self, of_uris, tmp_path):
        """In the vocabulary of the model, food was called what animal is called now."""
        log, (data, names) = FeedbackLog(tmp_path / "log.jsonl"), of_uris
        log.add("the piano", ["the animal"], [], "0")
        found = found_for(data, log, ["the animal"], [f"{URI}food"], names)
        assert found.train.Y[-1].indices.tolist() == [TOPICS.index("food")]

    def test_data_with_names_alone(self, topics, write_jsonl, tmp_path):
        log, rows = FeedbackLog(tmp_path / "log.jsonl"), topics(4)
        log.add(rows[0]["text"], [f"{URI}food"], [f"{URI}animal"], "0")
        data = write_jsonl(tmp_path / "train.jsonl", rows)
        found = found_for(data, log, [*TOPICS], URIS)
        assert found.label_names == [*TOPICS]
        assert found.train.Y[0].indices.tolist() == [TOPICS.index("food")]
