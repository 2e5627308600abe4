"""Documents from a stream: recognized by its first line, without labels, all that are there before it waits."""

from __future__ import annotations

import io
import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.data.documents import iter_stream
from circlet.data.records import FORMATS, Columns, Record, write_records
from circlet.errors import DataError


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
        (b"a\n\xff\n", r"^stdin:2: found bytes that are not UTF-8 \(invalid start byte\)$"),
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
def test_it_does_not_wait_for_what_is_there(monkeypatch):
    monkeypatch.setattr("circlet.data.documents._BLOCK", 4)
    reader, writer = os.pipe()
    os.write(writer, b"a fox\nthe car\nb\n")
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        found = iter_stream(stream, before_waiting=lambda: pytest.fail("there is more, or the end"))
        assert [record.text for record in found] == ["a fox", "the car", "b"]


def test_a_stream_that_cannot_be_read():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stream, pytest.raises(DataError, match=r"^cannot read pipe: "):
        list(iter_stream(stream, name="pipe"))


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("circlet.data.documents.MAX_LINE", 10)
    with pytest.raises(DataError, match="stdin:1: found a line of more than 10 bytes; wanted shorter lines"):
        texts("a" * 11)


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=30)
@given(
    documents=st.lists(st.text(alphabet="ab,;é|", min_size=1, max_size=8), min_size=1, max_size=5),
    labels=st.lists(st.sampled_from(["u:1", "u:2", "u:secret"]), min_size=1, unique=True),
)
def test_labels_are_never_in_the_texts(tmp_path_factory, kind, documents, labels):
    path = tmp_path_factory.mktemp("stream") / "a"
    write_records(path, [Record(at, text, tuple(labels)) for at, text in enumerate(documents)], kind)
    assert texts(path.read_bytes()) == documents


def test_thousands_of_blank_lines_wait_for_nothing(monkeypatch):
    monkeypatch.setattr("circlet.data.documents._MOST_BLANK", 3)
    assert texts('\n\n\n{"text": "a"}\n') == ["a"]
    assert texts('\n\n\n\n{"text": "a"}\n') == ["", "", "", "", '{"text": "a"}']
