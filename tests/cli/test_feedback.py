"""`circlet feedback`, and `circlet train --feedback`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from circlet.data.feedback import FeedbackLog
from circlet.model.session import Run, read_documents
from circlet.runtime import load

URI = "http://example.org/"
TOPICS = ("animal", "food", "vehicle", "weather")


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


def test_export_is_what_train_reads(circlet, works, refused, log, tmp_path, small):
    exported = tmp_path / "out.jsonl"
    assert "3 texts" in circlet("feedback", "export", log.path, exported).stderr
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert lines[0] == {"text": "the piano and the drum", "labels": ["music"], "rejected": ["weather"]}
    works("train", exported, "--model", tmp_path / "m", *small, "--epochs", "1")
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


def test_a_resumed_run_reads_what_there_was(log, data, tmp_path):
    run = Run(str(data), {}, {}, feedback=described(log.path))
    log.add("something new", ["other"], [], "2")
    assert read_documents(run, ids=False).label_names == ["animal", "food", "vehicle", "weather", "music"]


def described(log: Path) -> dict[str, Any]:
    """The feedback in `run.json`."""
    return {"file": str(log), "records": len(FeedbackLog(log))}


class TestNames:
    """Labels that have names and URIs."""

    @pytest.fixture
    def of_uris(self, topics, write_jsonl, tmp_path):
        """Texts whose labels are URIs, and a vocabulary with names for these."""
        rows = [{**row, "labels": [URI + label for label in row["labels"]]} for row in topics(80)]
        names = tmp_path / "names.tsv"
        names.write_text("".join(f"<{URI}{topic}>\tthe {topic}\n" for topic in TOPICS), encoding="utf-8")
        return write_jsonl(tmp_path / "train.jsonl", rows), names

    def test_new_and_known_labels(self, works, of_uris, small, tmp_path):
        log, folder = FeedbackLog(tmp_path / "log.jsonl"), tmp_path / "m"
        log.add("the piano", ["music", f"{URI}food"], ["the weather"], "0")
        (data, names), options = of_uris, ["--model", folder, "--feedback", log.path, *small, "--epochs", "1"]
        works("train", data, "--names", names, *options)
        labels, uris = [f"the {topic}" for topic in TOPICS], [f"{URI}{topic}" for topic in TOPICS]
        assert load(folder).classes_.tolist() == [*labels, "music"]
        assert load(folder).uris_ == [*uris, "music"]
        log.add("the flute", [f"{URI}game", "the food"], [], "0")
        for again in (["--names", names], []):
            options = ["--model", folder, "--feedback", log.path, "--epochs", "1", "--device", "cpu"]
            works("train", data, *again, "--continue", *options)
            assert load(folder).classes_.tolist() == [*labels, "music", f"{URI}game"]
            assert load(folder).uris_ == [*uris, "music", f"{URI}game"]

    @pytest.mark.parametrize("with_names", [True, False])
    @pytest.mark.parametrize("prefix", ["the ", URI])
    def test_a_model_is_trained_further(self, of_uris, tmp_path, with_names, prefix):
        """Feedback has names or URIs, whichever of them the data has."""
        log, (data, names) = FeedbackLog(tmp_path / "log.jsonl"), of_uris
        text = json.loads(data.read_text(encoding="utf-8").splitlines()[0])["text"]
        log.add(text, [f"{prefix}food"], [f"{prefix}animal"], "0")
        read = {"names": str(names) if with_names else None}
        model: Any = SimpleNamespace(
            label_names=[f"the {topic}" for topic in TOPICS], label_uris=[f"{URI}{topic}" for topic in TOPICS]
        )
        found = read_documents(Run(str(data), {}, read, feedback=described(log.path)), ids=False, model=model)
        assert (found.label_uris or found.label_names) == model.label_uris
        assert found.train.Y[0].indices.tolist() == [TOPICS.index("food")]

    def test_names_that_mean_other_labels_now(self, of_uris, tmp_path):
        """In the vocabulary of the model, food was called what weather is called now."""
        log, (data, names) = FeedbackLog(tmp_path / "log.jsonl"), of_uris
        log.add("the piano", ["the weather"], [], "0")
        model: Any = SimpleNamespace(label_names=["the weather"], label_uris=[f"{URI}food"])
        run = Run(str(data), {}, {"names": str(names)}, feedback=described(log.path))
        found = read_documents(run, ids=False, model=model)
        assert found.train.Y[-1].indices.tolist() == [TOPICS.index("food")]

    def test_data_with_names_alone(self, topics, write_jsonl, tmp_path):
        log, rows = FeedbackLog(tmp_path / "log.jsonl"), topics(4)
        log.add(rows[0]["text"], [f"{URI}food"], [f"{URI}animal"], "0")
        data = write_jsonl(tmp_path / "train.jsonl", rows)
        model: Any = SimpleNamespace(label_names=[*TOPICS], label_uris=[f"{URI}{topic}" for topic in TOPICS])
        run = Run(str(data), {}, {}, feedback=described(log.path))
        found = read_documents(run, ids=False, model=model)
        assert found.label_names == [*TOPICS]
        assert found.train.Y[0].indices.tolist() == [TOPICS.index("food")]
