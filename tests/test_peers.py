"""The benchmark against peers draws small sets as it says, keeps every seed, and its page compares correctly."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split, as_labels

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a source checkout")


@pytest.fixture(scope="module")
def load():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module


def cell(peer, dataset="bibtex", *, p=0.5, train_s=1.0, **more):
    measured = {"batch_per_s": 10.0, "single_per_s": 1.0, "threads": 2, "versions": {"numpy": "2"}}
    measured |= dict.fromkeys(("peak_bytes", "tagging_bytes", "model_bytes"), 1e6)
    return {
        "peer": peer,
        "dataset": dataset,
        "statistics": {"train_points": 3, "test_points": 2, "features": 4, "labels": 5},
        "status": "measured",
        "measured": {"train_s": train_s, **measured},
        "metrics": {f"{measure}@{k}": p for measure in ("P", "PSP") for k in (1, 3, 5)},
        "provenance": {"machine": {"processor": "P", "cores": 2}},
        **more,
    }


def as_cells(*cells):
    return {each["peer"]: each for each in cells}


def run(p, said=0.5, right=0.5, count=300):
    bins = {"mean_probability": [0.1, said], "share_right": [0.9, right], "count": [199, count]}
    return {"metrics": {"P@1": p}, "reliability": bins}


def indicator(*rows):
    return as_labels(sp.csr_matrix(np.array(rows, dtype=np.float32)), "Y")


def test_a_small_set_has_what_its_texts_have(load):
    # Label 0 is everyone's and label 3 is only in the test; the texts "?" and "none" are without words or labels.
    train = Split(
        None, indicator([1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 0, 0]), ["ab", "cd", "?", "none"]
    )
    test = Split(None, indicator([1, 0, 0, 1], [1, 1, 0, 1]), ["new", "known"])
    small = load("peers_data").drawn("small", Dataset("large", train, test), 3)
    assert small.train.texts == ["ab", "cd"]
    assert small.train.Y.toarray().tolist() == [[1, 0], [0, 1]]
    assert small.test.texts == ["known"]
    assert small.test.Y.toarray().tolist() == [[1, 0]]
    # It is a part of a larger one.
    split = Split(None, indicator(*np.eye(30)), [f"text {row}" for row in range(30)])
    five, ten = (load("peers_data").drawn("x", Dataset("x", split, split), size).train.texts for size in (5, 10))
    assert len(five) == 5
    assert set(five) < set(ten)


def test_what_is_written_for_the_peers(load, tmp_path):
    data = load("peers_data")
    folder = tmp_path / "given" / "bibtex"
    folder.mkdir(parents=True)
    for part in ("trn", "tst"):
        sp.save_npz(folder / f"X.{part}.npz", sp.csr_matrix([[1.0, 0.5], [0.0, 0.0]]))
        sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]))
    dataset = data.prepare("bibtex", tmp_path / "given", tmp_path / "out")
    assert dataset.train.n == 2
    # No line ends with a space: omikuji would not read it.
    assert (tmp_path / "out" / "train.txt").read_text() == "2 2 2\n0 0:1 1:0.5\n1\n"
    assert not (tmp_path / "out" / "texts.json").exists()
    assert sp.load_npz(tmp_path / "out" / "X.tst.npz").shape == (2, 2)


def test_every_seed_is_kept_and_the_first_is_timed(load, tmp_path, monkeypatch):
    peers = load("peers")

    def pretend(python, peer, seed, data, work, options):
        work.mkdir(parents=True)
        (work / "measured.json").write_text(json.dumps({"train_s": seed + 1.0}))
        right = [0, 1, 2, 3, 4]
        np.save(work / "ranked.npy", np.array([right, right, right, right[::-1] if seed else right]))
        np.save(work / "probabilities.npy", np.array([[0.95, 0, 0, 0, 0]] * 4))

    monkeypatch.setattr(peers, "run", pretend)
    monkeypatch.setattr(peers, "environment", lambda peer, folder: Path("python"))
    split = Split(sp.csr_matrix(np.eye(4, dtype=np.float32)), indicator(*[[1, 0, 0, 0, 0]] * 4))
    given = tmp_path, tmp_path / "work", argparse.Namespace(seeds=2, work=tmp_path)
    found = peers.measure(peers.PEERS["circlet"], Dataset("bibtex", split, split), *given)
    assert found["measured"] == {"train_s": 1.0}
    assert [each["metrics"]["P@1"] for each in found["runs"]] == [1.0, 0.75]
    assert found["metrics"]["P@1"] == 0.875
    assert found["runs"][1]["reliability"]["share_right"][9] == 0.75
    assert len(peers.measure(peers.PEERS["pecos"], Dataset("bibtex", split, split), *given)["runs"]) == 1


def test_goals_compare_with_the_right_peers(load):
    page = load("peers_page")
    cells = as_cells(
        cell("omikuji-bonsai", p=0.6, train_s=4.0),
        cell("pecos", p=0.7, train_s=2.0),
        cell("circlet-fast", p=0.61, train_s=3.0),
        cell("circlet", p=0.65, train_s=6.0),
    )
    alone = as_cells(cell("omikuji-bonsai", p=0.6), cell("circlet-fast", p=0.59))
    fast, default, accurate = (page.goal_table({"bibtex": cells, "pydocs": alone}, goal) for goal in page.GOALS)
    assert fast.rows[0] == ("bibtex", *["ahead 1.0"] * 3, "1.5×")
    assert fast.rows[1] == ("pydocs", *["behind 1.0 (Bonsai)"] * 3, None)
    assert fast.rows[2] == ("all", *["1 of 2"] * 3, "1.5×")
    assert default.rows == [("bibtex", *["behind 5.0 (PECOS)"] * 6, "1.5×"), ("all", *["0 of 1"] * 6, "1.5×")]
    assert not accurate.rows


def test_gaps_count_only_bins_with_enough_labels(load):
    runs = [run(0.5, said=0.8, right=0.7), run(0.6, said=0.8, right=0.4)]
    cells = as_cells(cell("circlet", runs=runs), cell("circlet-fast", runs=[run(0.5, count=20)]))
    page = load("peers_page")
    assert page.largest_gap(cells, "circlet") == pytest.approx(25)
    assert page.largest_gap(cells, "circlet-fast") is None
    (row,) = page.reliability_table({"bibtex": cells}).rows
    assert row[:4] == ("bibtex", None, None, "25.0")
    assert row[5:] == (None, None)
    # With one bin of 400 labels at 0.5, the mean distance of a share from 0.5 is that of a normal distribution.
    cells = as_cells(cell("circlet", runs=[run(0.5, said=0.5, right=0.9, count=400)]))
    assert page.gap_by_chance(cells, "circlet") == pytest.approx(100 * 0.5 / 20 * (2 / 3.14159) ** 0.5, rel=0.05)
    assert page.gap_by_chance(cells, "circlet-fast") is None


def test_page_of_small_texts(load, tmp_path):
    folder = tmp_path / "results" / "peers"
    folder.mkdir(parents=True)
    cells = [
        cell("sklearn", "yso-1000", p=0.55),
        cell("pecos", "yso-1000", p=0.2),
        cell("circlet", "yso-1000", p=0.6, runs=[run(0.58), run(0.62)]),
        {**cell("fasttext", "yso-1000"), "status": "not measured", "reason": "failed: NaN"},
    ]
    for each in cells:
        (folder / f"{each['peer']}.json").write_text(json.dumps(each), encoding="utf-8")
    load("peers_page").render(folder, tmp_path / "peers.md")
    page = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert "| yso-1000 | 20.0 | 55.0 | – | **60.0** | one-vs-rest |" in page
    assert "over seeds: at most 2.8 (circlet on yso-1000). fastText on yso-1000: failed: NaN." in page
    assert "means over 2 seeds" in page
    assert "## Large sets" not in page


def test_page_of_a_large_set(load):
    cells = as_cells(cell("pecos", p=0.5), cell("circlet", p=0.6, train_s=2.0, runs=[run(0.5), run(0.7)]))
    page, figure = load("peers_page"), load("peers_figure")
    table = page.table("bibtex", cells)
    assert table.rows[1][:2] == ("circlet, defaults", "**60.0**")
    assert table.rows[1][7] == "2.0"
    assert table.note == "Standard deviation of P@1 over seeds: circlet 14.1."
    panel, *_ = figure.draw({"bibtex": cells}, "peers.png").axes
    assert [text.get_text() for text in panel.texts] == ["circlet", "PECOS"]
    assert panel.get_xlabel() == "training time, s"
