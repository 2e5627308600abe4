from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.cli.evaluate import draw_curves, write_table
from circlet.metrics.measures import Decisions, curve_of


def test_evaluate(as_json, circlet, model, data):
    values = as_json("evaluate", model, data, "-k", "1,2")
    assert values["documents"] == 40
    assert values["P@1"] > 0.95
    assert {"P@2", "PSP@1", "nDCG@2"} <= set(values)
    assert values["unknown_labels"] == 0
    finished = circlet("evaluate", model, data)
    assert "40 test documents" in finished.stdout
    assert finished.stderr == ""


def test_labels_that_the_model_does_not_know(as_json, works, model, write_jsonl, tmp_path):
    rows = [{"text": "rain and snow", "labels": ["weather"]}, {"text": "a fox game", "labels": ["game"]}]
    path, table = write_jsonl(tmp_path / "more.jsonl", rows), tmp_path / "labels.csv"
    values = as_json("evaluate", model, path, "-k", "1")
    assert (values["P@1"], values["unknown_labels"]) == (0.5, 1)
    finished = works("evaluate", model, path, "--per-label", table, "--threshold", "0.4")
    assert "found 1 labels that the model does not know; they count as missed" in finished.stderr
    assert "unknown" not in finished.stdout
    assert 'game,1,0,0.0,0.0,0.0,"[""animal""]"' in table.read_text(encoding="utf-8")


@pytest.mark.parametrize("k", ["5", str(2**31 - 1)])
def test_more_places_than_labels(as_json, model, data, k):
    values = as_json("evaluate", model, data, "-k", f"4,{k}")
    assert values[f"P@{k}"] == pytest.approx(values["P@4"] * 4 / int(k))
    assert values[f"nDCG@{k}"] == values["nDCG@4"]


def test_in_favor_of_rare_labels(as_json, circlet, uneven, data):
    data = data / "test.jsonl"  # alone, so that the model's own counts say which labels are rare
    plain, favored = (as_json("evaluate", uneven, data, "-k", "1", "--favor-rare", degree) for degree in "01")
    assert (plain["favor_rare"], favored["favor_rare"]) == (0, 1)
    assert favored["PSP@1"] > plain["PSP@1"]
    printed = " ".join(circlet("evaluate", uneven, data, "-k", "1", "--favor-rare", "1").stdout.split())
    assert f"PSP {100 * favored['PSP@1']:.2f}" in printed
    assert "Rare labels are favored (1)." in printed


class TestDecisions:
    def test_at_the_stored_threshold_or_another(self, as_json, circlet, model, data):
        own = as_json("evaluate", model, data)
        assert own["threshold"] == as_json("info", model)["threshold"]
        assert own["micro"]["f1"] > 0.95
        low = as_json("evaluate", model, data, "--threshold", "0")
        assert low["micro"]["recall"] == low["macro"]["recall"] == 1  # all four labels are predicted
        assert low["micro"]["precision"] == pytest.approx(low["P@1"] * 70 / 160, abs=0.1)
        printed = " ".join(circlet("evaluate", model, data).stdout.split())
        assert f"micro {100 * own['micro']['precision']:.2f} {100 * own['micro']['recall']:.2f}" in printed
        assert "(stored by training)" in printed

    def test_curves_and_labels(self, as_json, model, data, tmp_path):
        pytest.importorskip("matplotlib")
        plot, table = tmp_path / "curves.png", tmp_path / "labels.jsonl"
        values = as_json("evaluate", model, data, "--plot", plot, "--per-label", table)
        assert plot.read_bytes().startswith(b"\x89PNG")
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
        assert {row["label"] for row in rows} == {"animal", "food", "vehicle", "weather"}
        mean = sum(row["f1"] for row in rows) / 4
        assert values["macro"]["f1"] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--per-label", "a.txt"], "--per-label: found 'a.txt'; wanted a name that ends in"),
        (["--per-label", "none/a.csv"], "wanted a file in a folder that exists"),
        (["--plot", "nowhere/a.png"], "--plot: found no folder nowhere"),
        (["--threshold", "2"], "--threshold"),
        *(
            (["-k", k], f"-k: found {k!r}; wanted integers from 1 to 2³¹")
            for k in ("-1", "a", "0", "1,,3", "", "1.5", "5,-1", "1" * 20, "9" * 400)
        ),
    ],
)
def test_options_that_are_refused(refused, model, data, options, message):
    assert message in refused("evaluate", model, data, *options)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        *(
            (lines, "found no label in any of the 2 documents; wanted some to compare with")
            for lines in ("text,labels\na fox,\na van,\n", "2 3 4\n 0:1\n 2:1\n")
        ),
        ("text,labels\na chess game,game;chess\n", "found 2 labels, none of which the model knows"),
    ],
)
def test_data_that_is_refused(refused, lines, message, model, tmp_path):
    (tmp_path / "bare.csv").write_text(lines)
    assert f"bare.csv: {message}" in refused("evaluate", model, tmp_path / "bare.csv")


REPORT = Decisions(
    sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 0]]), dtype=np.float32), sp.csr_matrix([[0.9, 0, 0], [0, 0.8, 0]])
).per_label(0.5)
FIRST = {
    "label": 'red, "dark"', "support": 2, "predicted": 1, "precision": 1.0, "recall": 0.5, "f1": 0.6667,
    "confused_with": ["blue"],
}  # fmt: skip
NAMES = ['red, "dark"', "blue", "green"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_table_of_labels(tmp_path, name):
    write_table(tmp_path / name, REPORT, NAMES)
    with (tmp_path / name).open(encoding="utf-8", newline="") as stream:
        if name == "a.jsonl":
            rows = [json.loads(line) for line in stream]
        else:
            read = csv.DictReader(stream, delimiter="," if name == "a.csv" else "\t")
            rows = [{key: row[key] if key == "label" else json.loads(row[key]) for key in row} for row in read]
    assert rows[0] == FIRST
    assert [row["label"] for row in rows] == NAMES[:2]


def test_the_plot_has_three_curves_and_the_stored_threshold():
    pytest.importorskip("matplotlib")
    curve = curve_of(np.array([0.9, 0.6, 0.3]), np.array([True, False, True]), 3)
    axis = draw_curves(curve, 0.45, "stored threshold").axes[0]
    *lines, mark = axis.get_lines()
    assert [line.get_xdata().tolist() for line in lines] == [[0, 0.3, 0.6, 0.9]] * 3
    assert lines[0].get_ydata().tolist() == pytest.approx([200 / 3, 200 / 3, 50, 100])  # precision
    assert lines[1].get_ydata().tolist() == pytest.approx([200 / 3, 200 / 3, 100 / 3, 100 / 3])  # recall
    assert list(mark.get_xdata()) == [0.45, 0.45]
    assert {text.get_text() for text in axis.texts} == {"precision", "recall", "F1", "stored threshold 0.450"}
