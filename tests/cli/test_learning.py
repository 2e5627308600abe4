"""Training, predicting and evaluating as a person does it: real processes on small files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from circlet.cli import app
from circlet.errors import CircletError, DataError

WORDS = {
    "animal": "fox wolf bear deer hare lynx otter badger",
    "vehicle": "car truck tram bicycle lorry van scooter train",
    "food": "bread cheese apple soup rice pasta salad lentils",
    "weather": "rain snow wind storm fog hail sunshine thunder",
}
SIZES = {"dim": 64, "hidden": 32, "dropout": 0.2, "epochs": 25, "batch-size": 16, "lr": 0.01, "device": "cpu"}
SMALL = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "circlet", *arguments]


def circlet(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env=environment,
    )


def documents(n: int) -> list[dict]:
    """Texts about one or two topics, each word of a topic in turn."""
    topics = sorted(WORDS)
    made = []
    for i in range(n):
        chosen = sorted({topics[i % 4], topics[(i // 4) % 4]})
        words = [WORDS[topic].split()[(i + j) % 8] for topic in chosen for j in range(3)]
        made.append({"text": f"the {' and the '.join(words)}", "labels": chosen})
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    made = documents(240)
    for name, part in (("train", made[:200]), ("test", made[200:])):
        lines = "".join(json.dumps(document) + "\n" for document in part)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "topics"
    finished = circlet("train", str(data), "--model", str(folder), *SMALL)
    assert finished.returncode == 0, finished.stderr
    assert "epoch  25/25" in finished.stderr
    return folder


def test_a_trained_folder_is_whole_and_holds_no_leftovers(model):
    assert {path.name for path in model.iterdir()} == {
        *("config.json", "weights.safetensors", "history.json", "labels.txt"),
        *("vectorizer.json", "vectorizer.safetensors"),
    }
    assert (model / "labels.txt").read_text() == "animal\nfood\nvehicle\nweather\n"


def test_evaluate(model, data):
    finished = circlet("evaluate", str(model), str(data), "--json", "-k", "1,2")
    values = json.loads(finished.stdout)
    assert values["documents"] == 40
    assert values["P@1"] > 0.95
    assert {"P@2", "PSP@1", "nDCG@2"} <= set(values)
    assert "40 test documents" in circlet("evaluate", str(model), str(data)).stdout


def test_evaluate_on_a_file_with_other_labels(model, tmp_path):
    path = tmp_path / "more.jsonl"
    rows = [{"text": "rain and snow", "labels": ["weather"]}, {"text": "a chess game", "labels": ["game"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = json.loads(circlet("evaluate", str(model), str(path), "--json", "-k", "1").stdout)
    assert values["P@1"] == 0.5  # it can't know games


def test_evaluate_deeper_than_a_model_has_labels(model, tmp_path, capsys):
    path = tmp_path / "more.jsonl"
    rows = [{"text": "rain and snow", "labels": ["weather"]}, {"text": "a chess game", "labels": ["game", "5"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    inside("evaluate", str(model), str(path), "--json", "-k", "1,6")
    values = json.loads(capsys.readouterr().out)
    assert values["P@1"] == 0.5
    assert values["P@6"] == pytest.approx(1 / 12)  # of twice six places one is right; two have no prediction


def test_predict_from_stdin(model):
    finished = circlet("predict", str(model), "-", "-k", "2", stdin="rain, snow and a storm\nthe fox\n\n")
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(rows) == 3  # an empty line is a document without words
    assert rows[0]["labels"][0] == "weather"
    assert rows[1]["labels"][0] == "animal"
    assert rows[0]["scores"][0] > 0.5 > rows[0]["scores"][1]


def test_predict_a_file_to_a_file(model, data, tmp_path):
    output = tmp_path / "new" / "labels.tsv"
    arguments = [str(data / "test.jsonl"), "--output", str(output), "--format", "tsv", "--threshold", "0.5"]
    finished = circlet("predict", str(model), *arguments)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == ""
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 40
    label, chance, *_ = lines[0].split("\t")
    assert label in WORDS
    assert 0.5 <= float(chance) <= 1


def test_predict_takes_chunks_of_a_stream_like_the_whole(model, data):
    texts = [row["text"] for row in documents(2100)]  # more than two chunks
    finished = circlet("predict", str(model), "-", "-k", "1", stdin="".join(f"{text}\n" for text in texts))
    rows = [json.loads(line)["labels"] for line in finished.stdout.splitlines()]
    assert len(rows) == 2100
    alone = circlet("predict", str(model), "-", "-k", "1", stdin=texts[2050] + "\n")
    assert json.loads(alone.stdout)["labels"] == rows[2050]


def test_info(model, tmp_path):
    described = json.loads(circlet("info", str(model), "--json").stdout)
    assert described["n_labels"] == 4
    assert described["parameters"]["head"] == 32 * 128 + 128
    assert described["bytes"]["total"] == sum(path.stat().st_size for path in model.iterdir())
    picture = tmp_path / "history.png"
    finished = circlet("info", str(model), "--plot", str(picture))
    assert "chrr" in finished.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def inside(*arguments: str) -> None:
    """Run a command in this process, which spares the imports."""
    app(list(arguments), standalone_mode=False)


@pytest.mark.parametrize("head", ["fc", "hrr", "chrr", "chrr-half", "chrr-sin", "chrr-tanh"])
def test_every_head_trains_by_name(head, data, tmp_path, capsys):
    inside("train", str(data), "--model", str(tmp_path / "m"), *SMALL, "--head", head, "--json")
    assert json.loads(capsys.readouterr().out)["network"]["head"] == head
    inside("evaluate", str(tmp_path / "m"), str(data), "--json")
    assert json.loads(capsys.readouterr().out)["P@1"] > 0.7


def test_the_papers_preset(data, tmp_path, capsys):
    small = ["--epochs", "2", "--hidden", "16,16", "--dim", "32", "--device", "cpu", "--json"]
    inside("train", str(data), "--model", str(tmp_path / "m"), "--preset", "paper", *small)
    summary = json.loads(capsys.readouterr().out)
    assert summary["network"]["loss"] == "cosine"
    assert summary["network"]["codebook"] == "independent"
    assert summary["training"]["optimizer"] == "adadelta"
    assert summary["training"]["batch_size"] == 64


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--head", "crr"], ["`head`", "chrr-half", "'crr'"]),
            (["--head", "fc", "--loss", "cosine"], ["fc", "bce"]),
            (["--hidden", "a"], ["--hidden", "'a'"]),
            (["--lr", "-1"], ["`lr`", "above 0"]),
            (["--device", "tpu9"], ["`device`", "tpu9"]),
            (["--preset", "fast"], ["`preset`", "paper"]),
            (["--resume"], ["no interrupted run"]),
            (["--codebook", "holographic"], ["does not fit head chrr"]),
            (["--validation", "-0.5"], ["`validation`", "-0.5"]),
            (["--head", "chrr-half", "--hidden", "7"], ["chrr-half", "7"]),
        ],
    )
    def test_training(self, arguments, words, data, tmp_path):
        with pytest.raises(CircletError) as raised:
            inside("train", str(data), "--model", str(tmp_path / "m"), *arguments)
        for word in words:
            assert word in str(raised.value)
        assert not (tmp_path / "m").exists()

    def test_a_mistake_is_one_line(self, data, tmp_path):
        finished = circlet("train", str(data), "--model", str(tmp_path / "m"), "--head", "crr")
        assert finished.returncode == 2
        assert finished.stderr.count("\n") == 1, finished.stderr

    def test_no_model(self, data, tmp_path):
        for arguments in (
            ["evaluate", str(tmp_path), str(data)],
            ["predict", str(tmp_path), "-"],
            ["info", str(tmp_path)],
        ):
            with pytest.raises(DataError, match="is not a circlet model"):
                inside(*arguments)

    def test_an_interrupted_run_is_no_model(self, tmp_path):
        (tmp_path / "checkpoint.safetensors").touch()
        for arguments in (["predict", str(tmp_path), "-"], ["info", str(tmp_path)]):
            with pytest.raises(DataError, match=r"an interrupted run.*to go on: the same `fit`, resume=True"):
                inside(*arguments)
            (tmp_path / "run.json").touch()
            with pytest.raises(DataError, match=r"found an interrupted run.*--resume$") as raised:
                inside(*arguments)
            assert f"to go on: circlet train DATA --model {tmp_path} --resume" in str(raised.value)
            (tmp_path / "run.json").unlink()

    @pytest.mark.parametrize("lines", ["text,labels\na fox,\na van,\n", "2 3 4\n 0:1\n 2:1\n"])
    def test_data_without_a_label(self, lines, model, tmp_path):
        (tmp_path / "bare.csv").write_text(lines)
        found = r"bare\.csv: found no label in any of the 2 documents; wanted some to "
        with pytest.raises(DataError, match=f"{found}learn from"):
            inside("train", str(tmp_path / "bare.csv"), "--model", str(tmp_path / "m"), *SMALL)
        assert not (tmp_path / "m").exists()
        with pytest.raises(DataError, match=f"{found}compare with"):
            inside("evaluate", str(model), str(tmp_path / "bare.csv"))

    def test_plain_lines_are_for_stdin(self, model, tmp_path):
        lines = tmp_path / "lines.txt"
        lines.write_text("a red fox\na van\n")
        with pytest.raises(DataError, match=r"lines\.txt:1: found 'a red fox'; wanted one of these") as raised:
            inside("predict", str(model), str(lines))
        assert f"a document per line: circlet predict MODEL - < {lines}" in str(raised.value)
        for text in ("fox fur", "fox fur " * 100):
            with pytest.raises(DataError, match=r"called 'fox fur.*circlet predict MODEL - < FILE") as raised:
                inside("predict", str(model), text)
            assert len(str(raised.value)) < 300

    def test_a_stream_that_is_not_text(self, model):
        finished = subprocess.run(
            command("predict", str(model), "-"), input=b"fine\n\xff\xfe\n", capture_output=True, check=False
        )
        assert finished.returncode == 2
        assert b"stdin:2" in finished.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_interrupted_and_resumed_is_the_same_model(data, tmp_path):
    options = [str(data), *SMALL, "--epochs", "60", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert circlet("train", *options, str(whole)).returncode == 0

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command("train", *options, str(parted)), stderr=subprocess.PIPE, text=True, env=environment
    )
    while not (parted / "checkpoint.safetensors").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert f"--model {parted} --resume" in stderr
    assert "Traceback" not in stderr

    again = circlet("train", *options, str(parted))
    assert again.returncode == 2
    assert "--resume" in again.stderr  # nothing is forgotten by accident
    finished = circlet("train", str(data), "--model", str(parted), "--resume")
    assert finished.returncode == 0, finished.stderr
    assert (parted / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert sorted(path.name for path in parted.iterdir()) == sorted(path.name for path in whole.iterdir())
