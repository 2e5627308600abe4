"""Series on a CPU: against their definition, and split into short transforms."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.codebooks import SpectralCodebook
from circlet.codebooks import series as module
from circlet.codebooks.series import Series


def series_of(n_labels: int, dim: int, seed: int = 0, length: int | None = None) -> Series:
    return SpectralCodebook(n_labels, dim, seed, length=length).series_on(None)


def phasors(n: int, dim: int) -> np.ndarray:
    return np.random.default_rng(n + dim).standard_normal((n, 2 * dim)).astype(np.float32)


def defined(packed: np.ndarray, frequencies: np.ndarray, length: int) -> np.ndarray:
    """Σ_j cos(2π f_j n / M − θ_j) / d at every slot, in float64."""
    angles = np.outer(np.arange(length), frequencies) % length * (2 * math.pi / length)
    return packed.astype(np.float64) @ np.hstack([np.cos(angles), np.sin(angles)]).T / len(frequencies)


@settings(max_examples=60)
@given(
    n_labels=st.integers(1, 400),
    dim=st.integers(1, 60),
    seed=st.integers(0, 2**40),
    longest=st.sampled_from([1 << 14, 64, 32]),
    n=st.integers(1, 4),
)
def test_is_the_definition(n_labels, dim, seed, longest, n):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", longest)
        patch.setattr(module, "SHORTEST", longest // 4)
        book = SpectralCodebook(n_labels, dim, seed)
        series = book.series_on(None)
    np.testing.assert_array_equal(series.labels[series.places], np.arange(n_labels))
    assert (series.labels == n_labels).sum() == series.length - n_labels
    packed = phasors(n, dim)
    expected = defined(packed, book.frequencies, book.length)[:, book.slots(np.arange(n_labels))]
    coefficients = series.coefficients(packed)
    values = series.values(coefficients)
    np.testing.assert_allclose(values[:, series.places], expected, atol=5e-6)
    np.testing.assert_array_equal(series.scores(packed), values[:, series.places])
    for first in range(0, series.parts, 3):
        last = min(first + 3, series.parts)
        here = slice(first * series.part, last * series.part)
        np.testing.assert_allclose(series.values(coefficients, first, last), values[:, here], atol=2e-6)


def test_coefficients_that_all_meet_at_one_place_of_the_transforms():
    frequencies = np.array([1, 5001, 10_001, 15_001])
    series = Series(frequencies, lambda ids: (ids + 3) % 40_000, 40_000, 39_997)
    assert series.parts == 2
    expected = defined(phasors(2, 4), frequencies, 40_000)
    np.testing.assert_allclose(series.scores(phasors(2, 4)), expected[:, 3:], atol=1e-5)


@pytest.mark.parametrize("k", [1, 10, 900])
def test_parts_are_ranked_one_after_the_other(k, monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 1 << 14)
    book = SpectralCodebook(60_000, 40)
    predicted = phasors(3, 40)
    bias = np.random.default_rng(0).integers(0, 3, 60_000).astype(np.float32) / 8
    together = book.top_k(predicted, k, bias=bias)
    monkeypatch.setattr(module, "VALUES", 3000)
    assert book.series_on(None).parts > 2
    for found, expected in zip(book.top_k(predicted, k, bias=bias), together, strict=True):
        np.testing.assert_array_equal(found, expected)
    nothing = np.zeros((1, 80), dtype=np.float32)  # all labels are equal, and the lowest ids come first
    assert book.top_k(nothing, k)[0].tolist() == [list(range(k))]
    few = np.zeros(60_000, dtype=bool)
    few[[5, 59_999]] = True
    ids, scores = book.top_k(predicted, 3, allowed=few)
    assert [set(row) for row in ids.tolist()] == [{5, 59_999, -1}] * 3
    assert (scores[:, 2] == -np.inf).all()


def test_nothing_is_left_of_earlier_predictions(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 64)
    monkeypatch.setattr(module, "SHORTEST", 16)
    series = series_of(300, 40, length=768)
    assert series.parts > 1
    assert len(series._layers) > 1  # some coefficients share a place
    first, second = (series.coefficients(phasors(n, 40)) for n in (3, 5))
    expected = series.values(second[:2]).copy()
    series.values(first)
    np.testing.assert_array_equal(series.values(second[:2]), expected)


def test_each_thread_has_a_buffer():
    series = series_of(2000, 40)
    coefficients = [series.coefficients(phasors(n, 40)) for n in range(1, 9)]
    expected = [series.values(each) for each in coefficients]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for found, wanted in zip(pool.map(series.values, coefficients), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("short", [0, 1 << 11])
def test_a_short_transform(short):
    book = SpectralCodebook(50, 7)
    series = Series(book.frequencies, book.slots, book.length, 50, short)
    together = series.values(series.coefficients(phasors(2, 7)))
    alone = series.values(series.coefficients(phasors(2, 7)[:1]))
    assert alone.dtype == np.float32
    np.testing.assert_allclose(alone, together[:1], atol=1e-6)
