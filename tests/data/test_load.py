from __future__ import annotations

import gzip
import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from tests.data.layouts import put

from circlet.data import Dataset, Split, load_dataset
from circlet.data.load import FORMAT_NAMES, UnrecognizedError, find_text_file, recognize
from circlet.data.matrices import write_matrices, write_sparse_text, write_xmc
from circlet.data.records import Columns, Record, write_records
from circlet.errors import DataError, ParameterError

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"

X = sp.csr_matrix(np.array([[1, 0, 0.5], [0, 0, 0], [0, 2, 0]], np.float32))
Y = sp.csr_matrix(np.array([[1, 0], [0, 1], [0, 0]], np.float32))
RECORDS = [Record(1, "a text", ("x", "y")), Record(2, "another", ()), Record(3, "ünïcode", ("é",))]
TEXT_FILES = {"jsonl": "jsonl", "csv": "csv", "tsv": "tsv", "fasttext": "txt", "annif": "tsv"}


def is_small(split):
    return np.array_equal(split.X.toarray(), X.toarray()) and np.array_equal(split.Y.toarray(), Y.toarray())


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    "names", [("train.txt", "test.txt"), ("eurlex_train.txt", "eurlex_test.txt"), ("a.trn.svm", "a.tst.svm")]
)
def test_xmc_pair(tmp_path, names, suffix):
    for name in names:
        write_xmc(tmp_path / f"{name}{suffix}", X, Y)
    dataset = load_dataset(tmp_path)
    assert dataset.format == "Extreme Classification Repository text, train and test files"
    assert dataset.name == tmp_path.name
    assert is_small(dataset.train)
    assert is_small(dataset.test)


def test_svmlight_pair_takes_the_larger_sizes(tmp_path):
    (tmp_path / "train.svm").write_text("0 1:1\n")
    (tmp_path / "test.svm").write_text("3 0:1\n")
    dataset = load_dataset(tmp_path)
    assert dataset.format == "svmlight multilabel text, train and test files"
    assert (dataset.n_features, dataset.n_labels) == (2, 4)
    assert dataset.test.Y.shape == (1, 4)


def test_headers_of_a_pair_must_agree(tmp_path):
    (tmp_path / "train.txt").write_text("1 2 2\n0 1:1\n")
    (tmp_path / "test.txt").write_text("1 2 3\n0 1:1\n")
    with pytest.raises(DataError, match="found 2 labels in train and 3 in test; wanted the same number"):
        load_dataset(tmp_path)
    (tmp_path / "test.txt").write_text("4 0:1\n")  # no header: what it holds must fit the other's
    with pytest.raises(DataError, match="found 2 labels in train and 5 in test; wanted the same number"):
        load_dataset(tmp_path)


def test_pair_of_different_kinds(tmp_path):
    (tmp_path / "train.txt").write_text("1 2 2\n0 1:1\n")
    (tmp_path / "test.jsonl").write_text('{"text": "a", "labels": []}\n')
    with pytest.raises(DataError, match=r"test\.jsonl: found JSONL text; wanted Extreme .*, as in train\.txt"):
        load_dataset(tmp_path)


def test_one_file_with_split_files(tmp_path):
    write_xmc(tmp_path / "small_data.txt", X, Y)
    (tmp_path / "small_trSplit.txt").write_text("3 1\n1 2\n")
    (tmp_path / "small_tstSplit.txt").write_text("2 3\n")
    dataset = load_dataset(tmp_path, split=1)
    assert dataset.format == "Extreme Classification Repository text, one file with split files, split 1"
    assert np.array_equal(dataset.train.X.toarray(), X.toarray()[[0, 1]])
    assert np.array_equal(load_dataset(tmp_path).train.X.toarray(), X.toarray()[[2, 0]])
    with pytest.raises(ParameterError, match=r"found split 2; wanted 0 to 1"):
        load_dataset(tmp_path, split=2)
    (tmp_path / "small_tstSplit.txt").write_text("3 3\n")
    with pytest.raises(DataError, match=r"small_tstSplit\.txt: found 1 rows of small_trSplit\.txt too"):
        load_dataset(tmp_path)
    (tmp_path / "small_tstSplit.txt").unlink()
    with pytest.raises(DataError, match=r"found small_trSplit\.txt but no small_tstSplit\.txt; wanted small_tst"):
        load_dataset(tmp_path)
    (tmp_path / "small_tstSplit.txt").write_text("2 3\n")
    (tmp_path / "small_data.txt").unlink()
    with pytest.raises(DataError, match=r"found small_trSplit\.txt but no small_data\.txt; wanted the data file"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_newer_form(tmp_path, suffix):
    for part in ("trn", "tst"):
        write_sparse_text(tmp_path / f"{part}_X_Xf.txt{suffix}", X)
        write_sparse_text(tmp_path / f"{part}_X_Y.txt{suffix}", Y)
    dataset = load_dataset(tmp_path)
    assert dataset.format == "Extreme Classification Repository text, newer form (X_Xf and X_Y)"
    assert is_small(dataset.train)
    assert is_small(dataset.test)
    (tmp_path / f"tst_X_Y.txt{suffix}").unlink()
    with pytest.raises(
        DataError, match=r"found no tst_X_Y\.txt, a folder with only half of its files; wanted tst_X_Y"
    ):
        load_dataset(tmp_path)


def test_newer_form_faults(tmp_path):
    write_sparse_text(tmp_path / "trn_X_Xf.txt", X)
    write_sparse_text(tmp_path / "trn_X_Y.txt", Y[:2])
    with pytest.raises(DataError, match=r"found 3 rows in trn_X_Xf\.txt and 2 in trn_X_Y\.txt"):
        load_dataset(tmp_path)
    write_sparse_text(tmp_path / "trn_X_Y.txt", 2 * Y)
    with pytest.raises(DataError, match=r"trn_X_Y\.txt: found 2.0 at row 1, label 0; wanted 0 or 1"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", TEXT_FILES)
def test_text_pair(tmp_path, kind, suffix, caplog):
    for part in ("train", "test"):
        write_records(tmp_path / f"{part}.{TEXT_FILES[kind]}{suffix}", RECORDS, kind)
    with caplog.at_level(logging.INFO, logger="circlet"):
        dataset = load_dataset(tmp_path)
    assert f"recognized {dataset.format}" in caplog.text
    assert dataset.format.endswith(", train and test files")
    assert dataset.label_names == ["x", "y", "é"]
    assert dataset.train.texts == dataset.test.texts == ["a text", "another", "ünïcode"]
    assert dataset.train.Y.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert dataset.n_features is None


def test_lone_matrix_files(tmp_path):
    write_xmc(tmp_path / "a.txt.gz", X, Y)
    dataset = load_dataset(str(tmp_path / "a.txt.gz"))
    assert (dataset.name, dataset.test, dataset.source) == ("a", None, tmp_path / "a.txt.gz")
    assert is_small(dataset.train)
    write_xmc(tmp_path / "a.svm", X, Y, header=False)
    assert load_dataset(tmp_path / "a.svm").format == "svmlight multilabel text"


def test_named_columns(tmp_path):
    (tmp_path / "a.csv").write_text("body,tags\nhello,x|y\n")
    dataset = load_dataset(tmp_path / "a.csv", text_column="body", label_column="tags", label_separator="|")
    assert dataset.label_names == ["x", "y"]
    with pytest.raises(DataError, match=r"a\.csv:1: found the columns 'body, tags'; wanted a column 'text'"):
        load_dataset(tmp_path / "a.csv")


def test_names_and_texts_beside_matrices(tmp_path):
    write_matrices(tmp_path, Dataset("d", Split(X, Y), Split(X[:1], Y[:1])))
    (tmp_path / "labels.txt").write_text("first\nsecond é\n", encoding="utf-8")
    (tmp_path / "train_raw_texts.txt.gz").write_bytes(gzip.compress("ä\nb\n\n".encode()))
    (tmp_path / "test_raw_texts.txt").write_text("t\n")
    dataset = load_dataset(tmp_path)
    assert dataset.label_names == ["first", "second é"]
    assert dataset.train.texts == ["ä", "b", ""]
    assert dataset.test.texts == ["t"]
    (tmp_path / "test_raw_texts.txt").write_text("t\nu\n")
    with pytest.raises(DataError, match=r"test_raw_texts\.txt: found 2 texts; wanted one for each of 1 test rows"):
        load_dataset(tmp_path)


def test_label_files(tmp_path):
    write_matrices(tmp_path, Dataset("d", Split(X, Y)))
    (tmp_path / "labels.tsv").write_text("u:1\tbank\nu:2\tbank\n")
    assert load_dataset(tmp_path).label_names == ["bank (u:1)", "bank (u:2)"]
    for name, content, message in (
        ("labels.tsv", "u:1\tbank\n", r"labels\.tsv: found 1 label names; wanted one for each of 2 labels"),
        ("labels.tsv", "u:1\tbank\nu:2\tmoney\tx\n", r"labels\.tsv:2: found 'money\\tx', a label name with a tab"),
        ("labels.txt", "a\nb\tc\n", r"labels\.txt:2: found a tab in .*; wanted one label name per line"),
        ("labels.txt", "a\na\n", r"labels\.txt: found the label name 'a' twice"),
    ):
        (tmp_path / "labels.tsv").unlink(missing_ok=True)
        put(tmp_path, content, name)
        with pytest.raises(DataError, match=message):
            load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found nothing in the folder; wanted a dataset's name; a folder with X.trn.npz"),
        ({"notes.md": b"x"}, "found notes.md in the folder; wanted"),
        ({"a_test.txt": b"0 1:1\n"}, r"found a_test\.txt but no a_train\.txt; wanted a_train\.txt as well"),
        ({"a_train.txt": b"0 1:1\n", "b_train.txt": b""}, r"found a_train\.txt and b_train\.txt; wanted one"),
        ({"train.txt": b""}, r"train\.txt: found an empty file; wanted data"),
        ({"train.txt": b"hello\n"}, r"train\.txt: found plain text without labels; wanted its labels beside it"),
        (
            {"train.txt": b"\xff\xfeh\xe9"},
            r"train\.txt:1: found byte 0xff at position 1 of the line; wanted UTF-8",
        ),
        ({"train.json": b"[1]\n"}, r"train\.json:1: found '\[1\]'; wanted a JSON object"),
        ({"train.tsv": b"a\tb\n"}, r"train\.tsv:1: found the columns 'a, b'; wanted a column 'text'"),
        ({"train.txt": b"1 0:1 x:2\n"}, r"train\.txt:1: found 'x:2'; wanted a row such as"),
    ],
)
def test_folders_that_hold_no_dataset(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset(tmp_path)


@pytest.mark.parametrize("split", [-1, True, 1.0, "0"])
def test_split_is_a_number(tmp_path, split):
    with pytest.raises(ParameterError, match="wanted an integer >= 0"):
        load_dataset(tmp_path, split=split)


# Train rows, test rows, features, labels, labels per point, points per label: the Repository's numbers, and
# for wordnet those of the data itself.
PUBLISHED = {
    "eurlex-4k": (15_539, 3_809, 5_000, 3_993, 5.31, 25.73),
    "delicious": (12_920, 3_185, 500, 983, 19.02, 311.61),
    "bibtex": (4_880, 2_515, 1_836, 159, 2.40, 111.71),
    "wordnet": (73_902, 8_212, 41_612, 16_555, 9.04, 44.86),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_data(name):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no {name} in the shared data folder")
    dataset = load_dataset(SHARED / name)
    numbers = dataset.statistics()
    sizes = (numbers.train_points, numbers.test_points, numbers.features, numbers.labels)
    spread = (round(numbers.labels_per_point, 2), round(numbers.points_per_label, 2))
    assert (*sizes, *spread) == PUBLISHED[name]
    empty = {"eurlex-4k": (28, 6, 207), "delicious": (10, 4, 0)}.get(name)
    if empty:
        assert (numbers.empty_rows_train, numbers.empty_rows_test, numbers.unseen_labels) == empty
    if name == "wordnet":
        assert dataset.label_names[0] == "ACE_inhibitor.02673637"
        assert dataset.train.texts[0].startswith("leapfrog : a game")


def test_real_split_files(tmp_path):
    source = SHARED / "delicious"
    if not source.is_dir():
        pytest.skip("no delicious in the shared data folder")
    whole = load_dataset(source)
    n = whole.train.n + whole.test.n
    write_xmc(tmp_path / "delicious_data.txt", sp.identity(n, format="csr"), sp.csr_matrix((n, 1)))
    for part in ("tr", "tst"):
        (tmp_path / f"delicious_{part}Split.txt").write_bytes((source / f"delicious_{part}Split.txt").read_bytes())
    dataset = load_dataset(tmp_path, split=9)
    assert dataset.train.X.indices[:2].tolist() == [2755, 1547]
    assert (dataset.train.n, dataset.test.n) == (12_920, 3_185)


class TestFindTextFile:
    """The file to read documents from, one at a time, where `load_dataset` would read all of them."""

    def test_a_folder_has_its_test_file_or_else_its_train_file(self, tmp_path):
        train, test = tmp_path / "train.csv", tmp_path / "test.jsonl.gz"
        write_records(train, RECORDS, "csv")
        assert find_text_file(str(tmp_path), Columns()) == (train, "csv")
        write_records(test, RECORDS, "jsonl")
        assert find_text_file(tmp_path, Columns()) == (test, "jsonl")

    def test_rows_are_no_texts(self, tmp_path):
        write_xmc(tmp_path / "train.txt", X, Y)
        assert find_text_file(tmp_path, Columns()) is None
        assert find_text_file(tmp_path / "train.txt", Columns()) is None
        write_matrices(tmp_path / "npz", Dataset("a", Split(X, Y)))
        assert find_text_file(tmp_path / "npz", Columns()) is None

    def test_faults_are_those_of_load_dataset(self, tmp_path):
        write_records(tmp_path / "test.jsonl", RECORDS, "jsonl")
        for path in (tmp_path, tmp_path / "nowhere"):
            messages = []
            for read in (load_dataset, lambda one: find_text_file(one, Columns())):
                with pytest.raises(DataError) as caught:
                    read(path)
                messages.append(str(caught.value))
            assert messages[0] == messages[1]


def test_ids_only_if_asked_for(tmp_path):
    path = put(tmp_path, "id,text,labels\nd1,a text,x\n,another,y\n", "a.csv")
    assert load_dataset(path).train.ids is None
    assert load_dataset(path, ids=True).train.ids == ["d1", 1]
    assert load_dataset(path, text_column="id", ids=True).train.ids is None  # it is the text


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('{"text": "a", "labels": []}\n', "jsonl"),
        ('\n  {"text": "a"}\n', "jsonl"),
        ("3 4 2\n0,1 0:1 3:0.5\n", "xmc"),
        ("0,1 0:1 3:0.5\n1 2:2\n", "svmlight"),
        ("# a comment\n1 2:2\n", "svmlight"),
        (" 0:1\n1 2:2\n", "svmlight"),
        ("__label__red a fox\n", "fasttext"),
        ("a fox\n__label__red a car\n", "fasttext"),
        ("a fox __label__red\n", "fasttext"),
        ("text,labels\na fox,red\n", "csv"),
        ("text;labels\na fox;red\n", "csv"),
        ("labels\ttext\nred\ta fox\n", "tsv"),
        ("a fox\t<http://example.org/red>\n", "annif"),
        ("a fox\tyso:p1 yso:p2\n", "annif"),
        ("\ufefftext,labels\na,b\n", "csv"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_by_content(tmp_path, content, kind, packed):
    path = put(tmp_path, gzip.compress(content.encode()) if packed else content)  # no suffix says so
    assert recognize(path) == kind
    assert find_text_file(path, Columns()) == ((path, kind) if kind in TEXT_FILES else None)
    assert kind in FORMAT_NAMES


def test_the_name_of_the_text_column(tmp_path):
    path = put(tmp_path, "body,tags\na fox,red\n")
    assert recognize(path, Columns(text="body")) == "csv"
    with pytest.raises(UnrecognizedError):
        recognize(path)


@pytest.mark.parametrize(("name", "kind"), [("a.csv", "csv"), ("a.tsv.gz", "tsv"), ("a.JSON", "jsonl")])
def test_a_name_decides_where_content_does_not(tmp_path, name, kind):
    assert recognize(put(tmp_path, "body\na fox\n", name)) == kind


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found an empty file; wanted data"),
        (" \n\n", "found an empty file; wanted data"),
        (b"PK\x03\x04...", "found a lone matrix; wanted the folder with X.trn.npz"),
        (b"\x93NUMPY...", "found a lone matrix"),
        (b"\x7fELF\x00", "found a binary file; wanted a dataset's name"),
        ("\n\na fox\n", r"documents\.dat:3: found 'a fox'; wanted one of these: Extreme"),
    ],
)
def test_files_without_data(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        recognize(put(tmp_path, content))


@pytest.mark.parametrize("blank", [99, 100, 101, 5000])
def test_blank_lines_before_the_first(tmp_path, blank):
    assert recognize(put(tmp_path, "\n" * blank + '{"text": "a"}\n')) == "jsonl"
