from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet.errors import DataError
from circlet.folder.deflated import alike, rounded, steps_of

matrices = arrays.arrays(
    np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1000, 1000, width=32)
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


def test_smaller_matrices_have_finer_steps():
    large, small = (np.diag(np.ones(n, dtype=np.float32)) for n in (8, 4))
    steps = steps_of({"a": large, "b": small}, "a file")
    # The root mean squares are √(1/8) and √(1/4), and the smaller one has a quarter of the numbers.
    assert (steps["a"][0], steps["b"][0]) == pytest.approx((math.sqrt(1 / 8), 0.25))


def test_equal_rows_have_finer_steps():
    weight = np.array([[1, 1], [1, -1], [1, 1], [1, 1], [1, 1]], dtype=np.float32)
    assert steps_of({"w": weight}, "a file")["w"].tolist() == [0.5, 1, 0.5, 0.5, 0.5]


def test_rows_with_outliers_have_coarser_steps():
    weight = np.ones((3, 1000), dtype=np.float32)
    weight[1, 7] = 1e6
    weight[2] = 1e-3
    found = rounded({"w": weight}, steps_of({"w": weight}, "a file"), 1e-3)["w"]
    assert np.abs(found.numbers).max() == 127
    assert found.read()[1, 7] == pytest.approx(1e6, rel=1e-4)


@given(matrices, st.sampled_from([0.01, 0.5, 1.0, 4.0]))
def test_off_by_half_a_step(weight, coarseness):
    found = rounded({"w": weight}, steps_of({"w": weight}, "a file"), coarseness)["w"]
    assert found.scales is not None
    off = np.abs(found.read().astype(np.float64) - weight)
    assert (off <= 0.5001 * found.scales[:, None]).all()


@given(arrays.arrays(np.int8, st.tuples(st.integers(0, 9), st.integers(0, 3)), elements=st.integers(0, 1)))
def test_rows_that_are_alike(matrix):
    first, which = alike(matrix)
    np.testing.assert_array_equal(matrix[first][which], matrix)
    assert len(first) == len({row.tobytes() for row in matrix})
    assert (np.diff(first) > 0).all()


def test_numbers_that_are_not_finite():
    with pytest.raises(DataError, match=r"found nan at row 0, column 1 of w; .* that this can hold"):
        steps_of({"w": np.array([[1, np.nan]], dtype=np.float32)}, "this")
