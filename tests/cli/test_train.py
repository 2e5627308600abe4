"""Training, predicting and evaluating as a person does it, on small files."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from circlet.cli.progress import TrainingBar

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = {
    "animal": "fox wolf bear deer hare lynx otter badger",
    "vehicle": "car truck tram bicycle lorry van scooter train",
    "food": "bread cheese apple soup rice pasta salad lentils",
    "weather": "rain snow wind storm fog hail sunshine thunder",
}
SIZES = {"dim": 64, "hidden": 32, "dropout": 0.2, "epochs": 25, "batch-size": 16, "lr": 0.01, "device": "cpu"}
SMALL = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


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
def model(circlet, data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "topics"
    finished = circlet("train", data, "--model", folder, *SMALL)
    assert finished.returncode == 0, finished.stderr
    assert "epoch  25/25" in finished.stderr
    return folder


def test_a_trained_folder_is_complete_without_leftovers(model):
    assert {path.name for path in model.iterdir()} == {
        *("config.json", "weights.safetensors", "history.json", "labels.txt"),
        *("vectorizer.json", "vectorizer.safetensors"),
    }
    assert (model / "labels.txt").read_text() == "animal\nfood\nvehicle\nweather\n"


def test_evaluate(circlet, model, data):
    finished = circlet("evaluate", model, data, "--json", "-k", "1,2")
    values = json.loads(finished.stdout)
    assert values["documents"] == 40
    assert values["P@1"] > 0.95
    assert {"P@2", "PSP@1", "nDCG@2"} <= set(values)
    assert "40 test documents" in circlet("evaluate", model, data).stdout


def test_evaluate_on_a_file_with_other_labels(circlet, model, tmp_path):
    path = tmp_path / "more.jsonl"
    rows = [{"text": "rain and snow", "labels": ["weather"]}, {"text": "a chess game", "labels": ["game"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = json.loads(circlet("evaluate", model, path, "--json", "-k", "1").stdout)
    assert values["P@1"] == 0.5  # it can't know games


def test_evaluate_with_k_above_the_number_of_labels(circlet, model, tmp_path):
    path = tmp_path / "more.jsonl"
    rows = [{"text": "rain and snow", "labels": ["weather"]}, {"text": "a chess game", "labels": ["game", "5"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = json.loads(circlet("evaluate", model, path, "--json", "-k", "1,6").stdout)
    assert values["P@1"] == 0.5
    assert values["P@6"] == pytest.approx(
        1 / 12
    )  # one of 2 × 6 places is right; the model has only four labels to fill them


def test_predict_from_stdin(circlet, model):
    finished = circlet("predict", model, "-", "-k", "2", stdin="rain, snow and a storm\nthe fox\n\n")
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(rows) == 3  # an empty line is a document without words
    assert rows[0]["labels"][0] == "weather"
    assert rows[1]["labels"][0] == "animal"
    assert rows[0]["scores"][0] > 0.5 > rows[0]["scores"][1]


def test_predict_a_file_to_a_file(circlet, model, data, tmp_path):
    output = tmp_path / "new" / "labels.tsv"
    arguments = [data / "test.jsonl", "--output", output, "--format", "tsv", "--threshold", "0.5"]
    finished = circlet("predict", model, *arguments)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == ""
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 40
    label, chance, *_ = lines[0].split("\t")
    assert label in WORDS
    assert 0.5 <= float(chance) <= 1


def test_chunks_of_a_stream_are_predicted_like_single_lines(circlet, model, data):
    texts = [row["text"] for row in documents(2100)]  # more than two chunks
    finished = circlet("predict", model, "-", "-k", "1", stdin="".join(f"{text}\n" for text in texts))
    rows = [json.loads(line)["labels"] for line in finished.stdout.splitlines()]
    assert len(rows) == 2100
    alone = circlet("predict", model, "-", "-k", "1", stdin=texts[2050] + "\n")
    assert json.loads(alone.stdout)["labels"] == rows[2050]


def test_info(circlet, model, tmp_path):
    described = json.loads(circlet("info", model, "--json").stdout)
    assert described["n_labels"] == 4
    assert described["parameters"]["head"] == 32 * 128 + 128
    assert described["bytes"]["total"] == sum(path.stat().st_size for path in model.iterdir())
    picture = tmp_path / "history.png"
    finished = circlet("info", model, "--plot", picture)
    assert "chrr" in finished.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("head", ["fc", "hrr", "chrr", "chrr-half", "chrr-sin", "chrr-tanh"])
def test_every_head_trains_by_name(circlet, head, data, tmp_path):
    options = [*SMALL, "--epochs", "12", "--head", head, "--json"]
    trained = circlet("train", data, "--model", tmp_path / "m", *options)
    assert json.loads(trained.stdout)["network"]["head"] == head
    assert json.loads(circlet("evaluate", tmp_path / "m", data, "--json").stdout)["P@1"] > 0.7


def test_the_papers_preset(circlet, data, tmp_path):
    small = ["--epochs", "2", "--hidden", "16,16", "--dim", "32", "--device", "cpu", "--json"]
    summary = json.loads(circlet("train", data, "--model", tmp_path / "m", "--preset", "paper", *small).stdout)
    assert summary["network"]["loss"] == "cosine"
    assert summary["network"]["codebook"] == "independent"
    assert summary["training"]["optimizer"] == "adadelta"
    assert summary["training"]["batch_size"] == 64


class TestMistakes:
    @pytest.fixture
    def refused(self, circlet):
        """Run a command that must fail with one line on stderr, and give that line."""

        def run(*words: object, **given) -> str:
            finished = circlet(*words, **given)
            assert finished.returncode == 2, finished.stderr
            assert finished.stdout == ""
            *before, line = finished.stderr.splitlines()
            assert before == []
            assert line.startswith("circlet: ")
            return line

        return run

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
        ],
    )
    def test_training(self, refused, arguments, words, data, tmp_path):
        line = refused("train", data, "--model", tmp_path / "m", *arguments)
        for word in words:
            assert word in line
        assert not (tmp_path / "m").exists()

    def test_a_mistake_that_only_the_data_shows(self, circlet, data, tmp_path):
        finished = circlet("train", data, "--model", tmp_path / "m", "--head", "chrr-half", "--hidden", "7")
        assert finished.returncode == 2
        _, line = finished.stderr.splitlines()  # the first says what was read
        assert line.startswith("circlet: ")
        assert "chrr-half" in line
        assert "7" in line
        assert not (tmp_path / "m").exists()

    def test_no_model(self, refused, data, tmp_path):
        for words in (["evaluate", tmp_path, data], ["predict", tmp_path, "-"], ["info", tmp_path]):
            assert "is not a circlet model" in refused(*words)

    def test_an_interrupted_run_is_no_model(self, refused, tmp_path):
        (tmp_path / "checkpoint.safetensors").touch()
        for words in (["predict", tmp_path, "-"], ["info", tmp_path]):
            line = refused(*words)
            assert "an interrupted run" in line
            assert "to go on: the same `fit`, resume=True" in line
            (tmp_path / "run.json").touch()
            line = refused(*words)
            assert "found an interrupted run" in line
            assert line.endswith(f"to go on: circlet train DATA --model {tmp_path} --resume")
            (tmp_path / "run.json").unlink()

    @pytest.mark.parametrize("lines", ["text,labels\na fox,\na van,\n", "2 3 4\n 0:1\n 2:1\n"])
    def test_data_without_a_label(self, refused, lines, model, tmp_path):
        (tmp_path / "bare.csv").write_text(lines)
        found = "bare.csv: found no label in any of the 2 documents; wanted some to "
        assert f"{found}learn from" in refused("train", tmp_path / "bare.csv", "--model", tmp_path / "m", *SMALL)
        assert not (tmp_path / "m").exists()
        assert f"{found}compare with" in refused("evaluate", model, tmp_path / "bare.csv")

    def test_plain_lines_are_for_stdin(self, refused, model, tmp_path):
        lines = tmp_path / "lines.txt"
        lines.write_text("a red fox\na van\n")
        line = refused("predict", model, lines)
        assert "lines.txt:1: found 'a red fox'; wanted one of these" in line
        assert f"a document per line: circlet predict MODEL - < {lines}" in line
        for text in ("fox fur", "fox fur " * 100):
            line = refused("predict", model, text)
            assert "called 'fox fur" in line
            assert "circlet predict MODEL - < FILE" in line
            assert len(line) < 300

    def test_a_stream_that_is_not_text(self, refused, model):
        assert "stdin:2" in refused("predict", model, "-", stdin=b"fine\n\xff\xfe\n")


@pytest.mark.parametrize("at", [5, 12, 13])  # of 12 steps per epoch: in the first, at its end, in the second
def test_interrupted_and_resumed_is_the_same_model(circlet, data, tmp_path, monkeypatch, at):
    options = [data, *SMALL, "--epochs", "3", "--model"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert circlet("train", *options, whole).returncode == 0
    step, taken = TrainingBar.step, []

    def interrupting(bar, steps):
        taken.append(steps)
        if len(taken) == at:
            signal.raise_signal(signal.SIGINT)
        step(bar, steps)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBar, "step", interrupting)
        interrupted = circlet("train", *options, parted)
    assert interrupted.returncode == 130, interrupted.stderr
    assert len(taken) == at
    assert f"--model {parted} --resume" in interrupted.stderr
    assert "Traceback" not in interrupted.stderr

    again = circlet("train", *options, parted)
    assert again.returncode == 2
    assert "--resume" in again.stderr  # an interrupted run is not thrown away by accident
    finished = circlet("train", data, "--model", parted, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert (parted / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert sorted(path.name for path in parted.iterdir()) == sorted(path.name for path in whole.iterdir())
