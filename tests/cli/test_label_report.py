from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.cli import label_report
from circlet.errors import OutputError, ParameterError
from circlet.metrics.decisions import Decisions

REPORT = Decisions(
    sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 0]]), dtype=np.float32), sp.csr_matrix([[0.9, 0, 0], [0, 0.8, 0]])
).per_label(0.5)
FIRST = {
    "label": 'red, "dark"', "support": 2, "predicted": 1, "precision": 1.0, "recall": 0.5, "f1": 0.6667,
    "confused_with": ["blue"],
}  # fmt: skip
NAMES = ['red, "dark"', "blue", "green"]


def test_jsonl(tmp_path):
    label_report.write(tmp_path / "a.jsonl", REPORT, NAMES)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines[0] == FIRST
    assert [line["label"] for line in lines] == NAMES[:2]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables(tmp_path, name, mark):
    label_report.write(tmp_path / name, REPORT, NAMES)
    with (tmp_path / name).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter=mark))
    assert {key: json.loads(value) if key != "label" else value for key, value in rows[0].items()} == FIRST


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a.txt", ParameterError, "cannot tell the format of 'a.txt'; wanted a name that ends in .csv, .tsv or"),
        ("none/a.csv", OutputError, "wanted a file in a folder that exists"),
    ],
)
def test_refused(tmp_path, name, kind, message):
    with pytest.raises(kind, match=message):
        label_report.check(tmp_path / name)
