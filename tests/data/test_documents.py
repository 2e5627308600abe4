"""Documents from a stream: recognized by its first line, without labels, all that are there before it waits."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.layouts import write_parquet, write_texts

from circlet.data import load_dataset
from circlet.data.load import find_text_file, read_splits
from circlet.data.records import (
    LINE_FORMATS,
    Columns,
    Record,
    iter_parquet,
    iter_records,
    iter_stream,
    size_of,
    write_records,
)
from circlet.errors import DataError, MissingExtraError, ParameterError
from circlet.files import MAX_LINE


def texts(content: bytes | str, columns: Columns | None = None) -> list[str]:
    return [record.text for record in records(content, columns)]


def records(content: bytes | str, columns: Columns | None = None) -> list[Record]:
    return list(iter_stream(io.BytesIO(content.encode() if isinstance(content, str) else content), columns))


class Typed(io.BufferedIOBase):
    """A stream that gives some bytes when it is asked for them, and knows how often it was asked."""

    def __init__(self, *pieces: str) -> None:
        super().__init__()
        self.pieces, self.asked = iter(pieces), 0

    def read1(self, size: int = -1, /) -> bytes:
        self.asked += 1
        return next(self.pieces, "").encode()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("a red fox\n\nthe car\n", ["a red fox", "", "the car"]),
        ("\n \n", ["", " "]),
        ("", []),
        ("\n\na\r\nb", ["", "", "a", "b"]),
        (b"\xef\xbb\xbfa fox\n", ["a fox"]),
        ('{"text": "a fox", "labels": ["animal"]}\n\n{"labels": 3, "text": "b"}\n', ["a fox", "b"]),
        ('\n{"text": "a fox"}\n', ["a fox"]),
        ("{ braces } are plain text\n{}\n", ["{ braces } are plain text", "{}"]),
        ('["a", "list"]\n', ['["a", "list"]']),
        ("text,labels\na fox,animal;red\n", ["a fox"]),
        ('labels,text\nanimal,"a fox,\nand more"\n', ["a fox,\nand more"]),
        ("text;labels\na fox, red;animal,red\n", ["a fox, red"]),
        ("\nid\ttext\tlabels\n1\ta, b\tx\n", ["a, b"]),
        ("text\na fox\n", ["a fox"]),
        ("text,labels\n", []),
        ("the words text, labels\nare prose\n", ["the words text, labels", "are prose"]),
        ("__label__animal a fox\nno label\n\n", ["a fox", "no label"]),
        ("a fox __label__animal\n__label__x the car\n", ["a fox", "the car"]),
        ("a fox\t<http://x/1> <http://x/2>\nthe car\thttp://x/3\nnone\n", ["a fox", "the car", "none"]),
        ("a fox\tand a tab\n", ["a fox\tand a tab"]),
        ("a fox\t<not closed\n", ["a fox\t<not closed"]),
        ("a fox\t\nthe car\t<u:1>\n", ["a fox", "the car"]),
        ("a\u2028b\x85c\n", ["a\u2028b\x85c"]),
    ],
)
def test_by_hand(content, wanted):
    assert texts(content) == wanted


def test_named_columns():
    columns = Columns("body", "tags")
    assert texts("body,tags\na fox,x\n", columns) == ["a fox"]
    assert texts('{"tags": [], "body": "a"}\n', columns) == ["a"]
    assert texts("text,labels\na fox,x\n", columns) == ["text,labels", "a fox,x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\xff\n", r"^stdin:2: found byte 0xff at position 1 of the line; wanted UTF-8 text$"),
        (b'{"text": "a"}\n\n{"text": \n', r"^stdin:3: found '\{\"text\":' .*; wanted a JSON object"),
        (b'{"text": "a"}\nplain\n', r"^stdin:2: found 'plain' .*; wanted a JSON object"),
        (b'{"body": "a"}\n', r"^stdin:1: found the keys 'body'; wanted 'text' among them, or --text-column"),
        (b'{"text": 3}\n', r"^stdin:1: found 'text' of type int; wanted a string"),
        (b"\ntext,labels\na,x\nb\n", r"^stdin:4: found 1 fields; wanted 2, as in the header"),
        (b'text,labels\n"a\n', r"^stdin:2: found a row that cannot be read"),
    ],
)
def test_faults_name_the_line(content, message):
    with pytest.raises(DataError, match=message):
        texts(content)


def test_ids_are_read_where_they_are_named():
    columns = Columns(id="id")
    assert [one.id for one in records('{"text": "a", "id": 7}\n{"text": "b"}\n', columns)] == [7, None]
    assert [one.id for one in records("id,text\n7,a\n,b\n", columns)] == ["7", None]
    assert [one.id for one in records("plain\ntext\n", columns)] == [None, None]
    assert [one.id for one in records('{"text": "a", "id": 7}\n')] == [None]


def test_texts_before_a_fault_are_given():
    stream = iter_stream(io.BytesIO(b"a\n\xff\n"), name="pipe")
    assert next(stream).text == "a"
    with pytest.raises(DataError, match=r"^pipe:2: "):
        next(stream)


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        (["a fox\n", "the car\n"], [1, 2]),
        (["a fox\n", "\n"], [1, 2]),
        (["\n", "a fox\n", "the car\n"], [2, 2, 3]),
        (['{"text": "a"}\n', '{"text": "b"}\n'], [1, 2]),
        (["text,labels\n", "a,x\n", '"b\n', 'c",y\n'], [2, 4]),
        (["__label__x a\n", "b\n"], [1, 2]),
        (["a\t<u:1>\n", "b\t<u:2>\n"], [1, 2]),
        (["a f", "ox\nth", "e c", "ar"], [2, 5]),
        (["a\nb\nc\n"], [1, 1, 1]),
    ],
)
def test_nothing_is_read_ahead(lines, read):
    typed = Typed(*lines)
    found = []
    for _ in iter_stream(typed):
        found.append(typed.asked)
    assert found == read


WAIT = None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot tell whether a pipe has more")
@pytest.mark.parametrize(
    ("writes", "events"),
    [
        (["a\n", "b\nc\n"], ["a", WAIT, "b", "c", WAIT]),
        (["a\nb", "c\nd"], ["a", WAIT, "bc", WAIT, "d"]),
        # An empty line, and the start of a row, are there; a document is not.
        (['{"text": "a"}\n\n', '{"text": "b"}\n'], ["a", WAIT, "b", WAIT]),
        (['text\na\n"b\n', 'c"\n'], ["a", WAIT, "b\nc", WAIT]),
        (["text\n", "a\n"], [WAIT, "a", WAIT]),
        (["é\n" * 1000], ["é"] * 1000 + [WAIT]),
    ],
)
def test_whatever_is_there_is_read_before_it_waits(writes, events):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)  # reading too early should fail, and not hang
    rest = iter(writes)
    happened: list[str | None] = []

    def write_on() -> None:
        happened.append(WAIT)
        if (more := next(rest, None)) is None:
            os.close(writer)
        else:
            os.write(writer, more.encode())

    with os.fdopen(reader, "rb") as stream:
        for record in iter_stream(stream, before_waiting=write_on):
            happened.append(record.text)
    assert happened[0] is WAIT
    assert happened[1:] == events


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot tell whether a pipe has more")
def test_it_does_not_wait_for_what_is_there():
    class InPieces(io.BufferedReader):
        def read1(self, size=-1):
            return super().read1(min(size, 4))

    reader, writer = os.pipe()
    os.write(writer, b"a fox\nthe car\nb\n")
    os.close(writer)
    with InPieces(os.fdopen(reader, "rb", buffering=0), 4) as stream:
        found = iter_stream(stream, before_waiting=lambda: pytest.fail("there is more, or the end"))
        assert [record.text for record in found] == ["a fox", "the car", "b"]


def test_a_stream_that_cannot_be_read():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stream, pytest.raises(DataError, match=r"^cannot read pipe: "):
        list(iter_stream(stream, name="pipe"))


def test_a_line_without_end_is_refused():
    with pytest.raises(DataError, match=f"stdin:1: found a line of more than {MAX_LINE} bytes; wanted"):
        texts(b"a" * (MAX_LINE + 1))


@pytest.mark.parametrize("kind", LINE_FORMATS)
@settings(max_examples=30)
@given(
    documents=st.lists(st.text(alphabet="ab,;é|", min_size=1, max_size=8), min_size=1, max_size=5),
    labels=st.lists(st.sampled_from(["u:1", "u:2", "u:secret"]), min_size=1, unique=True),
)
def test_labels_are_never_in_the_texts(tmp_path_factory, kind, documents, labels):
    path = tmp_path_factory.mktemp("stream") / "a"
    write_records(path, [Record(at, text, tuple(labels)) for at, text in enumerate(documents)], kind)
    assert texts(path.read_bytes()) == documents


def test_thousands_of_blank_lines_wait_for_nothing():
    most = 1 << 16
    assert texts("\n" * most + '{"text": "a"}\n') == ["a"]
    assert texts("\n" * (most + 1) + '{"text": "a"}\n') == [""] * (most + 1) + ['{"text": "a"}']


@pytest.fixture
def folder(tmp_path):
    """Annif's full-text corpus: three texts with labels, one without."""
    made = tmp_path / "corpus"
    made.mkdir()
    for name, content in {
        "a.txt": "a fox\nand a hare\n", "a.tsv": "<http://example.org/1>\tanimals\n<http://example.org/2>\tx\n",
        "b.txt": "a van", "b.key": "vehicles\n\nvehicles\nroad traffic\n",
        "c.txt": "\ufeffnothing", "c.key": "",
        "d.txt": "",
    }.items():  # fmt: skip
        (made / name).write_text(content, encoding="utf-8")
    return made


def test_documents_and_their_labels(folder):
    found = [(each.id, each.text, each.labels) for each in iter_records(folder, "plain")]
    assert found == [
        ("a.txt", "a fox\nand a hare\n", ("http://example.org/1", "http://example.org/2")),
        ("b.txt", "a van", ("vehicles", "road traffic")),
        ("c.txt", "nothing", ()),
    ]
    every = list(iter_records(folder, "plain", need_labels=False))
    assert [each.id for each in every] == ["a.txt", "b.txt", "c.txt", "d.txt"]
    assert every[3].text == ""
    dataset = load_dataset(folder)
    assert (dataset.format, dataset.train.n) == ("plain text, a document per file", 3)
    assert dataset.label_names == ["http://example.org/1", "http://example.org/2", "road traffic", "vehicles"]
    assert load_dataset(folder / "b.txt").label_names == ["road traffic", "vehicles"]
    for name in ("a.tsv", "b.key", "c.key"):
        (folder / name).unlink()
    with pytest.raises(DataError, match="found plain text without labels; wanted its labels beside it: those of"):
        load_dataset(folder)


def test_folders_in_a_folder(folder):
    for place in ("more/a", ".hidden"):
        (folder / place).mkdir(parents=True)
        (folder / place / "a.txt").write_text("another fox", encoding="utf-8")
        (folder / place / "a.key").write_text("animals", encoding="utf-8")
    assert [each.id for each in iter_records(folder, "plain")] == ["a.txt", "b.txt", "c.txt", "more/a/a.txt"]
    assert load_dataset(folder).train.n == 4


def test_folders_to_learn_and_to_test(folder):
    for part, names in (("train", "[ab].*"), ("test", "c.*")):
        (folder / part).mkdir()
        for path in list(folder.glob(names)):
            path.rename(folder / part / path.name)
    (folder / "d.txt").unlink()
    dataset = load_dataset(folder)
    assert (dataset.train.n, dataset.test.n) == (2, 1)
    assert find_text_file(folder, Columns()) == (folder / "test", "plain")


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


RECORDS = [Record(1, "a fox", ("animal",)), Record(2, "a van", ("vehicle", "red"))]


@pytest.fixture
def inputs(tmp_path):
    write_records(tmp_path / "a.jsonl", RECORDS, "jsonl")
    write_records(tmp_path / "b.csv", RECORDS[1:], "csv")
    (tmp_path / "texts").mkdir()
    write_texts(tmp_path / "texts", RECORDS[:1])
    return [tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "texts"]


def test_each_kind(inputs):
    for path, kind, expected in zip(
        inputs, ("jsonl", "csv", "plain"), (RECORDS, RECORDS[1:], RECORDS[:1]), strict=True
    ):
        told: list[int] = []
        found = list(iter_records(path, kind, progress=told.append))
        assert [(each.text, each.labels) for each in found] == [(each.text, each.labels) for each in expected]
        assert sum(told) <= size_of(path)
    assert size_of(inputs[2]) == len("a fox")
    dataset = load_dataset(inputs)
    assert dataset.train.texts == ["a fox", "a van", "a van", "a fox"]
    assert dataset.label_names == ["animal", "red", "vehicle"]
    assert dataset.train.Y.sum(axis=0).tolist() == [[2, 2, 2]]
    assert dataset.name == "a and 2 more"
    assert dataset.format == "JSONL text, CSV text, plain text, a document per file; 3 files"


def test_several_that_are_not_texts(inputs, tmp_path):
    (tmp_path / "x.svm").write_text("0 0:1\n")
    (tmp_path / "empty").mkdir()
    for other, found in ((tmp_path / "x.svm", "svmlight"), (tmp_path / "empty", "a folder")):
        with pytest.raises(
            DataError, match=f"found {found}.*; wanted only files with texts, if there are several"
        ):
            load_dataset([inputs[0], other])
    with pytest.raises(ParameterError, match="found no files to read"):
        load_dataset([])


PARQUET = [Record(1, "a fox", ("animal", "é")), Record(2, "", ())]


def write(path, compression="snappy", **columns):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression=compression)
    return path


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
class TestParquet:
    def test_written_and_read(self, tmp_path):
        path, told = tmp_path / "a.parquet", list[int]()
        write_parquet(path, PARQUET)
        assert list(iter_parquet(path, progress=told.append)) == PARQUET
        assert 0 < sum(told) <= path.stat().st_size
        dataset = load_dataset(tmp_path / "a.parquet")
        assert (dataset.format, dataset.label_names) == ("Parquet", ["animal", "é"])

    def test_other_columns_ids_and_labels(self, tmp_path):
        path = write(tmp_path / "a.parquet", body=["a", "b", "c"], tags=[[1, 2], None, [2]], id=["x", None, "z"])
        found = list(iter_parquet(path, Columns("body", "tags", id="id")))
        assert [(each.text, each.labels, each.id) for each in found] == [
            ("a", ("1", "2"), "x"), ("b", (), None), ("c", ("2",), "z"),
        ]  # fmt: skip
        assert [each.labels for each in iter_parquet(path, Columns("body"), need_labels=False)] == [(), (), ()]
        path = write(tmp_path / "b.parquet", text=["a"], labels=["red, dark"])  # one label each
        assert next(iter_parquet(path)).labels == ("red, dark",)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"text": ["a"]}, "found the columns 'text'; wanted a column 'labels', or --label-column"),
            ({"body": ["a"], "labels": [["x"]]}, "wanted a column 'text', or --text-column"),
            ({"text": [1], "labels": [["x"]]}, "a.parquet:1: found 'text' of type int; wanted a string"),
            ({"text": ["a"], "labels": [[0.5]]}, "1: found 'labels' of type list of float; wanted a list of str"),
            ({"text": ["a"], "labels": [["x\ty"]]}, "a label name with a tab"),
        ],
    )
    def test_tables_that_do_not_fit(self, tmp_path, columns, message):
        with pytest.raises(DataError, match=message):
            list(iter_parquet(write(tmp_path / "a.parquet", **columns)))

    @pytest.mark.parametrize("harmed", [b"a fox", b"labels"])  # a text, and the names of columns
    def test_bytes_that_are_no_text(self, tmp_path, harmed):
        path = tmp_path / "a.parquet"
        write(path, compression="none", text=["a fox"], labels=[["x"]])
        path.write_bytes(path.read_bytes().replace(harmed, b"\xf4" + harmed[1:]))
        with pytest.raises(DataError, match=r"a\.parquet: found no readable Parquet .*; wanted a complete file"):
            list(iter_parquet(path))

    def test_no_rows_and_no_parquet(self, tmp_path):
        write_parquet(tmp_path / "a.parquet", [])
        with pytest.raises(DataError, match="found no documents; wanted at least one"):
            list(iter_parquet(tmp_path / "a.parquet"))
        (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else PAR1")
        with pytest.raises(DataError, match=r"b\.parquet: found no readable Parquet"):
            load_dataset(tmp_path / "b.parquet")

    def test_without_its_extra(self, tmp_path, monkeypatch):
        write_parquet(tmp_path / "a.parquet", PARQUET)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setattr("circlet.checks.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"circlet\[parquet\]"):
            load_dataset(tmp_path / "a.parquet")


def test_labels_are_numbered_by_name_train_first():
    train = [Record(1, "a", ("z", "b")), Record(2, "b", ())]
    test = [Record(1, "c", ("a", "z", "é"))]
    first, second, names = read_splits(train, test)
    assert names == ["b", "z", "a", "é"]
    assert first.Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert second.Y.toarray().tolist() == [[0, 1, 1, 1]]
    assert first.Y.dtype == np.float32
    assert first.Y.has_sorted_indices


def test_documents_are_called_by_their_ids_or_rows():
    named, _, _ = read_splits([Record(1, "a", (), "x"), Record(2, "b", ()), Record(3, "c", (), 7)])
    assert named.ids == ["x", 1, 7]
    assert named.take([2, 0]).ids == [7, "x"]
    plain, nothing, names = read_splits(iter([Record(1, "a", ()), Record(2, "b", ())]))
    assert plain.ids is None
    assert nothing is None
    assert names == []
    assert plain.Y.shape == (2, 0)
