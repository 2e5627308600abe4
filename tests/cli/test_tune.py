"""`circlet tune` by running it."""

from __future__ import annotations

import json
import shlex

import pytest


@pytest.fixture
def texts(tmp_path):
    pairs = [("a red fox", ["animal", "red"]), ("the fast car", ["vehicle"]), ("a brown bear", ["animal"])] * 20
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"text": t, "labels": y}) + "\n" for t, y in pairs), encoding="utf-8")
    return path


def test_prints_a_command_that_trains(circlet, texts, tmp_path):
    # The defaults are always trained, and no race may fit into the budget.
    found = circlet(
        "tune", str(texts), "--budget", "1s", "--preset", "fast", "--output", str(tmp_path / "t"), "--json"
    )
    assert found.returncode == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["trials"] >= 1
    assert 0 <= report["score"] <= 100
    assert (tmp_path / "t" / "tuning.png").exists()
    words = shlex.split(report["command"])
    assert words[:2] == ["circlet", "train"]
    assert words[3:7] == ["--model", "tuned", "--preset", "fast"]
    words[4] = str(tmp_path / "tuned")
    trained = circlet(*words[1:])
    assert trained.returncode == 0, trained.stderr

    again = circlet("tune", str(texts), "--budget", "1s", "--preset", "fast", "--output", str(tmp_path / "t"))
    assert f"going on after {report['trials']} trials" in again.stderr
    assert "Gain" in again.stdout
    assert report["command"] in again.stdout
    assert "no time is left of --budget 1s" in again.stderr
    assert "a larger budget searches longer" in again.stderr


def test_the_command_reads_the_same_columns(circlet, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("body;tags\n" + "a red fox;animal|red\nthe fast car;vehicle\n" * 30, encoding="utf-8")
    columns = ["--text-column", "body", "--label-column", "tags", "--label-separator", "|", "--seed", "3"]
    given = ["--budget", "1s", "--preset", "fast", "--output", str(tmp_path / "t"), "--json"]
    found = circlet("tune", str(path), *columns, *given)
    assert found.returncode == 0, found.stderr
    words = shlex.split(json.loads(found.stdout)["command"])
    assert words[5:13] == columns
    words[4] = str(tmp_path / "tuned")
    trained = circlet(*words[1:])
    assert trained.returncode == 0, trained.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "--budget: wanted a time like 90s, 10m or 2h, got 'soon'"),
        (["--budget", "0m"], "--budget: wanted a time like"),
        (["--preset", "paper"], "--preset: wanted one of fast, default, accurate, got 'paper'"),
    ],
)
def test_mistakes(circlet, texts, tmp_path, options, message):
    found = circlet("tune", str(texts), "--output", str(tmp_path / "t"), *options)
    assert found.returncode == 2
    assert message in found.stderr
    assert not (tmp_path / "t").exists()


def test_too_few_documents(circlet, tmp_path):
    (tmp_path / "few.jsonl").write_text('{"text": "a", "labels": ["b"]}\n' * 10)
    found = circlet("tune", str(tmp_path / "few.jsonl"), "--output", str(tmp_path / "t"))
    assert found.returncode == 2
    assert "found 10 documents; wanted at least 40" in found.stderr
