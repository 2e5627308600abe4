from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

TEXTS = ("the fox and the wolf", "rain, snow; and a storm", "a bicycle")
ROWS = list(zip(TEXTS, (["animal", "food"], ["weather"], []), strict=True))
#: How each format writes rows of a text and its labels.
FORMS: dict[str, Callable[[list], str]] = {
    "jsonl": lambda rows: "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows),
    "csv": lambda rows: "text,labels\n" + "".join(f'"{text}",{";".join(labels)}\n' for text, labels in rows),
    "tsv": lambda rows: "labels\ttext\n" + "".join(f"{';'.join(labels)}\t{text}\n" for text, labels in rows),
    "fasttext": lambda rows: "".join(
        " ".join([*(f"__label__{label}" for label in labels), text]) + "\n" for text, labels in rows
    ),
    "annif": lambda rows: "".join(
        f"{text}\t{' '.join(f'<{label}>' for label in labels)}\n" for text, labels in rows
    ),
    "plain": lambda rows: "".join(f"{text}\n" for text, _ in rows),
}


class TestThreshold:
    """Labels that are not probable enough are left out; training has found out what is enough."""

    def labels(self, circlet, model, *options: str) -> list[list[str]]:
        lines = circlet("predict", model, "-", *options, stdin="the fox and the rain\nnothing\n").stdout
        return [json.loads(line)["labels"] for line in lines.splitlines()]

    def test_the_models_own_is_used(self, circlet, model):
        stored = json.loads(circlet("info", model, "--json").stdout)["threshold"]
        assert 0 < stored < 1
        found = self.labels(circlet, model)
        assert sorted(found[0]) == ["animal", "weather"]
        assert found == self.labels(circlet, model, "--threshold", str(stored))
        assert [len(each) for each in self.labels(circlet, model, "-k", "1")] == [1, min(1, len(found[1]))]

    def test_zero_gives_all_k(self, circlet, model):
        assert [len(each) for each in self.labels(circlet, model, "--threshold", "0")] == [4, 4]
        assert [len(each) for each in self.labels(circlet, model, "--threshold", "0", "-k", "3")] == [3, 3]

    def test_none_is_stored(self, circlet, model, tmp_path):
        from circlet.model import Model

        changed = Model.load(model)
        changed.threshold = None
        changed.save(tmp_path / "m")
        assert [len(each) for each in self.labels(circlet, tmp_path / "m")] == [4, 4]
        assert "none stored" in circlet("info", tmp_path / "m").stdout


class TestFiles:
    """What would be printed, in the format that a file's name asks for."""

    def read(self, path: Path) -> list[dict]:
        if path.suffix == ".parquet":
            return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        with path.open(encoding="utf-8", newline="") as stream:
            if path.suffix == ".jsonl":
                return [json.loads(line) for line in stream]
            rows = list(csv.DictReader(stream, delimiter="," if path.suffix == ".csv" else "\t"))
        return [{"id": row["id"], **{key: json.loads(row[key]) for key in ("labels", "scores")}} for row in rows]

    @pytest.mark.skipif(os.name == "nt", reason="needs pipes of POSIX systems")
    def test_into_a_pipe(self, circlet, model, tmp_path):
        path = tmp_path / "tagged.jsonl"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            assert circlet("predict", model, "-", "--output", path, stdin="the fox\n").returncode == 0
            assert json.loads(os.read(reader, 1 << 16))["labels"][0] == "animal"
        finally:
            os.close(reader)
        assert path.is_fifo()

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
    def test_every_format(self, circlet, model, topics, write_jsonl, tmp_path, ending):
        if ending == "parquet":
            pytest.importorskip("pyarrow")
        rows = [{"id": f"document {row}", **one} for row, one in enumerate(topics(40))]
        documents, output = write_jsonl(tmp_path / "a.jsonl", rows), tmp_path / "new" / f"labels.{ending}"
        printed = circlet("predict", model, documents, "--threshold", "0.5").stdout
        assert circlet("predict", model, documents, "--threshold", "0.5", "--output", output) == (0, "", "")
        assert self.read(output) == [json.loads(line) for line in printed.splitlines()]
        assert [row["id"] for row in self.read(output)] == [row["id"] for row in rows]
        assert all(min(row["scores"]) >= 0.5 for row in self.read(output))
        assert [file.name for file in output.parent.iterdir()] == [output.name]

    @pytest.mark.parametrize("ending", ["csv", "tsv"])
    def test_circlet_trains_on_its_own_tables(self, circlet, model, data, tmp_path, ending):
        """The ids stand in for texts, which would have to be joined."""
        output = tmp_path / f"labels.{ending}"
        assert circlet("predict", model, data, "-k", "2", "--threshold", "0", "--output", output).returncode == 0
        described = json.loads(circlet("datasets", "info", output, "--text-column", "id", "--json").stdout)
        assert described["train_points"] == 40
        assert described["labels"] == 4
        assert described["labels_per_point"] == 2
        assert {one["label"] for one in described["frequent_labels"]} == {"animal", "food", "vehicle", "weather"}

    @pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
    def test_a_fault_half_way_changes_nothing(self, refused, model, tmp_path, ending):
        if ending == "parquet":
            pytest.importorskip("pyarrow")
        content = '{"text": "the fox"}\n' * 1500 + "broken\n"
        output = tmp_path / f"labels.{ending}"
        assert "stdin:1501: found 'broken'" in refused("predict", model, "-", "--output", output, stdin=content)
        assert list(tmp_path.iterdir()) == []
        output.write_text("what was there")
        refused("predict", model, "-", "--output", output, stdin=content)
        assert output.read_text() == "what was there"
        assert list(tmp_path.iterdir()) == [output]

    @pytest.mark.parametrize("name", ["labels", "labels.txt", "labels.json"])
    def test_unknown_endings_are_refused_before_any_work(self, refused, tmp_path, name):
        line = refused("predict", tmp_path / "no model", "-", "--output", tmp_path / "new" / name)
        assert (
            f"found {name!r}, a name of no known format; wanted a name that ends in .jsonl, .csv, .tsv or .par"
            in line
        )
        assert list(tmp_path.iterdir()) == []

    def test_parquet_without_its_extra(self, refused, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        line = refused("predict", tmp_path / "no model", "-", "--output", tmp_path / "a.parquet")
        assert "pip install 'circlet[parquet]'" in line


class TestIds:
    def ids(self, finished) -> list[object]:
        return [json.loads(line)["id"] for line in finished.stdout.splitlines()]

    def test_from_the_input(self, circlet, model):
        jsonl = '{"text": "the fox", "id": "b"}\n{"text": "snow", "id": 3}\n{"text": "a van"}\n'
        assert self.ids(circlet("predict", model, "-", stdin=jsonl)) == ["b", 3, 2]
        assert self.ids(circlet("predict", model, "-", stdin="id,text\n007,the fox\n")) == ["007"]

    def test_rows_of_a_matrix(self, circlet, works, small, tmp_path):
        rows = "".join(f"{row % 2} {row % 2}:1 2:{row + 1}\n" for row in range(40))
        (tmp_path / "train.svm").write_text(rows)
        (tmp_path / "test.svm").write_text("0 0:1 2:3\n1 1:1 2:5\n")
        works("train", tmp_path, "--model", tmp_path / "m", *small, "--epochs", "1")
        finished = circlet("predict", tmp_path / "m", tmp_path, "--threshold", "0")
        assert self.ids(finished) == [0, 1]
        assert sorted(json.loads(finished.stdout.splitlines()[0])["labels"]) == [0, 1]


class TestStreams:
    @pytest.fixture
    def started(self, model):
        """The command as a process of its own, between two pipes."""
        command = subprocess.Popen(
            [sys.executable, "-m", "circlet", "predict", model, "-", "-k", "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Without a buffer, nothing would have to be flushed, before the next line or at the end.
            env={**os.environ, "PYTHONUNBUFFERED": "", "PYTHONIOENCODING": "ascii"},
        )
        patience = threading.Timer(60, command.kill)  # an answer that never comes should fail, and not hang
        patience.start()
        with command:
            yield command
            patience.cancel()
            command.kill()

    def test_each_line_is_answered_before_the_next_and_nobody_has_to_listen(self, started):
        for row, (text, label) in enumerate(
            [("the fox", "animal"), ("snow", "weather"), ("a bicycle", "vehicle")]
        ):
            started.stdin.write(f"{text}\n".encode())
            started.stdin.flush()
            answer = json.loads(started.stdout.readline())
            assert (answer["id"], answer["labels"]) == (row, [label])
        started.stdout.close()  # as `head -3` does
        started.stdin.write(b"rain\n")
        started.stdin.flush()
        assert started.stderr.read() == b""
        assert started.wait() == 0

    def test_answers_before_a_bad_line_are_out(self, circlet, model):
        finished = circlet("predict", model, "-", stdin=b"fine\nsnow\n\xff\xfe\nrain\n")
        assert finished.returncode == 2
        assert [json.loads(line)["id"] for line in finished.stdout.splitlines()] == [0, 1]
        (line,) = finished.stderr.splitlines()
        assert "stdin:3: found byte 0x" in line


def test_chunks_of_a_stream_are_predicted_like_single_lines(circlet, model, topics):
    texts = [row["text"] for row in topics(2100)]  # more than two chunks
    finished = circlet("predict", model, "-", "-k", "1", stdin="".join(f"{text}\n" for text in texts))
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [each["id"] for each in answers] == list(range(2100))
    rows = [each["labels"] for each in answers]
    alone = circlet("predict", model, "-", "-k", "1", stdin=texts[2050] + "\n")
    assert json.loads(alone.stdout)["labels"] == rows[2050]


class TestStdin:
    """Whatever stands on standard input is tagged as it would be in a file, and its labels are never looked at."""

    @pytest.fixture
    def expected(self, circlet, model) -> str:
        """The suggestions for these texts alone."""
        return circlet("predict", model, "-", stdin=FORMS["plain"](ROWS)).stdout

    @pytest.mark.parametrize("form", FORMS)
    def test_every_format(self, circlet, form, model, expected, tmp_path):
        content = FORMS[form](ROWS)
        assert circlet("predict", model, "-", stdin=content) == (0, expected, "")
        assert [json.loads(line)["labels"][0] for line in expected.splitlines()] == [
            "animal",
            "weather",
            "vehicle",
        ]
        if form != "plain":
            (tmp_path / "texts.txt").write_text(content, encoding="utf-8")
            assert circlet("predict", model, tmp_path / "texts.txt") == (0, expected, "")

    def test_a_named_column(self, circlet, model, expected):
        content = "".join(json.dumps({"body": text, "text": "bread"}) + "\n" for text in TEXTS)
        assert circlet("predict", model, "-", "--text-column", "body", stdin=content).stdout == expected


@pytest.fixture
def mixed(data) -> list[str]:
    """Texts about weather and something else."""
    rows = [json.loads(line) for line in (data / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows if "weather" in row["labels"] and len(row["labels"]) == 2]


class TestFavorRare:
    def predict(self, works, model, texts, *options) -> list[dict[str, float]]:
        finished = works("predict", model, "-", *options, stdin="".join(f"{text}\n" for text in texts))
        rows = [json.loads(line) for line in finished.stdout.splitlines()]
        return [dict(zip(row["labels"], row["scores"], strict=True)) for row in rows]

    def test_the_order_changes_and_not_the_probabilities(self, works, uneven, mixed):
        plain = self.predict(works, uneven, mixed, "-k", "4", "--threshold", "0")
        favored = self.predict(works, uneven, mixed, "-k", "4", "--favor-rare", "1")
        for one, other in zip(favored, plain, strict=True):  # dictionaries do not compare the order
            assert one == pytest.approx(other, rel=1e-5)  # the last of six digits may differ
        assert any(next(iter(row)) != "weather" for row in plain)
        assert all(next(iter(row)) == "weather" for row in favored)
        best = self.predict(works, uneven, mixed, "-k", "1", "--favor-rare", "1", "--memory", "1K")
        for one, other in zip(best, favored, strict=True):
            assert one == pytest.approx({"weather": other["weather"]}, rel=1e-5)

    def test_threshold(self, works, uneven, mixed):
        words = ["snow and fog", *mixed]
        favored = self.predict(works, uneven, words, "-k", "2", "--favor-rare", "1", "--threshold", "0.5")
        plain = self.predict(works, uneven, words, "-k", "4", "--threshold", "0.5")
        assert favored[0] == {"weather": plain[0]["weather"]}
        assert favored == plain
        assert min(min(row.values()) for row in favored) >= 0.5

    @pytest.mark.parametrize("value", ["-0.1", "1.5", "nan"])
    @pytest.mark.parametrize("command", ["predict", "evaluate"])
    def test_beyond_0_and_1(self, refused, command, value, model, data):
        line = refused(command, model, data, f"--favor-rare={value}")
        assert "'--favor-rare'" in line or "`favor_rare`: found nan; wanted a number from 0 to 1" in line


class TestMemory:
    def test_it_changes_nothing(self, circlet, model, data):
        whole, parted = (circlet("predict", model, data, *more) for more in ([], ["--memory", "1K"]))
        assert whole == parted
        assert len(whole.stdout.splitlines()) == 40


class TestMistakes:
    def test_plain_lines_are_for_stdin(self, circlet, refused, model, tmp_path):
        lines = tmp_path / "lines.txt"
        lines.write_text("a red fox\na van\n")
        finished = circlet("predict", model, lines)
        assert json.loads(finished.stdout)["id"] == "lines.txt"
        assert "lines.txt: plain text, read as one document" in finished.stderr
        assert f"a document per line: circlet predict MODEL - < {lines}" in finished.stderr
        for text in ("fox fur", "fox fur " * 100):
            line = refused("predict", model, text)
            assert "called 'fox fur" in line
            assert "circlet predict MODEL - < FILE" in line
            assert len(line) < 300
