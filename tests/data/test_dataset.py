from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.layouts import csr
from typer.testing import CliRunner

from circlet.cli.data import datasets as app
from circlet.data import Dataset, Split
from circlet.data import dataset as _mapped
from circlet.data.dataset import as_features, as_labels, check_split, first_rows, frequent_labels, one_line
from circlet.data.matrices import write_matrices
from circlet.errors import DataError, ParameterError


@pytest.fixture
def dataset():
    train = Split(csr([[1, 0], [0, 2], [3, 0]]), csr([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]), ["a", "b", "c"])
    test = Split(csr([[0, 1]]), csr([[0, 0, 1, 0]]), ["d"])
    return Dataset("small", train, test, ["p", "q", "r", "s"])


def test_statistics_by_hand(dataset):
    sizes = {"train_points": 3, "test_points": 1, "features": 2, "labels": 4}
    spread = {"labels_per_point": 1.0, "points_per_label": 1.0}
    empty = {"empty_rows_train": 1, "empty_rows_test": 0, "unseen_labels": 2}
    assert dataset.statistics().as_dict() == {**sizes, **spread, **empty}
    numbers = Dataset("t", Split(None, csr([[1], [0]]), ["a", "b"])).statistics()
    assert (numbers.features, numbers.test_points, numbers.empty_rows_test) == (None, 0, 0)
    # A claimed trillion labels allocates nothing.
    Y = sp.csr_matrix((np.ones(1, np.float32), np.array([5]), np.array([0, 1])), shape=(1, 10**12))
    assert Dataset("wide", Split(None, Y, ["a"])).statistics().unseen_labels == 10**12 - 1


@pytest.mark.parametrize("place", range(5))
def test_values_are_checked_to_the_last_block(monkeypatch, place):
    monkeypatch.setattr(_mapped, "BLOCK", 2)
    values = np.ones((5, 1), dtype=np.float32)
    values[place] = np.inf
    for X in (values, sp.csr_matrix(values)):
        with pytest.raises(DataError, match=f"found inf at row {place + 1}, feature 0; wanted finite numbers"):
            check_split(Split(X, csr(np.ones((5, 1)))), where="here")
    values[place] = 2
    with pytest.raises(DataError, match=f"found 2.0 at row {place + 1}, label 0; wanted 0 or 1"):
        check_split(Split(np.ones((5, 1), np.float32), csr(values)), where="here")


@pytest.mark.parametrize(("names", "found"), [(["p", "q", "r", "s"], "4 names"), (None, "0 names")])
def test_uris_are_those_of_the_names(dataset, names, found):
    assert replace(dataset, label_uris=["u:p", "u:q", "u:r", "u:s"]).n_labels == 4
    with pytest.raises(DataError, match=f"small: found 3 URIs of labels and {found}; wanted one of both"):
        replace(dataset, label_names=names, label_uris=["u:p", "u:q", "u:r"])


def test_take_keeps_rows_together(dataset):
    part = dataset.train.take([2, 0])
    assert part.texts == ["c", "a"]
    assert part.X.toarray().tolist() == [[3, 0], [1, 0]]
    assert part.Y.toarray().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]


@settings(max_examples=40)
@given(n=st.integers(2, 60), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_validation_split_is_a_partition_in_order(n, fraction, seed):
    texts = [f"{row:03}" for row in range(n)]
    dataset = Dataset("n", Split(None, sp.csr_matrix((n, 2), dtype=np.float32), texts))
    train, validation = dataset.validation_split(fraction, seed)
    assert sorted(train.texts + validation.texts) == texts
    assert train.texts == sorted(train.texts)
    assert validation.texts == sorted(validation.texts)
    assert validation.n == min(max(round(fraction * n), 1), n - 1)
    # The seed determines the rows, whatever the version of NumPy.
    pinned = np.random.Generator(np.random.PCG64(seed)).permutation(n)[: validation.n]
    assert validation.texts == [texts[row] for row in sorted(pinned)]
    assert dataset.validation_split(validation.n, seed)[1].texts == validation.texts


@pytest.mark.parametrize("size", [0, 3, -1, 0.0, 1.0, 1.5, True, float("nan"), "1"])
def test_validation_size_that_makes_no_sense(dataset, size):
    with pytest.raises(ParameterError, match=r"found size .*wanted a fraction between 0 and 1, or .* from 1 to 2"):
        dataset.validation_split(size)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split(csr([[1]]), csr([[1], [0]])), "found 1 rows in X and 2 in Y; wanted the same number"),
        (Split(None, csr([[1], [0]]), ["a"]), "found 1 rows in texts and 2 in Y; wanted the same number"),
        (Split(None, csr([[1]])), "neither features nor texts"),
        (Split(csr([[1], [1]]), csr([[1, 0], [0, 2]])), r"found 2.0 at row 2, label 1; wanted 0 or 1"),
        (Split(csr([[1], [np.nan]]), csr([[1], [1]])), r"found nan at row 2, feature 0; wanted finite"),
        (Split(np.array([[1, np.inf]], np.float32), csr([[1]])), r"inf at row 1, feature 1; wanted finite"),
        (Split(csr([[1]]), np.ones((1, 1))), "found labels of type ndarray; wanted a csr_matrix"),
    ],
)
def test_check_split_names_what_is_wrong(split, message):
    with pytest.raises(DataError, match=rf"here: .*{message}"):
        check_split(split, where="here")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "found 1 label names; wanted one for each of 2 labels"),
        (["a", "a"], "found the label name 'a' twice; wanted different names"),
        (["a", "b\tc"], r"label 2: found 'b\\tc', a label name with a tab, line end"),
        (["a\nb", "c"], r"label 1: found 'a\\nb', a label name with a tab, line end"),
        (["a", " "], "label 2: found ' ', an empty label name; wanted at least one"),
        (["a", "b\ud800"], r"label 2: found 'b\\ud800', a label name with half of a surrogate pair"),
    ],
)
def test_label_names_that_cannot_be(names, message):
    with pytest.raises(DataError, match=message):
        Dataset("d", Split(csr([[1]]), csr([[1, 0]])), None, names)


def test_train_and_test_must_agree():
    train = Split(csr([[1, 0]]), csr([[1, 0]]))
    with pytest.raises(DataError, match="found 2 labels in train and 1 in test"):
        Dataset("d", train, Split(csr([[1, 0]]), csr([[1]])))
    with pytest.raises(DataError, match="found 2 features in train and 1 in test"):
        Dataset("d", train, Split(csr([[1]]), csr([[1, 0]])))


def test_as_features_leaves_the_callers_matrix_alone():
    X = sp.csr_matrix((np.array([1, 0, 2], np.float32), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    out = as_features(X, "X")
    assert out.indices.tolist() == [1, 2]
    assert out.data.tolist() == [2, 1]
    assert X.indices.tolist() == [2, 0, 1]
    assert as_features(np.zeros((3, 0)), "X").shape == (3, 0)  # without columns


def test_duplicates_and_overflow_are_refused():
    twice = sp.csr_matrix((np.ones(3), np.array([0, 1, 1]), np.array([0, 1, 3])), shape=(2, 2))
    with pytest.raises(DataError, match="X: found feature 1 twice in row 2"):
        as_features(twice, "X")
    with pytest.raises(DataError, match="Y: found label 1 twice in row 2"):
        as_labels(twice, "Y")
    with pytest.raises(DataError, match="found inf at row 1, feature 0"):
        as_features(sp.csr_matrix(np.array([[1e300]])), "X")
    with pytest.raises(DataError, match=r"found an array of shape \(3,\); wanted two dimensions"):
        as_features(np.ones(3), "X")


Y = sp.csr_matrix(np.array([[1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32))
X = np.array([[1, 0, 0.5], [0, 0, 0], [0, 2, 0], [1, 1, 1]], np.float32)
NAMES = ["a|b", "c", "d"]
TEXTS = ["one\ntwo  three", "", "four", "five"]


def info(path, *options: str) -> str:
    finished = CliRunner().invoke(app, ["info", str(path), *options])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.mark.parametrize("make", [np.array, sp.csr_matrix])
def test_rows_of_matrices(make):
    rows = first_rows(Dataset("d", Split(make(X), Y)), n=2)
    assert rows == [{"features": 2, "labels": [0, 2]}, {"features": 0, "labels": []}]


def test_rows_of_texts_and_frequent_labels():
    dataset = Dataset("d", Split(None, Y, TEXTS), label_names=NAMES)
    texts, labels = zip(*(row.values() for row in first_rows(dataset)), strict=True)
    assert texts == ("one two three", "", "four")
    assert labels == (["a|b", "d"], [], ["d"])
    for text, size, cut in (
        ("a\n\tb  c", 6, "a b c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("a " * 10**6, 5, "a a …"),
        (" " * 10**6 + "a", 5, "…"),
    ):
        assert one_line(text, size) == cut
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
