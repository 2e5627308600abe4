"""How `circlet predict` prints: a table on a terminal, JSONL in a pipe; and what happens if that fails."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TextIO, cast

import pytest
import typer

from circlet.cli.console import Stdout, label_lines
from circlet.cli.predict import check_output, printer
from circlet.errors import OutputError, ParameterError
from circlet.runtime.answers import Answer, Suggestion


def tagged(name, labels, scores):
    return Answer(name, list(map(Suggestion, labels, scores)))


FOX = tagged(0, ["animal", "[red] fur"], [0.987, 0.004])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# Not fixtures, because pytest sets its own standard output after them.
@contextmanager
def terminal() -> Iterator[Terminal]:
    with redirect_stdout(Terminal()) as shown:
        yield shown


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


def shown(*batches: tuple[list[Answer], list[str] | None], as_json: bool = False) -> list[str]:
    """The lines on a terminal after these batches."""
    with terminal() as screen:
        write = printer(as_json=as_json, with_uris=False)
        for documents, texts in batches:
            write(documents, texts)
        return lines(screen)


def lines(shown: io.StringIO) -> list[str]:
    return [line.rstrip() for line in shown.getvalue().splitlines()]


class TestTerminal:
    def test_rows_are_shown_as_they_come(self):
        with terminal() as screen:
            write = printer(as_json=False, with_uris=False)
            write([FOX], ["the fox"])
            assert lines(screen) == [
                "id     text                            labels",
                "─" * 80,
                "0      the fox                         animal 0.9870   [red] fur 0.0040",
            ]
            write([tagged(1, [], []), tagged(2, ["food"], [0.5])], ["[bold] words\nof many lines " * 9, ""])
            assert lines(screen)[3:] == [
                "1      [bold] words of many lines […   –",
                "2                                      food 0.5000",
            ]

    def test_many_labels_are_wrapped_in_their_column(self):
        rows = shown(([tagged(0, [f"label {n}" for n in range(9)], [0.5] * 9)], ["the fox"]))
        labels = " ".join(f"label {n} 0.5000" for n in range(9))
        assert " ".join(" ".join(rows[2:]).split()) == f"0 the fox {labels}"
        assert max(map(len, rows)) <= 80
        assert all(row.startswith(" " * 38) for row in rows[3:])

    def test_long_ids_are_cut(self):
        rows = shown(([tagged("http://example.org/documents/1", ["a"], [1.0])], ["the fox"]))
        assert rows[2].split() == ["http://example.org/…", "the", "fox", "a", "1.0000"]

    def test_rows_without_texts(self):
        rows = shown(([tagged(0, [7], [0.5])], None))
        assert [rows[at].split() for at in (0, 2)] == [["id", "labels"], ["0", "7", "0.5000"]]

    def test_documents_cannot_steer_the_terminal(self):
        rows = shown(([tagged("\x1b[2J", ["\x1b[31mred"], [0.5])], ["\x1b]0;title\x07 fox"]))
        assert rows[2].split() == ["[2J", "]0;title", "fox", "[31mred", "0.5000"]
        assert all(line.isprintable() for line in rows)

    def test_json_if_asked(self):
        (line,) = shown(([FOX], ["the fox"]), as_json=True)
        assert json.loads(line) == {"id": 0, "labels": ["animal", "[red] fur"], "scores": [0.987, 0.004]}


class TestPipe:
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
    assert [line.plain for line in label_lines([("狐狸" * 3, "1%"), ("b", "2%")], 16)] == [
        "狐狸狐狸狐狸 1%",
        "b 2%",
    ]
