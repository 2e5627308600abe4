from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from circlet.checks import is_integer, is_real

INTEGERS = [0, -3, 10**400, np.int8(3), np.uint64(2**63)]
NO_INTEGERS = [True, False, np.True_, 1.0, np.float32(2), "1", None, [1], np.array([1])]
REALS = [*INTEGERS, 0.5, np.float16(0.5), np.float32(-1), np.float64(2), Fraction(1, 3)]
NO_REALS = [True, np.False_, math.nan, math.inf, -np.inf, np.float32("nan"), 1j, "0.5", None, np.array([0.5])]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers(value):
    assert is_integer(value) is True
    assert is_integer(value, int(value)) is True
    assert is_integer(value, int(value) + 1) is False


@pytest.mark.parametrize("value", NO_INTEGERS)
def test_no_integers(value):
    assert is_integer(value) is False
    assert is_integer(value, 0) is False


@pytest.mark.parametrize("value", REALS)
def test_real_numbers(value):
    assert is_real(value) is True


@pytest.mark.parametrize("value", NO_REALS)
def test_no_real_numbers(value):
    assert is_real(value) is False
