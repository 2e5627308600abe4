from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from circlet.cli.datasets import app
from circlet.data import Dataset, Split
from circlet.data.dataset import first_rows, frequent_labels, one_line
from circlet.data.matrices import write_matrices

Y = sp.csr_matrix(np.array([[1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32))
X = np.array([[1, 0, 0.5], [0, 0, 0], [0, 2, 0], [1, 1, 1]], np.float32)
NAMES = ["a|b", "c", "d"]
TEXTS = ["one\ntwo  three", "", "four", "five"]


def info(path, *options: str) -> str:
    finished = CliRunner().invoke(app, ["info", str(path), *options])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.mark.parametrize(("text", "cut"), [("a\n\tb  c", "a b c"), ("abcdef", "abcdef"), ("abcdefg", "abcde…")])
def test_one_line(text, cut):
    assert one_line(text, 6) == cut


def test_one_line_of_a_long_text():
    assert one_line("a " * 10**6, 5) == "a a …"
    assert one_line(" " * 10**6 + "a", 5) == "…"


def test_rows_of_texts():
    rows = first_rows(Dataset("d", Split(None, Y, TEXTS), label_names=NAMES))
    assert rows == [
        {"text": "one two three", "labels": ["a|b", "d"]},
        {"text": "", "labels": []},
        {"text": "four", "labels": ["d"]},
    ]


@pytest.mark.parametrize("make", [np.array, sp.csr_matrix])
def test_rows_of_matrices(make):
    rows = first_rows(Dataset("d", Split(make(X), Y)), n=2)
    assert rows == [{"features": 2, "labels": [0, 2]}, {"features": 0, "labels": []}]


def test_frequent_labels():
    dataset = Dataset("d", Split(None, Y, TEXTS), label_names=NAMES)
    assert frequent_labels(dataset, n=2) == [{"label": "d", "count": 2}, {"label": "a|b", "count": 1}]
    huge = sp.csr_matrix((np.ones(1, np.float32), [10**9], [0, 1]), shape=(1, 2 * 10**9))
    assert frequent_labels(Dataset("d", Split(X[:1], huge))) == [{"label": 10**9, "count": 1}]
    assert frequent_labels(Dataset("d", Split(X[:1], sp.csr_matrix((1, 3), dtype=np.float32)))) == []


def test_info_shows_a_wrong_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,labels\na red fox,animal|red\nnothing,\n[bold] car,red|car\n")
    described = json.loads(info(path, "--json", "--label-separator", ";"))
    assert described["samples"][0] == {"text": "a red fox", "labels": ["animal|red"]}
    assert described["frequent_labels"][0] == {"label": "animal|red", "count": 1}
    shown = info(path, "--label-separator", ";")
    assert '"animal|red"' in shown
    assert "labels separated by ;" in shown
    shown = info(path)
    assert '"animal", "red"' in shown
    assert "[bold] car" in shown
    assert "labels separated by |" in shown


def test_info_of_matrices(tmp_path):
    write_matrices(tmp_path, Dataset("d", Split(sp.csr_matrix(X), Y)))
    described = json.loads(info(tmp_path, "--json"))
    assert described["samples"][0] == {"features": 2, "labels": [0, 2]}
    assert described["frequent_labels"][0] == {"label": 2, "count": 2}
    write_matrices(tmp_path, Dataset("d", Split(sp.csr_matrix(X), Y)), mapped=True)
    assert json.loads(info(tmp_path, "--json"))["samples"] == described["samples"]
    shown = info(tmp_path)
    assert "First rows" in shown
    assert "Most frequent labels" in shown


def test_many_labels_are_cut_in_the_table(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a", "labels": [str(n) for n in range(12)]}) + "\n")
    assert "and 4 more" in " ".join(info(path).split())
    assert len(json.loads(info(path, "--json"))["samples"][0]["labels"]) == 12
