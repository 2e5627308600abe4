from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.errors import DataError
from circlet.storage.packed_weights import PREFIX, alike, packed, rounded, steps_of, stored
from circlet.storage.tensors import Stored

matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-1000, 1000, width=32) | st.just(0.0),
)


def test_by_hand():
    # The root mean square of (2, 0, −2, 0) is √2: with half of it as the step, 2 is 2.83 steps.
    tensors = {"w": np.array([[2, 0], [-2, 0]], dtype=np.float32), "bias": np.ones(2, dtype=np.float32)}
    steps = steps_of(tensors, "a file")
    assert steps["w"].tolist() == pytest.approx([math.sqrt(2)] * 2)
    found = rounded(tensors, steps, 0.5)
    assert found["w"].numbers.tolist() == [[3, 0], [-3, 0]]
    assert found["w"].scales is not None
    assert found["w"].scales.tolist() == pytest.approx([math.sqrt(2) / 2] * 2, rel=2**-15)
    assert found["bias"].read().tolist() == [1, 1]


def test_smaller_matrices_and_equal_rows_have_finer_steps():
    large, small = (np.diag(np.ones(n, dtype=np.float32)) for n in (8, 4))
    steps = steps_of({"a": large, "b": small}, "a file")
    # The root mean squares are √(1/8) and √(1/4), and the smaller one has a quarter of the numbers.
    assert (steps["a"][0], steps["b"][0]) == pytest.approx((math.sqrt(1 / 8), 0.25))
    # Equal rows have finer steps.
    weight = np.array([[1, 1], [1, -1], [1, 1], [1, 1], [1, 1]], dtype=np.float32)
    assert steps_of({"w": weight}, "a file")["w"].tolist() == [0.5, 1, 0.5, 0.5, 0.5]


def test_rows_with_outliers_have_coarser_steps():
    weight = np.ones((3, 1000), dtype=np.float32)
    weight[1, 7] = 1e6
    weight[2] = 1e-3
    found = rounded({"w": weight}, steps_of({"w": weight}, "a file"), 1e-3)["w"]
    assert np.abs(found.numbers).max() == 127
    assert found.read()[1, 7] == pytest.approx(1e6, rel=1e-4)


@given(arrays.arrays(np.int8, st.tuples(st.integers(0, 9), st.integers(0, 3)), elements=st.integers(0, 1)))
def test_rows_that_are_alike(matrix):
    first, which = alike(matrix)
    np.testing.assert_array_equal(matrix[first][which], matrix)
    assert len(first) == len({row.tobytes() for row in matrix})
    assert (np.diff(first) > 0).all()


def test_numbers_that_are_not_finite():
    with pytest.raises(DataError, match=r"found nan at row 0, column 1 of w; .* that this can hold"):
        steps_of({"w": np.array([[1, np.nan]], dtype=np.float32)}, "this")


PATH = Path("weights.safetensors")


def coarser(tensors: dict[str, Any], coarseness: float) -> dict[str, Stored]:
    return rounded(tensors, steps_of(tensors, "a file"), coarseness)


@given(matrices, st.sampled_from([0.01, 0.5, 1.0, 4.0]))
def test_off_by_half_a_step_and_read_again_as_written(weight, coarseness):
    tensors = {"w": weight, "bias": np.arange(3, dtype=np.float32)}
    before = coarser(tensors, coarseness)
    assert before["w"].scales is not None
    off = np.abs(before["w"].read().astype(np.float64) - weight)
    assert (off <= 0.5001 * before["w"].scales[:, None]).all()
    after = stored(PATH, packed(before))
    assert set(after) == {"w", "bias"}
    np.testing.assert_array_equal(after["bias"].read(), tensors["bias"])
    np.testing.assert_array_equal(after["w"].read(), before["w"].read())
    assert after["w"].numbers.dtype == np.int8
    assert after["w"].scales is not None
    np.testing.assert_array_equal(after["w"].scales, before["w"].scales)


def test_far_apart():
    """Hundreds of zeros take several bytes, and 255 of them exactly two; only zeros are within the limit."""
    for zeros in (0, 1, 254, 255, 256, 509, 510, 511, 5000):
        weight = np.zeros((1, zeros + 2), dtype=np.float32)
        weight[0, [zeros, zeros + 1]] = 1, -1
        before = coarser({"w": weight}, 0.5)
        np.testing.assert_array_equal(stored(PATH, packed(before))["w"].read(), before["w"].read())
    for shape in ((1, 1), (1, 100_000), (1000, 1000)):
        weight = np.zeros(shape, dtype=np.float32)
        assert not stored(PATH, packed(coarser({"w": weight}, 1.0)))["w"].numbers.any()


def test_equal_rows_are_stored_once():
    rng = np.random.default_rng(0)
    different = rng.normal(size=(50, 400)).astype(np.float32)
    before = coarser({"w": different[rng.integers(0, 50, 200)]}, 1.0)
    assert before["w"].scales is not None
    content = packed(before)
    once = packed({"w": Stored(before["w"].numbers[:50], before["w"].scales[:50], rounded=True)})
    assert content[PREFIX + "w"].nbytes < 1.5 * once[PREFIX + "w"].nbytes
    np.testing.assert_array_equal(stored(PATH, content)["w"].read(), before["w"].read())


def test_few_bits():
    weight = np.random.default_rng(0).normal(size=(400, 500)).astype(np.float32)
    size = packed(coarser({"w": weight}, 1.0))[PREFIX + "w"].nbytes
    # The entropy of a normal number in steps of its deviation is 2.1 bits.
    assert 2.1 < size * 8 / weight.size < 2.25
    size = packed(coarser({"w": weight}, 4.0))[PREFIX + "w"].nbytes
    # With four times that, 4.6 % are not 0: 0.27 bits say where, and 0.05 bits are signs.
    assert 0.31 < size * 8 / weight.size < 0.34


def written() -> dict[str, Any]:
    weight = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    return packed(coarser({"w": weight}, 1.0))


@pytest.mark.parametrize("length", [0, 7, 8, 12, 40, -1])
def test_cut_off(length):
    content = written()[PREFIX + "w"]
    with pytest.raises(DataError, match=r"weights\.safetensors: found damaged bytes in packed\.w"):
        stored(PATH, {PREFIX + "w": content[:length]})


@pytest.mark.parametrize("sizes", [(20, 31), (21, 30), (0, 0), (2**32 - 1, 2**32 - 1)])
def test_other_sizes(sizes):
    content = written()[PREFIX + "w"].copy()
    content[:8] = np.array(sizes, dtype="<u4").view(np.uint8)
    with pytest.raises(DataError, match="found damaged bytes"):
        stored(PATH, {PREFIX + "w": content})


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, 0.0])
def test_damaged_scales(scale):
    def deflated(content: bytes) -> bytes:
        coder = zlib.compressobj(9, zlib.DEFLATED, -15)
        return coder.compress(content) + coder.flush()

    sizes = np.array([1, 8, 1], dtype="<u4").tobytes() + b"\1" + np.array([1], dtype="<u8").tobytes()
    parts = [sizes, deflated(bytes(4)), deflated(np.array([scale], dtype="<f4").tobytes())]
    parts += [deflated(b"\0"), deflated(b""), deflated(b"")]
    with pytest.raises(DataError, match=r"found the scale .* for row 0 of w"):
        stored(PATH, {PREFIX + "w": np.frombuffer(b"".join(parts), np.uint8)})


def test_wrong_tensors():
    content = written()[PREFIX + "w"]
    with pytest.raises(DataError, match=r"found w in float32; wanted it deflated"):
        stored(PATH, {"w": np.ones((2, 2), np.float32)})
    with pytest.raises(DataError, match=r"found packed\.w of shape .* in int32; wanted bytes"):
        stored(PATH, {PREFIX + "w": content.astype(np.int32)})
    with pytest.raises(DataError, match=r"found both w and packed\.w"):
        stored(PATH, {PREFIX + "w": content, "w": np.ones(2, np.float32)})
    claim = struct.pack("<III?Q", 1, 1 << 31, 1, False, 0) + bytes(20)
    with pytest.raises(DataError, match=r"bytes that claim 1 × 2147483648 numbers"):
        stored(PATH, {PREFIX + "w": np.frombuffer(claim, np.uint8)})
