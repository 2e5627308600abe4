from __future__ import annotations

import gc
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import torch as of_torch

from circlet.errors import DataError, OutputError, ParameterError
from circlet.files import write_tensors
from circlet.runtime.compression import compress
from circlet.storage.tensors import (
    BFLOAT16,
    LEAST_SCALE,
    STORES,
    TYPES,
    map_tensors,
    packed,
    place_in_file,
    release,
    stored,
)

RANDOM = np.random.default_rng(0)
RANDOM_ARRAY = RANDOM.standard_normal(3)


def made(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == BFLOAT16:
        return RANDOM.integers(0, 1 << 15, shape).astype(np.uint16).view(BFLOAT16)
    return RANDOM.integers(0, 2, shape).astype(dtype)


class TestRoundTrip:
    @pytest.mark.parametrize("name", TYPES)
    @pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 5), (2, 3, 4)])
    def test_every_type_and_shape(self, name, shape, tmp_path):
        # The transposed array is not contiguous.
        arrays = {"a": made(TYPES[name], shape).T, "b": made(TYPES["F32"], (3,))}
        write_tensors(tmp_path / "t", arrays)
        found = map_tensors(tmp_path / "t")
        assert found.keys() == arrays.keys()
        for key, array in arrays.items():
            assert found[key].dtype == array.dtype
            assert found[key].shape == array.shape
            assert found[key].tobytes() == array.tobytes()

    def test_nobody_can_change_them_even_in_the_file(self, tmp_path):
        write_tensors(tmp_path / "t", {"a": np.arange(4.0)})
        found = map_tensors(tmp_path / "t")["a"]
        assert not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
        write_tensors(tmp_path / "t", {"a": np.zeros(9)})
        assert found.tolist() == [0, 1, 2, 3]

    def test_beside_safetensors(self, tmp_path):
        tensors = {"b": torch.randn(3, 4).bfloat16(), "a": torch.randn(5), "c": torch.ones(2, dtype=torch.int8)}
        of_torch.save_file(tensors, tmp_path / "theirs")
        arrays = map_tensors(tmp_path / "theirs")
        assert arrays["b"].dtype == BFLOAT16
        np.testing.assert_array_equal(arrays["b"].view(np.uint16), tensors["b"].view(torch.uint16).numpy())
        write_tensors(tmp_path / "ours", arrays)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def written(path: Path, header: Any) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    return path


GOOD: dict[str, Any] = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
#: The library refuses damaged headers; some that it could let pass, or that its reader must not trip over.
HEADERS: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "invalid JSON"),
    "twice the same name": (b'{"a":%b,"a":%b}' % ((json.dumps(GOOD).encode(),) * 2), "a name occurs twice"),
    "nested too deep": (b"[" * 100_000, "invalid JSON"),
    "outside": ({"a": {**GOOD, "shape": [5], "data_offsets": [0, 20]}}, "incomplete metadata"),
    "overlapping": (
        {"a": GOOD, "b": {**GOOD, "shape": [2], "data_offsets": [8, 16]}},
        "invalid offset for tensor `b`",
    ),
    "another size": ({"a": {**GOOD, "shape": [3]}}, "invalid shape"),
    "a type that we have not": ({"a": {**GOOD, "dtype": "F8_E4M3", "shape": [16]}}, "a has the type 'F8_E4M3'"),
    "a huge empty shape": ({"a": GOOD, "b": {**GOOD, "shape": [0, 2**63], "data_offsets": [16, 16]}}, ""),
    "a huge shape": ({"a": {**GOOD, "shape": [2**40, 2**40]}}, "overflow"),
}


class TestDamage:
    @pytest.mark.parametrize("case", HEADERS)
    def test_of_the_header(self, case, tmp_path):
        header, reason = HEADERS[case]
        path = written(tmp_path / "t", header)
        with pytest.raises(DataError, match=rf"found no readable tensors \(.*{reason}") as caught:
            map_tensors(path)
        assert str(caught.value).startswith(str(path))

    def test_other_files(self, tmp_path):
        assert map_tensors(written(tmp_path / "t", {"a": GOOD}))["a"].tolist() == [0, 0, 0, 0]
        for content in (b"", struct.pack("<Q", 2**40), pickle.dumps(np.ones(3))):
            (tmp_path / "t").write_bytes(content)
            with pytest.raises(DataError, match="found no readable tensors"):
                map_tensors(tmp_path / "t")
        for path, found in ((tmp_path / "none", "No such file"), (tmp_path, "found no readable tensors")):
            with pytest.raises(DataError, match=found):
                map_tensors(path)
        with pytest.raises(DataError, match=r"found b in complex128; wanted a type that safetensors has"):
            write_tensors(tmp_path / "new", {"a": np.ones(3), "b": np.ones(3, dtype=np.complex128)})
        with pytest.raises(OutputError, match="cannot write"):
            write_tensors(tmp_path / "none" / "t", {"a": np.ones(3)})
        assert [path.name for path in tmp_path.iterdir()] == ["t"]


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
        assert place_in_file(RANDOM_ARRAY) is None
        release(RANDOM_ARRAY)  # it is in memory

    @pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system does not list open files")
    def test_files_are_closed_with_the_last_array(self, tmp_path):
        def open_files() -> int:
            return len(list(Path("/dev/fd").iterdir()))

        gc.collect()  # other tests' files are closed before or after, but not meanwhile
        write_tensors(tmp_path / "t", {"a": np.arange(4.0)})
        before = open_files()
        arrays = [map_tensors(tmp_path / "t")["a"][1:] for _ in range(5)]
        assert open_files() > before
        del arrays
        assert open_files() == before


PATH = Path("weights.safetensors")
LARGEST = np.finfo(np.float32).max
matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(-(2.0**100), 2.0**100, width=32)
    | st.floats(-(2.0**-118), 2.0**-118, width=32)
    | st.just(0.0),
)


def matrix(*rows: list[float]) -> npt.NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


def back(weight: npt.NDArray[np.float32], store: str) -> npt.NDArray[np.float32]:
    return stored(PATH, packed({"w": weight}, store), store)["w"].read()


class TestInt4:
    def test_by_hand(self):
        # Scales are 1; 7 and −7 are stored as 15 and 1, 0 as 8, in the lower half first, and 0 ends odd rows.
        found = packed({"w": matrix([7.0, -7.0, 0.4], [0.0, 7.0, -1.6])}, "int4")
        assert found["w"].tolist() == [[0x1F, 0x08], [0xF8, 0x06]]
        assert found["w"].dtype == np.uint8
        assert found["scales.w"].tolist() == [1, 1]
        assert back(matrix([7.0, -7.0, 0.4], [0.0, 7.0, -1.6]), "int4").tolist() == [[7, -7, 0], [0, 7, -2]]

    def test_an_outlier_is_cut_off(self):
        # A scale s below 0.98 rounds 0.49 to s. The squared error is then (7 − 7 s)² + 200 (s − 0.49)²: 13.2 for
        # 0.7, 10.3 for 0.6 and 12.3 for 0.5. With a scale of 1, all of 0.49 is lost: 48.
        found = packed({"w": matrix([7.0, *[0.49] * 200])}, "int4")
        assert found["scales.w"].tolist() == pytest.approx([0.6], rel=2**-15)
        assert back(matrix([7.0, *[0.49] * 200]), "int4")[0, :2].tolist() == pytest.approx([4.2, 0.6], rel=2**-15)


class TestInt8:
    def test_by_hand(self):
        weight = matrix([127.0, -63.4, 0.6, 0.4], [0.0, 0.0, 0.0, 0.0], [0.5, -1.0, 0.25, 0.001])
        found = packed({"w": weight}, "int8")
        assert found["w"].tolist() == [[127, -63, 1, 0], [0, 0, 0, 0], [64, -127, 32, 0]]
        assert found["w"].dtype == np.int8
        assert found["scales.w"].dtype == np.float32
        assert found["scales.w"].tolist() == pytest.approx([1, LEAST_SCALE, 1 / 127], rel=2**-16)
        assert back(weight, "int8")[0].tolist() == [127, -63, 1, 0]

    @settings(max_examples=150)
    @given(matrices)
    def test_off_by_half_a_scale_at_most(self, weight):
        scales = packed({"w": weight}, "int8")["scales.w"].astype(np.float64)
        largest = np.abs(weight.astype(np.float64)).max(axis=1)
        assert (scales <= np.maximum(largest / 127 * (1 + 1e-6), LEAST_SCALE)).all()
        error = np.abs(back(weight, "int8").astype(np.float64) - weight)
        assert (error <= scales[:, None] * (0.5 + 1e-5)).all()  # a quotient of 127 is rounded in float32

    def test_rounded_weights_come_back_whatever_their_scales(self):
        """127 s / 127 is not s for every float32: the cut of the scales is what makes it so."""
        weight = np.random.default_rng(0).standard_normal((20_000, 3), dtype=np.float32)
        once = back(weight, "int8")
        np.testing.assert_array_equal(back(once, "int8"), once)

    @pytest.mark.parametrize("value", [LARGEST, -LARGEST, LEAST_SCALE, 1.0, 1e-30])
    def test_extremes(self, value):
        found = back(matrix([value, 0.0]), "int8")
        assert np.isfinite(found).all()
        assert found[0, 0] == pytest.approx(value, rel=2**-15, abs=LEAST_SCALE / 2)


# 8 significant bits: 1 + 2⁻⁷ can be held; halves go to the even one of their neighbors.
@settings(max_examples=100)
@example(matrix([1.0, 1 + 2**-7, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.0, 2.0**-140]))
@given(matrices)
def test_every_bit_of_bf16_is_as_torch_has_it(weight):
    expected = torch.from_numpy(weight).to(torch.bfloat16)
    found = packed({"w": weight}, "bf16")["w"]
    assert found.dtype == BFLOAT16
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(torch.uint16).numpy())
    np.testing.assert_array_equal(back(weight, "bf16"), expected.float().numpy())


class TestStores:
    @pytest.mark.parametrize("store", STORES)
    @settings(max_examples=100)
    @given(weight=matrices)
    def test_rounding_again_changes_nothing(self, store, weight):
        once = packed({"w": weight}, store)
        assert back(weight, store).shape == weight.shape
        for name, array in packed({"w": back(weight, store)}, store).items():
            np.testing.assert_array_equal(array, once[name])

    @pytest.mark.parametrize("store", STORES)
    def test_only_matrices_are_rounded(self, store):
        tensors = {
            "bias": np.array([1.2345678], dtype=np.float32),
            "log_scale": np.array(1.2345678, dtype=np.float32),
            "kernel": np.full((2, 2, 2), 1.2345678, dtype=np.float32),
            "ids": np.array([[1, 2]]),
            "w": matrix([1.2345678, 0.1]),
        }
        found = stored(PATH, packed(tensors, store), store)
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].dtype == found[name].read().dtype == tensor.dtype
            assert found[name].shape == tensor.shape
            rounded = name == "w" and store != "float32"
            assert np.array_equal(found[name].read(), tensor) != rounded

    @pytest.mark.parametrize("store", STORES)
    def test_some_rows_are_as_among_all(self, store):
        weight = np.random.default_rng(0).standard_normal((9, 5), dtype=np.float32)
        found = stored(PATH, packed({"w": weight}, store), store)["w"]
        whole = found.read()
        for rows in (np.array([3, 0, 3, 8]), slice(2, 7), np.array([], dtype=np.int64)):
            np.testing.assert_array_equal(found.read(rows), whole[rows])

    @pytest.mark.parametrize("store", ["bf16", "int8"])
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    def test_not_finite(self, store, value):
        weight = np.zeros((3, 4), dtype=np.float32)
        weight[1, 2] = value
        with pytest.raises(DataError, match=rf"found {value} at row 1, column 2 of w; wanted .* {store}"):
            packed({"w": weight}, store)

    def test_what_bf16_cannot_hold(self):
        overflowing = np.full((1, 1), 0x7FFFFFFF, dtype=np.uint32).view(np.float32)
        with pytest.raises(DataError, match="found nan at row 0, column 0 of w"):
            packed({"w": overflowing}, "bf16")
        with pytest.raises(DataError, match=r"found 3\.4\S+e\+38 at row 0, column 1 of w; .* bf16 can hold"):
            packed({"w": matrix([0.0, LARGEST])}, "bf16")

    def test_an_unknown_store(self, tmp_path):
        with pytest.raises(ParameterError, match="found 'int2'; wanted one of float32, bf16, int8, int4"):
            compress(tmp_path, tmp_path / "m", "int2")
        assert not (tmp_path / "m").exists()
