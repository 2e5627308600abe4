from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.errors import DataError
from circlet.folder.deflated import PREFIX, packed, rounded, stored

PATH = Path("weights.safetensors")
matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-1000, 1000, width=32) | st.just(0.0),
)


def test_by_hand():
    # The root mean square of (2, 0, −2, 0) is √2: with half of it as the step, 2 is 2.83 steps.
    found = rounded({"w": np.array([[2, 0], [-2, 0]], dtype=np.float32)}, 0.5)["w"]
    assert found.numbers.tolist() == [[3, 0], [-3, 0]]
    assert found.scales is not None
    assert found.scales.tolist() == pytest.approx([math.sqrt(2) / 2] * 2, rel=2**-15)


def test_smaller_matrices_have_finer_steps():
    found = rounded({"a": np.ones((8, 8), np.float32), "b": np.ones((4, 4), np.float32)}, 1.0)
    scales = [found[name].scales for name in "ab"]
    assert [each[0] for each in scales if each is not None] == pytest.approx([1, 0.5], rel=2**-15)


def test_rows_with_outliers_have_coarser_steps():
    weight = np.ones((3, 1000), dtype=np.float32)
    weight[1, 7] = 1e6
    weight[2] = 1e-3
    found = rounded({"w": weight}, 1e-3)["w"]
    assert np.abs(found.numbers).max() == 127
    assert found.read()[1, 7] == pytest.approx(1e6, rel=1e-4)


@given(matrices, st.sampled_from([0.01, 0.5, 1.0, 4.0]))
def test_written_and_read_again(weight, coarseness):
    tensors = {"w": weight, "bias": np.arange(3, dtype=np.float32)}
    before = rounded(tensors, coarseness)
    after = stored(PATH, packed(before))
    assert set(after) == {"w", "bias"}
    np.testing.assert_array_equal(after["bias"].read(), tensors["bias"])
    np.testing.assert_array_equal(after["w"].read(), before["w"].read())
    assert after["w"].numbers.dtype == np.int8
    assert before["w"].scales is not None
    off = np.abs(before["w"].read().astype(np.float64) - weight)
    assert (off <= 0.5001 * before["w"].scales[:, None]).all()


def test_few_bits():
    weight = np.random.default_rng(0).normal(size=(400, 500)).astype(np.float32)
    size = packed(rounded({"w": weight}, 1.0))[PREFIX + "w"].nbytes
    # The entropy of a normal number in steps of its deviation is 2.1 bits.
    assert 2.1 < size * 8 / weight.size < 2.25


def test_numbers_that_are_not_finite():
    with pytest.raises(DataError, match="found nan at row 0, column 1 of w"):
        rounded({"w": np.array([[1, np.nan]], dtype=np.float32)}, 1.0)


def written() -> dict[str, Any]:
    weight = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    return packed(rounded({"w": weight}, 1.0))


@pytest.mark.parametrize("length", [0, 7, 8, 12, 40, -1])
def test_cut_off(length):
    content = written()[PREFIX + "w"]
    with pytest.raises(DataError, match=r"weights\.safetensors: found damaged bytes in deflated\.w"):
        stored(PATH, {PREFIX + "w": content[:length]})


@pytest.mark.parametrize("sizes", [(20, 31), (21, 30), (0, 0), (2**32 - 1, 2**32 - 1)])
def test_other_sizes(sizes):
    content = written()[PREFIX + "w"].copy()
    content[:8] = np.frombuffer(np.array(sizes, dtype="<u4").tobytes(), np.uint8)
    with pytest.raises(DataError, match="found damaged bytes"):
        stored(PATH, {PREFIX + "w": content})


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, 0.0])
def test_damaged_scales(scale):
    def deflated(content: bytes) -> bytes:
        coder = zlib.compressobj(9, zlib.DEFLATED, -15)
        return coder.compress(content) + coder.flush()

    parts = [np.array([1, 8], dtype="<u4").tobytes(), deflated(np.array([scale], dtype="<f4").tobytes())]
    parts += [deflated(b"\0"), deflated(b""), deflated(b"")]
    with pytest.raises(DataError, match=r"found the scale .* for row 0 of w"):
        stored(PATH, {PREFIX + "w": np.frombuffer(b"".join(parts), np.uint8)})


def test_wrong_tensors():
    content = written()[PREFIX + "w"]
    with pytest.raises(DataError, match=r"found w in float32; wanted it deflated"):
        stored(PATH, {"w": np.ones((2, 2), np.float32)})
    with pytest.raises(DataError, match=r"found deflated\.w of shape .* in int32; wanted bytes"):
        stored(PATH, {PREFIX + "w": content.astype(np.int32)})
    with pytest.raises(DataError, match=r"found both w and deflated\.w"):
        stored(PATH, {PREFIX + "w": content, "w": np.ones(2, np.float32)})


def test_bytes_that_unpack_to_a_thousand_times_as_many():
    """Flags of zeros, packed better than `packed` does, so that a file of kilobytes would take gigabytes."""
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    flags = coder.compress(bytes(1 << 17)) + coder.flush()
    content = np.array([1, 1 << 20], dtype="<u4").tobytes() + flags
    with pytest.raises(DataError, match=r"bytes that claim 1 × 1048576 numbers"):
        stored(PATH, {PREFIX + "w": np.frombuffer(content, np.uint8)})


def test_zeros_are_packed_within_the_limit():
    for shape in ((1, 1), (1, 100_000), (1000, 1000)):
        zeros = {"w": np.zeros(shape, np.float32)}
        assert not stored(PATH, packed(rounded(zeros, 1.0)))["w"].numbers.any()
