"""Damaged files of every format are read soundly or raise a `DataError`, in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.layouts import LAYOUTS, X, Y, holds_together

from circlet.data import load_dataset, matrices
from circlet.data.load import recognize
from circlet.data.pydocs import _unsigned
from circlet.data.records import parse_list
from circlet.errors import DataError
from circlet.features.vectorizer import Characters, Words

# Bytes for read-ahead, the current block and small objects; then a multiple of the unpacked size.
CONSTANT, MULTIPLE = 4 << 20, 40

# Zip and gzip have checksums: what can be read at all must be what was written.
CHECKSUMMED = {"xmc-gz", "npz-X", "npz-Y"}
# ... as long as their first bytes say what they are: otherwise it is a file without a checksum.
ARCHIVES = (b"\x1f\x8b", b"PK")

PLACE = st.floats(0, 1, exclude_max=True)
# Bytes that mean something to one of the formats hurt more than random ones.
TELLING = [b"9" * 12, b"1e99", b"nan", *(bytes([byte]) for byte in b'\n\r \t,:"#-\0\xff{[')]
PIECE = st.one_of(st.sampled_from(TELLING), st.binary(min_size=1, max_size=4))
DAMAGE = st.one_of(
    st.tuples(st.just("flip"), PLACE, st.integers(1, 255)),
    st.tuples(st.just("cut"), PLACE, PLACE),
    st.tuples(st.just("duplicate"), PLACE, PLACE),
    st.tuples(st.just("insert"), PLACE, PIECE),
    st.tuples(st.just("truncate"), PLACE, st.none()),
)


def damaged(data, damage):
    kind, place, how = damage
    at = int(place * len(data))
    if not data:
        return data
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ how]) + data[at + 1 :]
    if kind == "insert":
        return data[:at] + how + data[at:]
    if kind == "truncate":
        return data[:at]
    start, stop = sorted((at, int(how * len(data))))
    return data[:start] + data[stop:] if kind == "cut" else data[:stop] + data[start:]


def unpacked_size(path, data):
    if path.suffix != ".gz":
        return len(data)
    return len(data) * 20  # a damaged stream can't tell; these files are compressed by less


@pytest.fixture(scope="module", autouse=True)
def pristine(tmp_path_factory):
    """Each layout's folder, written once, with the bytes of the file to damage."""
    made = {}
    for name, (write, target) in LAYOUTS.items():
        folder = tmp_path_factory.mktemp(name)
        write(folder)
        made[name] = (folder, folder / target, (folder / target).read_bytes())
        load_dataset(folder)  # so that imports are not counted as memory for reading
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_undamaged(pristine, layout):
    folder, path, data = pristine[layout]
    path.write_bytes(data)
    holds_together(load_dataset(folder))


def read_and_measure(folder):
    """The dataset of a folder or the error's message, and the most bytes held at once."""
    dataset = message = None
    tracemalloc.start()
    try:
        dataset = load_dataset(folder)
    except DataError as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return dataset, message, peak


@pytest.mark.parametrize("layout", LAYOUTS)
@given(damages=st.lists(DAMAGE, min_size=1, max_size=3))
def test_damage(pristine, layout, damages):
    folder, path, data = pristine[layout]
    for damage in damages:
        data = damaged(data, damage)
    path.write_bytes(data)
    dataset, message, peak = read_and_measure(folder)
    allowed = CONSTANT + MULTIPLE * unpacked_size(path, data)
    if peak >= allowed:  # once may be a table of the interpreter that grew just then; twice is the reader
        dataset, message, peak = read_and_measure(folder)
    assert peak < allowed
    if dataset is None:
        assert str(folder) in message
    else:
        holds_together(dataset)
        if layout in CHECKSUMMED and data.startswith(ARCHIVES):
            for split in filter(None, (dataset.train, dataset.test)):
                assert np.array_equal(split.X.toarray(), X.toarray())
                assert np.array_equal(split.Y.toarray(), Y.toarray())


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("line", [b"0\n", b"0 1:1\n", b"\n", b" \n"])
def test_memory_grows_no_faster_than_the_file(tmp_path, monkeypatch, line, header):
    """On small files the constant hides the multiple, so this compares two sizes."""
    monkeypatch.setattr(matrices, "_BLOCK_ROWS", 256)  # so that small files have several blocks too
    path = tmp_path / "train.txt"
    sizes, peaks = [], []
    for count in (2_000, 6_000):
        first = b"%d 2 2\n" % count if header else b"0 1:1\n"
        path.write_bytes(first + line * (count - 1) + b"0 1:1\n")
        tracemalloc.start()
        assert load_dataset(path).train.n == count + (not header)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(path.stat().st_size)
    assert peaks[1] - peaks[0] < MULTIPLE * (sizes[1] - sizes[0])


#: What is read, and content that makes a careless pattern try every way to divide it.
TEDIOUS: dict[str, tuple[Callable, Callable[[int], Any]]] = {
    "spaces": (recognize, lambda n: b" " * n + b"x"),
    "tabs and lines": (recognize, lambda n: b"x\n" + b" \t" * n + b"x"),
    "digits": (recognize, lambda n: b"1" * n + b"x"),
    "labels": (recognize, lambda n: b"1," * n + b"x"),
    "features": (recognize, lambda n: b"1 " + b"1:1 " * n + b":"),
    "spaces before features": (recognize, lambda n: b"1" + b" " * n + b"1:1" + b" " * n + b":"),
    "half a label word": (recognize, lambda n: b" __label__" * n),
    "uris": (recognize, lambda n: b"x\t" + b"a:" * n + b" <"),
    "brackets": (recognize, lambda n: b"x\t" + b"<" * n),
    "a list of strings": (parse_list, lambda n: "[" + "'a' , " * n + "'a]"),
    "a list of numbers": (parse_list, lambda n: "[" + "1 ," * n + "1 1]"),
    "spaces in a list": (parse_list, lambda n: "['a'" + " " * n + "x]"),
    "escapes in a list": (parse_list, lambda n: "['" + r"\x61" * n + "]"),
    "marks": (Words(1, 2), lambda n: "e\u0301\u0301" * n + "\u0301"),
    "letters": (Words(1, 1), lambda n: "é" * n),
    "characters": (Characters(3, 5), lambda n: "é" * n + " " * n),
    "a signature": (partial(_unsigned, name="f"), lambda n: "f() -> " + "f.:" * n + "("),
}


@pytest.mark.parametrize("name", TEDIOUS)
def test_work_grows_with_the_size_and_not_with_its_square(tmp_path, name):
    read, make = TEDIOUS[name]

    def work(n: int) -> float:
        content = make(n)
        if isinstance(content, bytes):
            (tmp_path / "a").write_bytes(content)
            content = tmp_path / "a"
        spent = []
        for _ in range(7):
            started = time.process_time()  # of this process alone, however busy the machine is
            with suppress(DataError):
                read(content)
            spent.append(time.process_time() - started)
        return min(spent)

    small, large = work(1 << 10), work(1 << 14)
    assert large < 64 * max(small, 1e-4)  # 16 times as much content; its square would be 256 times as much
