from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from circlet import errors, files
from circlet.data import load_dataset
from circlet.data.matrices import read_features
from circlet.errors import DataError, OutputError, ParameterError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=values)
def test_json_is_read_as_it_was_written(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "a.json"
    files.write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8")) == files.read_json(path) == value


def test_innermost_lists_stay_on_one_line_and_nan_is_refused(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, [float("nan")])
    assert list(tmp_path.iterdir()) == []
    files.write_json(path, {"rows": [[1, 2], [3]], "name": "é"})
    assert path.read_text(encoding="utf-8") == '{\n "rows": [\n  [1, 2],\n  [3]\n ],\n "name": "é"\n}\n'


def test_folders(tmp_path):
    files.prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    with pytest.raises(OutputError, match=r"cannot write .*a"):
        files.write_text(tmp_path / "a", "text")


def test_numpy_arrays_are_written_without_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; import numpy as np; from circlet import files; "
        f"files.write_tensors(Path({str(tmp_path)!r}) / 'a.safetensors', {{'x': np.ones(2)}}); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_strict_json():
    nested = "[" * 50 + "]" * 50
    for text in ("1e308", "-0.0", "1" + "0" * 200, '"\\ud83e\\udd8a \\\\ud800"', nested):
        assert files.parse_json(text) == json.loads(text)
    for text in ("NaN", "[1, -Infinity]", "-1e999", "1" + "0" * 400, '{"a": ["\\udc00x"]}', f"{'[' * 10}{nested}"):
        with pytest.raises(ValueError, match=r"."):
            files.parse_json(text)


@pytest.mark.skipif(sys.platform == "win32", reason="nobody knows there which processes are gone")
def test_leftovers_of_processes_that_are_gone(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    mine, gone = files.temporary_beside(tmp_path / "a.txt").name, f".a.txt.{child.pid}.part"
    other, kept = f".b.12.txt.{child.pid}.part", [mine, ".a.txt.part", f"a.txt.{child.pid}.part"]
    for name in (gone, other, *kept):
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path, "a.txt")
    assert {path.name for path in tmp_path.iterdir()} == {other, *kept}
    files.remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*kept}


def test_only_regular_files_are_read(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    assert files.check_regular(tmp_path / "a.txt") == 3
    with pytest.raises(DataError, match=r"found no readable file \(a folder\); wanted a regular file"):
        files.check_regular(tmp_path)
    with pytest.raises(DataError, match=r"b\.txt: found no readable label names \(No such file"):
        files.check_regular(tmp_path / "b.txt", "label names")


class TestReading:
    def test_json(self, tmp_path):
        path = tmp_path / "a.json"
        for damage in (b"", b"{", b"\xff", b"[" * 100_000):
            path.write_bytes(damage)
            with pytest.raises(DataError, match=r"a\.json: found no readable JSON"):
                files.read_json(path)
        with pytest.raises(DataError, match=r"b\.json: found no readable JSON \(No such file"):
            files.read_json(tmp_path / "b.json")

    @pytest.mark.parametrize("library", ["numpy", "torch"])
    def test_tensors(self, library, tmp_path):
        path, numbers = tmp_path / "a.safetensors", np.arange(6.0).reshape(2, 3)
        files.write_text(tmp_path / "a.txt", "")
        files.write_tensors(path, {"a": numbers if library == "numpy" else torch.from_numpy(numbers)}, {"b": "c"})
        with safe_open(path, framework="numpy") as stored:
            assert stored.metadata() == {"b": "c"}
            np.testing.assert_array_equal(stored.get_tensor("a"), numbers)
        assert path.stat().st_mode == (tmp_path / "a.txt").stat().st_mode  # that of any file
        assert sorted(each.name for each in tmp_path.iterdir()) == ["a.safetensors", "a.txt"]
        tensors, metadata = files.read_tensors(path, library)
        np.testing.assert_array_equal(tensors["a"], numbers)
        assert type(tensors["a"]) is (np.ndarray if library == "numpy" else torch.Tensor)
        assert metadata == {"b": "c"}
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DataError, match=r"a\.safetensors: found no readable tensors"):
            files.read_tensors(path, library)
        files.write_tensors(path, {"a": torch.zeros(3).to(torch.float8_e4m3fn)})  # a type that NumPy has not
        with pytest.raises(DataError, match=r"a\.safetensors: found no readable tensors"):
            files.read_tensors(path, "numpy")


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes of POSIX systems")
class TestOutput:
    """What a user names is never destroyed, whatever it is."""

    def write(self, path: Path, content: bytes = b"new") -> None:
        with files.output(path) as stream:
            stream.write(content)

    def test_a_regular_file_is_replaced_at_the_end(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("old")
        with files.output(path) as stream:
            stream.write(b"new")
            stream.flush()
            assert path.read_text() == "old"
        assert path.read_text() == "new"

    @pytest.mark.parametrize("before", ["old", None])
    def test_a_link_stays_a_link(self, tmp_path, before):
        target, link, second = tmp_path / "far" / "a.txt", tmp_path / "a.txt", tmp_path / "b.txt"
        target.parent.mkdir()
        if before is not None:
            target.write_text(before)
        link.symlink_to(target)
        second.symlink_to("a.txt")
        self.write(second)
        assert link.is_symlink()
        assert second.is_symlink()
        assert target.read_text() == "new"
        assert list(target.parent.iterdir()) == [target]
        with pytest.raises(TypeError), files.output(link) as stream:
            stream.writelines([b"half", "text"])
        assert target.read_text() == "new"

    def test_a_link_to_itself(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        for call in (self.write, files.prepare_output):
            with pytest.raises(OutputError, match="a symbolic link that leads to itself"):
                call(tmp_path / "a")
        assert (tmp_path / "a").is_symlink()

    @pytest.mark.parametrize("linked", [False, True])
    def test_a_pipe_is_written_to(self, tmp_path, linked):
        pipe = path = tmp_path / "pipe"
        os.mkfifo(pipe)
        if linked:
            path = tmp_path / "link"
            path.symlink_to(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that opening it for writing does not wait
        try:
            files.prepare_output(path)
            self.write(path)
            assert os.read(reader, 10) == b"new"
        finally:
            os.close(reader)
        assert path.is_symlink() == linked
        with pytest.raises(OutputError, match=r"cannot replace .*pipe: found a device, pipe or socket; wanted"):
            files.write_text(pipe, "text")
        assert pipe.is_fifo()

    def test_a_device_is_written_to(self, tmp_path):
        ours, theirs = os.openpty()
        link = tmp_path / "terminal"
        try:
            link.symlink_to(os.ttyname(theirs))
            self.write(link)
            assert os.read(ours, 10) == b"new"
            assert link.is_char_device()
        finally:
            os.close(ours)
            os.close(theirs)

    def test_a_folder(self, tmp_path):
        with pytest.raises(OutputError, match="it is a folder"):
            files.prepare_output(tmp_path)
        with pytest.raises(OutputError, match="cannot write"):
            self.write(tmp_path)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_no_space_left(self, tmp_path):
        (tmp_path / "link").symlink_to("/dev/full")
        with pytest.raises(OutputError, match=r"cannot write .*link: No space left on device"):
            self.write(tmp_path / "link")
        assert Path("/dev/full").is_char_device()


def test_a_full_disk_as_numpy_reports_it(tmp_path):
    """Without a number; errors of other libraries that have none are not the disk's."""

    def fail(error: OSError) -> None:
        with files.replacing(tmp_path / "a.npy"):
            raise error

    with pytest.raises(OutputError, match=r"cannot write .*a\.npy: 8 requested and 0 written"):
        fail(OSError("8 requested and 0 written"))
    with pytest.raises(ConnectionError):
        fail(ConnectionError("the registry is away"))


def test_a_second_handle_is_refused_until_the_first_is_closed(tmp_path):
    path = tmp_path / "file"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    files.lock(first)
    with pytest.raises((BlockingIOError, PermissionError)):
        files.lock(second)
    os.close(first)
    files.lock(second)
    os.close(second)


def bomb(folder, lines):
    """A file that unpacks to so many lines of 1 KiB, several hundred times as many bytes as it has."""
    path = folder / "lines.txt.gz"
    path.write_bytes(gzip.compress((b" " * 1023 + b"\n") * lines, mtime=0))
    return path


def test_a_file_that_grows_too_much_is_refused_before_it_is_read(tmp_path):
    path = bomb(tmp_path, 4 << 10)
    with pytest.raises(DataError, match=r"gz: found \d+ bytes that unpack to \d+ or more; wanted") as refused:
        next(files.iter_lines(path))
    assert f"100 times as many and {files.FREE_LINES}" in str(refused.value)
    assert files.VARIABLE in str(refused.value)
    with pytest.raises(DataError, match="wanted at most"):
        files.peek(path, 10)
    assert len(files.read_bytes(path)) == 4 << 20  # what is read as a whole may grow more
    path.write_bytes(gzip.compress(bytes(files.FREE + (16 << 20)), mtime=0))
    with pytest.raises(DataError, match=f"wanted at most .* and {files.FREE} "):
        files.read_bytes(path)


def test_who_trusts_the_file_says_so(tmp_path, monkeypatch):
    path = bomb(tmp_path, 4 << 10)
    monkeypatch.setenv(files.VARIABLE, "2000")
    assert sum(1 for _ in files.iter_lines(path)) == 4 << 10
    for ratio in ("", "-1", "1.5", "many", "²", "1" * 10):
        monkeypatch.setenv(files.VARIABLE, ratio)
        with pytest.raises(ParameterError, match=r"CIRCLET_UNPACK_RATIO: found .*; wanted a whole number"):
            files.read_bytes(path)


def test_files_of_several_members(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert files.read_gzip(path) == b"one\ntwo\n"
    with files.open_gzip(path) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


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


def test_what_cannot_be_read(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataError, match=f"cannot read {path}: "):
            list(files.iter_lines(path))
    path = put(tmp_path, b"short\n" + b"x" * (files.MAX_LINE + 1))
    wanted = rf"a\.txt:2: found a line of more than {files.MAX_LINE} bytes; wanted shorter lines"
    with pytest.raises(DataError, match=wanted):
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
def test_a_pipe_or_device_is_refused_before_it_is_opened(tmp_path):
    """Opening a pipe would wait for somebody who writes into it."""
    pipe, link, device = (tmp_path / f"{name}.jsonl" for name in "abc")
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    device.symlink_to("/dev/zero")
    for read in (files.peek, load_dataset, read_features, lambda path: list(files.iter_lines(path))):
        for path in (pipe, link, device):
            with pytest.raises(DataError, match=r"\.jsonl: found a pipe or device; wanted a regular file"):
                read(path)
    with pytest.raises(DataError, match="found nothing in the folder"):
        load_dataset(tmp_path)


def test_some_lines_of_a_file(tmp_path):
    path = put(tmp_path, files.BOM + b"one\ntwo\nthree\n")
    assert list(files.iter_text(path, end=7)) == [(1, "one\n")]
    assert list(files.iter_text(path, start=7, end=11, first=2)) == [(2, "two\n")]
    assert list(files.iter_lines(path, start=11, first=3)) == [(3, b"three\n")]
    assert files.peek(path).startswith(b"one\n")
    path.write_bytes(b"one\ntw\0\n")
    with pytest.raises(DataError, match=":2: found a zero byte"):
        list(files.iter_lines(path, start=4, first=2))
