from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from circlet.hashing import _mixed, permuted, uniform


def lowbias32(x: int) -> int:
    """The published hash, in numbers that never overflow."""
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


class TestUniform:
    @pytest.mark.parametrize("seed", [0, 7])
    def test_pinned_numbers(self, seed, pinned):
        numbers = uniform(seed, torch.tensor([0, 1, 2, 2**40]), 4) * 2**24
        assert numbers.long().tolist() == pinned[seed]

    def test_numbers_are_below_one_on_a_grid_that_float32_holds(self):
        numbers = uniform(0, torch.arange(10_000), 20)
        assert numbers.shape == (10_000, 20)
        assert numbers.dtype == torch.float32
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert torch.equal(numbers * 2**24, (numbers * 2**24).round())

    @given(
        ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8),
        n=st.integers(1, 12),
        seed=st.integers(0, 2**70),
    )
    @settings(max_examples=50)
    def test_an_entry_follows_from_its_position_alone(self, ids, n, seed):
        numbers = uniform(seed, torch.tensor(ids), n)
        assert torch.equal(numbers, uniform(seed, torch.tensor(ids), n + 5)[:, :n])
        for i, label in enumerate(ids):
            assert torch.equal(numbers[i : i + 1], uniform(seed, torch.tensor([label]), n))
        # A model is trained with tensors and used with arrays: both have to have the same codes.
        found = uniform(seed, np.array(ids), n)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, numbers.numpy())

    @pytest.mark.parametrize(
        "other",
        [
            lambda ids: uniform(1, ids, 16),
            lambda ids: uniform(2**32, ids, 16),
            lambda ids: uniform(0, ids + 1, 16),
            lambda ids: uniform(0, ids + 2**32, 16),
            lambda ids: uniform(0, -1 - ids, 16),
            lambda ids: uniform(0, ids, 17)[:, 1:],
            lambda ids: uniform(0, ids, 16).flip(1),
        ],
        ids=["seed", "large seed", "neighbors", "high bits", "negative ids", "next column", "mirrored column"],
    )
    def test_numbers_of_other_positions_are_unrelated(self, other):
        ids = torch.arange(5000)
        pairs = torch.stack([uniform(0, ids, 16).flatten(), other(ids).flatten()])
        # 80,000 pairs: a standard error of 0.0035.
        assert abs(torch.corrcoef(pairs.double())[0, 1]) < 0.015


class TestPermuted:
    @given(size=st.integers(1, 3000), seed=st.integers(0, 2**64), stream=st.integers(0, 5))
    @settings(max_examples=50)
    @example(size=1, seed=0, stream=1)
    @example(size=2, seed=0, stream=1)
    @example(size=256, seed=0, stream=1)
    @example(size=257, seed=0, stream=1)
    def test_it_is_a_permutation(self, size, seed, stream):
        every = permuted(torch.arange(size), size, seed, stream=stream)
        assert torch.equal(every.sort().values, torch.arange(size))
        some = torch.tensor([size - 1, 0, size // 2])
        assert torch.equal(permuted(some, size, seed, stream=stream), every[some])

    @pytest.mark.parametrize("size", [2**30, 2**30 + 1, 2**40 + 1])
    def test_large_sizes(self, size):
        x = torch.cat([torch.arange(1000), torch.arange(size - 1000, size)])
        values = permuted(x, size, 0, stream=1)
        assert len(values.unique()) == 2000
        assert values.min() >= 0
        assert values.max() < size

    def test_seeds_and_streams_differ(self):
        x = torch.arange(1000)
        first = permuted(x, 1000, 0, stream=1)
        for other in (permuted(x, 1000, 1, stream=1), permuted(x, 1000, 0, stream=2), x):
            # Two random permutations agree in one place on average.
            assert (first == other).sum() < 8

    def test_progressions_do_not_stay_progressions(self):
        slots = permuted(torch.arange(1080), 1080, 0, stream=2)
        for step in (1, 2, 7, 108):
            differences = (slots[step:] - slots[:-step]) % 1080
            # 1 − 1/e of all differences occur in random permutations.
            assert 0.55 < len(differences.unique()) / len(differences) < 0.72

    @given(size=st.integers(1, 2**40), seed=st.integers(0, 2**64), stream=st.integers(0, 5))
    def test_arrays_have_the_same_as_tensors(self, size, seed, stream):
        x = np.unique(np.array([0, size // 3, size // 2, size - 1]))
        before = x.copy()
        found = permuted(x, size, seed, stream=stream)
        np.testing.assert_array_equal(found, permuted(torch.from_numpy(x), size, seed, stream=stream).numpy())
        np.testing.assert_array_equal(x, before)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_the_hash_is_the_published_one(numbers):
    for found in (_mixed(torch.tensor(numbers)), _mixed(np.array(numbers))):
        assert found.tolist() == [lowbias32(number) for number in numbers]
