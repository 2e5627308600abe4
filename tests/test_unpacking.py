from __future__ import annotations

import gzip

import pytest

from circlet import files
from circlet.errors import DataError, ParameterError
from circlet.files import iter_lines, peek, read_bytes


@pytest.fixture
def bomb(tmp_path, monkeypatch):
    """Blank lines, a thousand times as many bytes as their file has."""
    monkeypatch.setattr(files, "FREE", 1 << 16)
    monkeypatch.setattr(files, "FREE_LINES", 1 << 16)
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"\n" * (1 << 20), mtime=0))
    return path


def test_a_file_that_grows_too_much_is_refused_before_it_is_read(bomb):
    with pytest.raises(DataError, match=r"gz: found \d+ bytes that unpack to \d+ or more; wanted") as refused:
        next(iter_lines(bomb))
    assert "100 times as many and 65536" in str(refused.value)
    assert files.VARIABLE in str(refused.value)
    with pytest.raises(DataError, match="wanted at most"):
        read_bytes(bomb)
    with pytest.raises(DataError, match="wanted at most"):
        peek(bomb, 10)


def test_who_trusts_the_file_says_so(bomb, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, "2000")
    assert sum(1 for _ in iter_lines(bomb)) == 1 << 20
    assert len(read_bytes(bomb)) == 1 << 20


@pytest.mark.parametrize("ratio", ["", "-1", "1.5", "many", "²", "1" * 10])
def test_a_ratio_that_is_none(bomb, monkeypatch, ratio):
    monkeypatch.setenv(files.VARIABLE, ratio)
    with pytest.raises(ParameterError, match="CIRCLET_UNPACK_RATIO must be a whole number"):
        read_bytes(bomb)


def test_files_of_several_members(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert files.read_gzip(path) == b"one\ntwo\n"
    with files.open_gzip(path) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


def test_small_files_may_grow_as_they_like(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(1 << 22)))
    assert files.read_gzip(path) == bytes(1 << 22)
