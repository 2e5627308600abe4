"""Formats are recognized by content; names of files help only where the content does not decide."""

from __future__ import annotations

import gzip

import pytest

from circlet.data.load import IN_WORDS, UnrecognizedError, recognize
from circlet.data.records import Columns, is_annif
from circlet.errors import DataError


def put(folder, content: str | bytes, name: str = "documents.dat"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


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
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_by_content(tmp_path, content, kind, packed):
    data = gzip.compress(content.encode()) if packed else content  # no suffix says so
    assert recognize(put(tmp_path, data)) == kind
    assert kind in IN_WORDS


def test_a_byte_order_mark_is_skipped(tmp_path):
    assert recognize(put(tmp_path, "\ufefftext,labels\na,b\n")) == "csv"


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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a fox\t<http://example.org/1> <http://example.org/2>", True),
        ("a fox\t", True),
        ("a fox", False),
        ("a fox\ta label", False),
        ("a fox\t<not closed", False),
    ],
)
def test_annifs_lines(line, expected):
    assert is_annif(f"{line}\n") is expected


@pytest.mark.parametrize("blank", [99, 100, 101, 5000])
def test_blank_lines_before_the_first(tmp_path, blank):
    assert recognize(put(tmp_path, "\n" * blank + '{"text": "a"}\n')) == "jsonl"
