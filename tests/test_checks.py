from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from circlet.checks import check_ranking, is_integer, is_real
from circlet.errors import DTypeError, ParameterError, ShapeError

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


class TestRanking:
    @pytest.mark.parametrize("mask", [None, np.ones(3, dtype=bool), torch.ones(3, dtype=torch.bool)])
    def test_valid(self, mask):
        check_ranking(3, None, mask, None)
        check_ranking(3, 1, mask, -2.5)

    @pytest.mark.parametrize("memory", [0, 1.5, "64M", True])
    def test_memory(self, memory):
        with pytest.raises(ParameterError, match="`memory` must be a number of bytes, at least 1, got"):
            check_ranking(3, memory, None, None)

    @pytest.mark.parametrize("threshold", [math.nan, "high", True])
    def test_threshold(self, threshold):
        with pytest.raises(ParameterError, match="`threshold` must be a number, got"):
            check_ranking(3, None, None, threshold)

    def test_allowed(self):
        for mask, found in ((np.ones(3), "float64"), (torch.ones(3), "torch.float32"), ([True] * 3, "list")):
            with pytest.raises(DTypeError, match=f"`allowed` must be an array or tensor of bool, got {found}"):
                check_ranking(3, None, mask, None)
        for mask in (np.ones(2, dtype=bool), torch.ones(2, dtype=torch.bool)):
            with pytest.raises(ShapeError, match=r"`allowed` must have shape \(3,\), .* got \(2,\)"):
                check_ranking(3, None, mask, None)
