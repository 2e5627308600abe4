from __future__ import annotations

import json
import os
import pickle
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import numpy as of_numpy
from safetensors import torch as of_torch

from circlet.errors import DataError, OutputError
from circlet.folder.tensors import BFLOAT16, TYPES, map_tensors, place_in_file, release, type_name, write_tensors

RANDOM = np.random.default_rng(0)
RANDOM_ARRAY = RANDOM.standard_normal(3)
PLAIN = [dtype for dtype in TYPES.values() if dtype != BFLOAT16]


def made(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == BFLOAT16:
        return RANDOM.integers(0, 1 << 15, shape).astype(np.uint16).view(BFLOAT16)
    return RANDOM.integers(0, 2, shape).astype(dtype)


class TestRoundTrip:
    @pytest.mark.parametrize("name", TYPES)
    @pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 5), (2, 3, 4)])
    def test_every_type_and_shape(self, name, shape, tmp_path):
        arrays = {"a": made(TYPES[name], shape), "b": made(TYPES["F32"], (3,))}
        write_tensors(tmp_path / "t", arrays)
        found = map_tensors(tmp_path / "t")
        assert found.keys() == arrays.keys()
        for key, array in arrays.items():
            assert found[key].dtype == array.dtype
            assert found[key].shape == array.shape
            assert found[key].tobytes() == array.tobytes()

    def test_nothing(self, tmp_path):
        write_tensors(tmp_path / "t", {})
        assert map_tensors(tmp_path / "t") == {}

    def test_arrays_are_views_that_nobody_can_change(self, tmp_path):
        write_tensors(tmp_path / "t", {"a": np.arange(4.0)})
        found = map_tensors(tmp_path / "t")["a"]
        assert not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1

    def test_they_stay_when_the_file_is_replaced(self, tmp_path):
        write_tensors(tmp_path / "t", {"a": np.arange(4.0)})
        found = map_tensors(tmp_path / "t")["a"]
        write_tensors(tmp_path / "t", {"a": np.zeros(9)})
        assert found.tolist() == [0, 1, 2, 3]

    def test_arrays_that_are_not_contiguous(self, tmp_path):
        array = np.arange(12.0).reshape(3, 4).T
        write_tensors(tmp_path / "t", {"a": array})
        np.testing.assert_array_equal(map_tensors(tmp_path / "t")["a"], array)


class TestBesideSafetensors:
    """The same bytes as the library's, which wrote the files of older versions and reads ours elsewhere."""

    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter("__metadata__".__ne__),
            st.tuples(st.sampled_from(PLAIN), st.lists(st.integers(0, 3), max_size=3)),
            max_size=6,
        )
    )
    def test_of_arrays(self, described):
        arrays = {name: made(dtype, tuple(shape)) for name, (dtype, shape) in described.items()}
        with tempfile.TemporaryDirectory() as folder:
            write_tensors(Path(folder) / "ours", arrays)
            of_numpy.save_file(arrays, Path(folder) / "theirs")
            assert (Path(folder) / "ours").read_bytes() == (Path(folder) / "theirs").read_bytes()

    def test_of_bfloat16(self, tmp_path):
        tensors = {"b": torch.randn(3, 4).bfloat16(), "a": torch.randn(5), "c": torch.ones(2, dtype=torch.int8)}
        of_torch.save_file(tensors, tmp_path / "theirs")
        arrays = map_tensors(tmp_path / "theirs")
        assert arrays["b"].dtype == BFLOAT16
        np.testing.assert_array_equal(arrays["b"].view(np.uint16), tensors["b"].view(torch.uint16).numpy())
        write_tensors(tmp_path / "ours", arrays)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()

    def test_metadata_is_no_tensor(self, tmp_path):
        of_numpy.save_file({"a": np.ones(3)}, tmp_path / "t", metadata={"run": "{}"})
        assert list(map_tensors(tmp_path / "t")) == ["a"]


def written(path: Path, header: Any, numbers: bytes = bytes(16), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + numbers)
    return path


GOOD: dict[str, Any] = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HEADERS: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "the header is damaged"),
    "no text": (b"\xff\xfe", "the header is damaged"),
    "a list": ([1, 2], "not an object"),
    "twice the same name": (b'{"a":%b,"a":%b}' % ((json.dumps(GOOD).encode(),) * 2), "occurs twice"),
    "nested too deep": (b"[" * 100_000, "the header is damaged"),
    "no description": ({"a": 3}, "a has the type None"),
    "an unknown type": ({"a": {**GOOD, "dtype": "F8"}}, "a has the type 'F8'"),
    "a type that is no name": ({"a": {**GOOD, "dtype": ["F32"]}}, "a has the type"),
    "no shape": ({"a": {**GOOD, "shape": None}}, "a has the shape None"),
    "a negative shape": ({"a": {**GOOD, "shape": [-2, -2]}}, r"a has the shape \[-2, -2\]"),
    "a shape of fractions": ({"a": {**GOOD, "shape": [4.0]}}, r"a has the shape \[4.0\]"),
    "a shape of truths": ({"a": {**GOOD, "shape": [True, 4]}}, r"a has the shape"),
    "one offset": ({"a": {**GOOD, "data_offsets": [0]}}, r"the numbers of a are at \[0\]"),
    "backwards": ({"a": {**GOOD, "data_offsets": [16, 0]}}, "the numbers of a are at 16 to 0"),
    "outside": ({"a": {**GOOD, "shape": [5], "data_offsets": [0, 20]}}, "at 0 to 20 of 16 bytes"),
    "far outside": ({"a": {**GOOD, "shape": [2**62], "data_offsets": [0, 2**64]}}, "of 16 bytes"),
    "a hole": ({"a": {**GOOD, "shape": [3], "data_offsets": [4, 16]}}, "at 4 to 16"),
    "overlapping": ({"a": GOOD, "b": {**GOOD, "shape": [2], "data_offsets": [8, 16]}}, "b are at 8 to 16"),
    "too few": ({"a": {**GOOD, "shape": [2], "data_offsets": [0, 8]}}, "the header describes 8 of 16 bytes"),
    "another size": ({"a": {**GOOD, "shape": [3]}}, r"a has 16 bytes for float32 of shape \(3,\)"),
    "a huge shape": ({"a": {**GOOD, "shape": [2**40, 2**40]}}, "a has 16 bytes for float32"),
}


class TestDamage:
    @pytest.mark.parametrize("case", HEADERS)
    def test_of_the_header(self, case, tmp_path):
        header, reason = HEADERS[case]
        path = written(tmp_path / "t", header)
        with pytest.raises(DataError, match=rf"found no readable tensors \(.*{reason}") as caught:
            map_tensors(path)
        assert str(caught.value).startswith(str(path))

    def test_this_header_is_good(self, tmp_path):
        assert map_tensors(written(tmp_path / "t", {"a": GOOD}))["a"].tolist() == [0, 0, 0, 0]

    @pytest.mark.parametrize("length", [17, 2**40, 2**64 - 1])
    def test_of_its_length(self, length, tmp_path):
        path = written(tmp_path / "t", {}, b"", length)
        with pytest.raises(DataError, match=f"a header of {length} bytes in a file of 10"):
            map_tensors(path)

    @pytest.mark.parametrize("content", [b"", b"abc", pickle.dumps(np.ones(3)), b"\x00" * 100])
    def test_other_files(self, content, tmp_path):
        (tmp_path / "t").write_bytes(content)
        with pytest.raises(DataError, match="found no readable tensors"):
            map_tensors(tmp_path / "t")

    def test_no_file(self, tmp_path):
        with pytest.raises(DataError, match="No such file"):
            map_tensors(tmp_path / "t")
        with pytest.raises(DataError, match="found no readable tensors"):
            map_tensors(tmp_path)


class TestPlaces:
    @pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system keeps no file open")
    def test_where_an_array_is(self, tmp_path):
        arrays = {"a": np.arange(4.0), "b": np.arange(12, dtype=np.float32).reshape(3, 4)}
        write_tensors(tmp_path / "t", arrays)
        found = map_tensors(tmp_path / "t")
        content = (tmp_path / "t").read_bytes()
        (tmp_path / "t").unlink()
        for name in (*arrays, "part of b"):
            array = found["b"][1:] if name == "part of b" else found[name]
            descriptor, place = place_in_file(array)
            assert os.fstat(descriptor).st_size == len(content)
            assert content[place : place + array.nbytes] == array.tobytes()
            release(array)
            assert content[place : place + array.nbytes] == array.tobytes()

    def test_an_array_in_memory(self):
        assert place_in_file(RANDOM_ARRAY) is None
        release(RANDOM_ARRAY)

    @pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system does not list open files")
    def test_files_are_closed_with_the_last_array(self, tmp_path):
        def open_files() -> int:
            return len(list(Path("/dev/fd").iterdir()))

        write_tensors(tmp_path / "t", {"a": np.arange(4.0)})
        before = open_files()
        arrays = [map_tensors(tmp_path / "t")["a"][1:] for _ in range(5)]
        assert open_files() > before
        del arrays
        assert open_files() == before


class TestWriting:
    def test_types_that_a_file_cannot_hold(self, tmp_path):
        with pytest.raises(DataError, match=r"found b in complex128; wanted one of .*bfloat16"):
            write_tensors(tmp_path / "t", {"a": np.ones(3), "b": np.ones(3, dtype=np.complex128)})
        assert not list(tmp_path.iterdir())

    def test_nowhere(self, tmp_path):
        with pytest.raises(OutputError, match="cannot write"):
            write_tensors(tmp_path / "none" / "t", {"a": np.ones(3)})

    def test_names_of_types(self):
        assert [type_name(TYPES[name]) for name in ("F32", "BF16", "I8")] == ["float32", "bfloat16", "int8"]
