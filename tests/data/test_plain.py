from __future__ import annotations

import pytest

from circlet.data import load_dataset
from circlet.data.documents import iter_texts, write_texts
from circlet.data.load import find_text_file
from circlet.data.records import Columns, Record
from circlet.errors import DataError


@pytest.fixture
def folder(tmp_path):
    """Annif's full-text corpus: three texts with labels, one without."""
    made = tmp_path / "corpus"
    made.mkdir()
    for name, content in {
        "a.txt": "a fox\nand a hare\n", "a.tsv": "<http://example.org/1>\tanimals\n<http://example.org/2>\tx\n",
        "b.txt": "a van", "b.key": "vehicles\n\nvehicles\nroad traffic\n",
        "c.txt": "\ufeffnothing", "c.key": "",
        "d.txt": "not indexed yet",
    }.items():  # fmt: skip
        (made / name).write_text(content, encoding="utf-8")
    return made


def test_documents_and_their_labels(folder):
    found = [(each.id, each.text, each.labels) for each in iter_texts(folder)]
    assert found == [
        ("a.txt", "a fox\nand a hare\n", ("http://example.org/1", "http://example.org/2")),
        ("b.txt", "a van", ("vehicles", "road traffic")),
        ("c.txt", "nothing", ()),
    ]
    assert [each.id for each in iter_texts(folder, need_labels=False)] == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_folders_in_a_folder(folder):
    for place in ("more/a", ".hidden"):
        (folder / place).mkdir(parents=True)
        (folder / place / "a.txt").write_text("another fox", encoding="utf-8")
        (folder / place / "a.key").write_text("animals", encoding="utf-8")
    assert [each.id for each in iter_texts(folder)] == ["a.txt", "b.txt", "c.txt", "more/a/a.txt"]
    assert load_dataset(folder).train.n == 4


def test_as_a_dataset(folder):
    dataset = load_dataset(folder)
    assert dataset.format == "plain text, a document per file"
    assert dataset.train.n == 3
    assert dataset.label_names == ["http://example.org/1", "http://example.org/2", "road traffic", "vehicles"]


def test_folders_to_learn_and_to_test(folder):
    (folder / "train").mkdir()
    (folder / "test").mkdir()
    for path in list(folder.glob("[ab].*")):
        path.rename(folder / "train" / path.name)
    (folder / "c.txt").rename(folder / "test" / "c.txt")
    (folder / "c.key").rename(folder / "test" / "c.key")
    (folder / "d.txt").unlink()
    dataset = load_dataset(folder)
    assert (dataset.train.n, dataset.test.n) == (2, 1)
    assert find_text_file(folder, Columns()) == (folder / "test", "plain")


def test_one_file_with_its_labels(folder):
    assert load_dataset(folder / "b.txt").label_names == ["road traffic", "vehicles"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.txt", b"a\0b", r"b\.txt: found a zero byte"),
        ("b.txt", b"\xff", r"b\.txt: found byte 0xff; wanted UTF-8"),
        ("b.key", b"a\tb\n", r"b\.key:1: found 'a\\tb', a label name with a tab"),
    ],
)
def test_damaged_files(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset(folder)


def test_no_labels_at_all(tmp_path):
    (tmp_path / "a.txt").write_text("a fox")
    with pytest.raises(DataError, match="found plain text without labels; wanted its labels beside it: those of"):
        load_dataset(tmp_path)


def test_written_and_read(tmp_path):
    records = [Record(1, "a\nb", ("x", "y z"), "one.txt"), Record(2, "", (), "two.txt")]
    write_texts(tmp_path, records)
    assert list(iter_texts(tmp_path)) == records
