"""`circlet predict`: what it reads, what it answers, and how that is printed or written."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TextIO, cast

import pytest
import typer

from circlet.cli.console import Stdout, label_lines
from circlet.cli.predict import check_output, printer
from circlet.errors import OutputError, ParameterError
from circlet.model import Model
from circlet.runtime.answers import Answer, Suggestion

TEXTS = ("the fox and the wolf", "rain, snow; and a storm", "a bicycle")
ROWS = list(zip(TEXTS, (["animal", "food"], ["weather"], []), strict=True))
#: How each format writes a text and its labels, after a first line.
FORMS: dict[str, tuple[str, Callable[[str, list[str]], str]]] = {
    "jsonl": ("", lambda text, labels: json.dumps({"text": text, "labels": labels})),
    "csv": ("text,labels\n", lambda text, labels: f'"{text}",{";".join(labels)}'),
    "tsv": ("labels\ttext\n", lambda text, labels: f"{';'.join(labels)}\t{text}"),
    "fasttext": ("", lambda text, labels: " ".join([*(f"__label__{label}" for label in labels), text])),
    "annif": ("", lambda text, labels: f"{text}\t{' '.join(f'<{label}>' for label in labels)}"),
    "plain": ("", lambda text, labels: text),
}


class TestThreshold:
    """Labels that are not probable enough are left out; training has found out what is enough."""

    @pytest.fixture
    def labels(self, predict) -> Callable[..., list[list[str]]]:
        return lambda model, *options: [
            row["labels"] for row in predict(model, "the fox and the rain\nnothing\n", *options)
        ]

    def test_the_models_own_is_used(self, as_json, labels, model):
        stored = as_json("info", model)["threshold"]
        assert 0 < stored < 1
        found = labels(model)
        assert sorted(found[0]) == ["animal", "weather"]
        assert found == labels(model, "--threshold", stored)
        assert [len(each) for each in labels(model, "-k", "1")] == [1, min(1, len(found[1]))]

    def test_all_k_are_given_for_zero_and_if_none_is_stored(self, circlet, labels, model, tmp_path):
        assert [len(each) for each in labels(model, "--threshold", "0")] == [4, 4]
        assert [len(each) for each in labels(model, "--threshold", "0", "-k", "3")] == [3, 3]
        changed = Model.load(model)
        changed.threshold = None
        changed.save(tmp_path / "m")
        assert [len(each) for each in labels(tmp_path / "m")] == [4, 4]
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
    def test_into_a_pipe(self, works, model, tmp_path):
        path = tmp_path / "tagged.jsonl"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            works("predict", model, "-", "--output", path, stdin="the fox\n")
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
        found = self.read(output)
        assert found == [json.loads(line) for line in printed.splitlines()]
        assert [row["id"] for row in found] == [row["id"] for row in rows]
        assert all(min(row["scores"]) >= 0.5 for row in found)
        assert [file.name for file in output.parent.iterdir()] == [output.name]

    @pytest.mark.parametrize("ending", ["csv", "tsv"])
    def test_circlet_trains_on_its_own_tables(self, as_json, works, model, data, tmp_path, ending):
        """The ids stand in for texts, which would have to be joined."""
        output = tmp_path / f"labels.{ending}"
        works("predict", model, data, "-k", "2", "--threshold", "0", "--output", output)
        described = as_json("datasets", "info", output, "--text-column", "id")
        assert [described[name] for name in ("train_points", "labels", "labels_per_point")] == [40, 4, 2]
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

    @pytest.mark.parametrize("name", ["labels", "labels.txt", "labels.json", "labels.parquet"])
    def test_names_that_are_refused_before_any_work(self, refused, tmp_path, monkeypatch, name):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        line = refused("predict", tmp_path / "no model", "-", "--output", tmp_path / "new" / name)
        if name == "labels.parquet":
            assert "pip install 'circlet[parquet]'" in line
        else:
            assert f"found {name!r}, a name of no known format; wanted a name that ends in .jsonl, .csv, " in line
            assert ".tsv or .par" in line
        assert list(tmp_path.iterdir()) == []


def test_rows_of_a_matrix(predict, works, small, tmp_path):
    rows = "".join(f"{row % 2} {row % 2}:1 2:{row + 1}\n" for row in range(40))
    (tmp_path / "train.svm").write_text(rows)
    (tmp_path / "test.svm").write_text("0 0:1 2:3\n1 1:1 2:5\n")
    works("train", tmp_path, "--model", tmp_path / "m", *small, "--epochs", "1")
    printed = works("predict", tmp_path / "m", tmp_path, "--threshold", "0").stdout.splitlines()
    assert [json.loads(line)["id"] for line in printed] == [0, 1]
    assert sorted(json.loads(printed[0])["labels"]) == [0, 1]


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
        known = {"the fox": "animal", "snow": "weather", "a bicycle": "vehicle"}
        for row, (text, label) in enumerate(known.items()):
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

    def test_chunks_are_predicted_like_single_lines(self, predict, model, topics):
        texts = [f"{row['text']}\n" for row in topics(2100)]  # more than two chunks
        answers = predict(model, "".join(texts), "-k", "1")
        assert [each["id"] for each in answers] == list(range(2100))
        assert predict(model, texts[2050], "-k", "1")[0]["labels"] == answers[2050]["labels"]


class TestStdin:
    """Whatever stands on standard input is tagged as it would be in a file, and its labels are never looked at."""

    @pytest.fixture
    def expected(self, circlet, model) -> str:
        """The suggestions for these texts alone."""
        return circlet("predict", model, "-", stdin="".join(f"{text}\n" for text in TEXTS)).stdout

    @pytest.mark.parametrize("form", FORMS)
    def test_every_format(self, circlet, form, model, expected, tmp_path):
        first, line = FORMS[form]
        content = first + "".join(f"{line(*row)}\n" for row in ROWS)
        assert circlet("predict", model, "-", stdin=content) == (0, expected, "")
        best = [json.loads(line)["labels"][0] for line in expected.splitlines()]
        assert best == ["animal", "weather", "vehicle"]
        if form != "plain":
            (tmp_path / "texts.txt").write_text(content, encoding="utf-8")
            assert circlet("predict", model, tmp_path / "texts.txt") == (0, expected, "")

    def test_a_named_column(self, circlet, model, expected):
        content = "".join(json.dumps({"body": text, "text": "bread"}) + "\n" for text in TEXTS)
        assert circlet("predict", model, "-", "--text-column", "body", stdin=content).stdout == expected


class TestFavorRare:
    @pytest.fixture
    def scores(self, predict, uneven, data) -> Callable[..., list[dict[str, float]]]:
        """The scores of labels for texts about weather and something else."""
        rows = [json.loads(line) for line in (data / "test.jsonl").read_text(encoding="utf-8").splitlines()]
        mixed = [row["text"] for row in rows if "weather" in row["labels"] and len(row["labels"]) == 2]

        def run(*options: str, before: tuple[str, ...] = ()) -> list[dict[str, float]]:
            found = predict(uneven, "".join(f"{text}\n" for text in (*before, *mixed)), *options)
            return [dict(zip(row["labels"], row["scores"], strict=True)) for row in found]

        return run

    def test_the_order_changes_and_not_the_probabilities(self, scores):
        plain = scores("-k", "4", "--threshold", "0")
        favored = scores("-k", "4", "--favor-rare", "1")
        for one, other in zip(favored, plain, strict=True):  # dictionaries do not compare the order
            assert one == pytest.approx(other, rel=1e-5)  # the last of six digits may differ
        assert any(next(iter(row)) != "weather" for row in plain)
        assert all(next(iter(row)) == "weather" for row in favored)
        best = scores("-k", "1", "--favor-rare", "1", "--memory", "1K")
        for one, other in zip(best, favored, strict=True):
            assert one == pytest.approx({"weather": other["weather"]}, rel=1e-5)

    def test_threshold(self, scores):
        favored = scores("-k", "2", "--favor-rare", "1", "--threshold", "0.5", before=("snow and fog",))
        plain = scores("-k", "4", "--threshold", "0.5", before=("snow and fog",))
        assert favored[0] == {"weather": plain[0]["weather"]}
        assert favored == plain
        assert min(min(row.values()) for row in favored) >= 0.5

    @pytest.mark.parametrize(
        ("command", "value"), [("predict", "-0.1"), ("evaluate", "1.5"), ("predict", "nan"), ("evaluate", "nan")]
    )
    def test_beyond_0_and_1(self, refused, command, value, model, data):
        line = refused(command, model, data, f"--favor-rare={value}")
        assert "'--favor-rare'" in line or "`favor_rare`: found nan; wanted a number from 0 to 1" in line


def test_memory_changes_nothing(circlet, model, data):
    whole, parted = (circlet("predict", model, data, *more) for more in ([], ["--memory", "1K"]))
    assert whole == parted
    assert len(whole.stdout.splitlines()) == 40


def test_plain_lines_are_for_stdin(circlet, refused, model, tmp_path):
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


def tagged(name, labels, scores):
    return Answer(name, list(map(Suggestion, labels, scores)))


FOX = tagged(0, ["animal", "[red] fur"], [0.987, 0.004])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.getvalue().splitlines()]


# Not fixtures, because pytest sets its own standard output after them.
def shown(answer: Answer, text: str | None = "the fox", *, as_json: bool = False) -> list[str]:
    """The lines on a terminal after this answer."""
    with redirect_stdout(Terminal()) as screen:
        printer(as_json=as_json, with_uris=False)([answer], None if text is None else [text])
        return screen.lines()


@contextmanager
def pipe() -> Iterator[IO[bytes]]:
    """Standard output that is a pipe, with an encoding of its own; gives the other end."""
    reader, writer = os.pipe()
    with (
        os.fdopen(reader, "rb") as other,
        os.fdopen(writer, "w", encoding="ascii") as stdout,
        redirect_stdout(cast(TextIO, Stdout(stdout))),
    ):
        yield other


class TestTerminal:
    """A table on a terminal."""

    def test_rows_are_shown_as_they_come(self):
        with redirect_stdout(Terminal()) as screen:
            write = printer(as_json=False, with_uris=False)
            write([FOX], ["the fox"])
            assert screen.lines() == [
                "id     text                            labels",
                "─" * 80,
                "0      the fox                         animal 0.9870   [red] fur 0.0040",
            ]
            write([tagged(1, [], []), tagged(2, ["food"], [0.5])], ["[bold] words\nof many lines " * 9, ""])
            assert screen.lines()[3:] == [
                "1      [bold] words of many lines […   –",
                "2                                      food 0.5000",
            ]

    def test_many_labels_are_wrapped_in_their_column(self):
        rows = shown(tagged(0, [f"label {n}" for n in range(9)], [0.5] * 9))
        labels = " ".join(f"label {n} 0.5000" for n in range(9))
        assert " ".join(" ".join(rows[2:]).split()) == f"0 the fox {labels}"
        assert max(map(len, rows)) <= 80
        assert all(row.startswith(" " * 38) for row in rows[3:])

    @pytest.mark.parametrize(
        ("answer", "text", "expected"),
        [
            (("http://example.org/documents/1", ["a"], [1.0]), "the fox", "http://example.org/… the fox a 1.0000"),
            (("\x1b[2J", ["\x1b[31mred"], [0.5]), "\x1b]0;title\x07 fox", "[2J ]0;title fox [31mred 0.5000"),
            ((0, [7], [0.5]), None, "0 7 0.5000"),
        ],
        ids=["a long id is cut", "documents cannot steer the terminal", "rows without texts"],
    )
    def test_a_row(self, answer, text, expected):
        rows = shown(tagged(*answer), text)
        assert rows[0].split() == (["id", "text", "labels"] if text else ["id", "labels"])
        assert rows[2].split() == expected.split()
        assert all(line.isprintable() for line in rows)

    def test_json_if_asked(self):
        (line,) = shown(FOX, as_json=True)
        assert json.loads(line) == {"id": 0, "labels": ["animal", "[red] fur"], "scores": [0.987, 0.004]}


class TestPipe:
    """JSONL in a pipe."""

    def test_every_batch_is_out_at_once_and_in_utf_8(self):
        with pipe() as other:
            write = printer(as_json=False, with_uris=False)
            write([tagged("é", ["日本"], [0.5])], ["a"])
            assert other.readline().decode() == '{"id": "é", "labels": ["日本"], "scores": [0.5]}\n'
            write([FOX], ["b"])
            assert json.loads(other.readline())["labels"] == ["animal", "[red] fur"]

    def test_nobody_reads_on(self):
        with pipe() as other:
            write = printer(as_json=False, with_uris=False)
            other.close()
            with pytest.raises(typer.Exit) as ended:
                write([FOX], ["a"])
            sys.stdout.close()  # what is left in the buffer does not fail again
        assert ended.value.exit_code == 0


def test_places_that_are_refused_before_any_work(tmp_path, monkeypatch):
    check_output(None, as_json=True)
    check_output(tmp_path / "new" / "a.csv", as_json=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match=r"found --json and --output a\.csv; wanted one"):
        check_output(Path("a.csv"), as_json=True)
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*a\.csv: it is a folder"):
        check_output(tmp_path / "a.csv", as_json=False)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputError, match="cannot write to standard output: it is closed"):
        check_output(None, as_json=False)


def test_lines_break_between_labels():
    pairs = [("kind: function", "99%"), ("package: scipy", "9%"), ("a label longer than any line", "1%")]
    lines = [line.plain for line in label_lines(pairs, 40)]
    assert lines == ["kind: function 99%   package: scipy 9%", "a label longer than any line 1%"]
    assert [line.plain for line in label_lines(pairs, 1)] == [f"{label} {chance}" for label, chance in pairs]
    wide = label_lines([("狐狸" * 3, "1%"), ("b", "2%")], 16)
    assert [line.plain for line in wide] == ["狐狸狐狸狐狸 1%", "b 2%"]


class TestEngine:
    """Many files by several processes."""

    def test_same_labels_as_without(self, circlet, as_json, works, model, topics, write_jsonl, tmp_path):
        path = write_jsonl(tmp_path / "a.jsonl", [{"id": row, **one} for row, one in enumerate(topics(40))])
        alone = circlet("predict", model, path, "--threshold", "0.3").stdout
        words = ["predict", model, f"{tmp_path}/*.jsonl", "--threshold", "0.3", "--output", tmp_path / "out"]
        words += ["--engine", "processes", "--block-size", "2K", "--workers", "2"]
        finished = works(*words)
        assert finished.stdout == ""
        assert "out: 40 documents in 3 blocks; " in finished.stderr
        assert "documents/s by 2 workers" in finished.stderr
        parts = sorted((tmp_path / "out").glob("part-*"))
        assert len(parts) == 3
        assert "".join(part.read_text(encoding="utf-8") for part in parts) == alone
        expected = {"blocks": 0, "blocks_before": 3, "engine": "processes", "workers": 2}
        assert as_json(*words).items() >= expected.items()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("a.jsonl --workers 2", "found --workers without --engine"),
            ("a.jsonl --block-size 2K", "found --block-size without --engine"),
            ("a.jsonl --format csv", "found --format without --engine"),
            ("a.jsonl --engine steam --output out", "found --engine steam; wanted one of processes, ray"),
            ("a.jsonl --engine processes", "wanted --output with a folder"),
            ("a.jsonl --engine processes --output out --device cuda", "wanted cpu"),
            (
                "a.jsonl --engine processes --output out --block-size big",
                "--block-size: found 'big'; wanted",
            ),
            ("- --engine ray --output out", "found - as the input of --engine; wanted files"),
        ],
    )
    def test_options_that_do_not_fit(self, refused, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        assert message in refused("predict", "no model", *words.split())
        assert list(tmp_path.iterdir()) == []

    def test_inputs_and_places_that_it_does_not_take(self, refused, model, data, tmp_path):
        (tmp_path / "docs" / "2024").mkdir(parents=True)
        (tmp_path / "docs" / "2024" / "a.txt").write_text("the fox\n", encoding="utf-8")
        words, new = ("--engine", "processes", "--output"), tmp_path / "new"
        assert "found '2024' and no _plan.json" in refused(
            "predict", model, data / "train.jsonl", *words, tmp_path / "docs"
        )
        assert "found no such file" in refused("predict", model, "none", *words, new)
        line = refused("predict", model, tmp_path / "docs", *words, new)
        assert "found only folders, which are not searched" in line
        line = refused("predict", model, tmp_path / "docs" / "2024", *words, new)
        assert line.endswith("or circlet predict without --engine, which also reads plain texts")
        assert not new.exists()
