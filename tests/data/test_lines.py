from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from circlet import errors, files
from circlet.data import load_dataset
from circlet.data.matrices import read_features
from circlet.errors import DataError


def put(folder, content: bytes, name: str = "a.txt"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_lines_with_their_numbers(tmp_path, pack):
    path = put(tmp_path, pack("one\r\n\nthrée".encode()))
    assert list(files.iter_lines(path)) == [(1, b"one\r\n"), (2, b"\n"), (3, "thrée".encode())]
    assert list(files.iter_text(path)) == [(1, "one\r\n"), (2, "\n"), (3, "thrée")]
    assert files.peek(path, 4) == b"one\r"
    read: list[int] = []
    assert len(list(files.iter_text(path, read.append))) == 3
    assert read == [5, 1, 6]


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = put(tmp_path, files.BOM + b"one\n")
    assert list(files.iter_lines(path)) == [(1, b"one\n")]
    assert files.peek(path) == b"one\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.txt: found an empty file; wanted data"),
        (files.BOM, "a.txt: found an empty file; wanted data"),
        (b"fine\nz\0ro\n", "a.txt:2: found a zero byte"),
        (b"fine\ncaf\xe9\n", "a.txt:2: found byte 0xe9 at position 4 of the line; wanted UTF-8 text"),
        (gzip.compress(b"fine\n" * 99, mtime=0)[:-9], "a.txt: found a gzip file that ends too early"),
        (b"\x1f\x8bnonsense", "a.txt: found a damaged gzip file"),
    ],
)
def test_damage(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        list(files.iter_text(put(tmp_path, content)))


def test_a_line_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 10)
    path = put(tmp_path, b"short\n" + b"x" * 11)
    with pytest.raises(DataError, match=r"a\.txt:2: found a line of more than 10 bytes; wanted shorter lines"):
        list(files.iter_lines(path))


def test_what_cannot_be_read(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataError, match=f"cannot read {path}: "):
            list(files.iter_lines(path))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_written_whole_or_not_at_all(tmp_path, name):
    path = tmp_path / name
    with files.writing(path) as stream:
        stream.write(b"one\n")
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert list(files.iter_lines(path)) == [(1, b"one\n")]
    before = path.read_bytes()
    with pytest.raises(TypeError), files.writing(path) as stream:
        stream.writelines([b"two\n", "three"])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_values_in_messages_are_cut():
    assert errors.shown("x" * 61) == repr("x" * 60 + "…")
    assert errors.shown(b"\xff") == repr("\\xff")
    assert str(errors.bad("a", 3, "this", "that")) == "a:3: found this; wanted that"
    assert str(errors.bad("a", None, "this", "that")) == "a: found this; wanted that"


@pytest.mark.skipif(os.name == "nt", reason="needs pipes of POSIX systems")
def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    """Opening it would wait for somebody who writes into it."""
    pipe, link = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for read in (files.peek, load_dataset, read_features, lambda path: list(files.iter_lines(path))):
        for path in (pipe, link):
            with pytest.raises(DataError, match=r"\.jsonl: found a pipe or device; wanted a regular file"):
                read(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_link_to_a_device(tmp_path):
    (tmp_path / "train.txt").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"train\.txt: found a pipe or device; wanted a regular file"):
        load_dataset(tmp_path / "train.txt")
    with pytest.raises(DataError, match="found nothing in the folder"):
        load_dataset(tmp_path)


def test_some_lines_of_a_file(tmp_path):
    path = put(tmp_path, files.BOM + b"one\ntwo\nthree\n")
    assert list(files.iter_text(path, end=7)) == [(1, "one\n")]
    assert list(files.iter_text(path, start=7, end=11, first=2)) == [(2, "two\n")]
    assert list(files.iter_lines(path, start=11, first=3)) == [(3, b"three\n")]
    path.write_bytes(b"one\ntw\0\n")
    with pytest.raises(DataError, match=":2: found a zero byte"):
        list(files.iter_lines(path, start=4, first=2))
