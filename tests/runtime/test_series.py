from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.codebooks import SpectralCodebook
from circlet.codebooks.fourier import make_series
from circlet.runtime import codebooks as module
from circlet.runtime.codebooks import CODEBOOKS


def pair(n_labels: int, dim: int, seed: int = 0, length: int | None = None):
    """The same series as torch has it and without."""
    book = SpectralCodebook(n_labels, dim, seed, length=length)
    torch_series = make_series(book.frequencies, book.slots, book.length, n_labels, torch.device("cpu"))
    return torch_series, CODEBOOKS["spectral"](**book.state()).series


def phasors(n: int, dim: int) -> np.ndarray:
    return np.random.default_rng(n + dim).standard_normal((n, 2 * dim)).astype(np.float32)


@settings(max_examples=30)
@given(
    n_labels=st.integers(1, 400),
    dim=st.integers(1, 60),
    seed=st.integers(0, 2**40),
    longest=st.sampled_from([1 << 14, 64, 32]),
    n=st.integers(1, 4),
)
def test_like_torch(n_labels, dim, seed, longest, n):
    with pytest.MonkeyPatch.context() as patch:
        for target in ("circlet.codebooks.fourier", "circlet.runtime.codebooks"):
            patch.setattr(f"{target}.LONGEST", longest)
            patch.setattr(f"{target}.SHORTEST", longest // 4)
        expected, found = pair(n_labels, dim, seed)
    assert (found.parts, found.part) == (expected.parts, expected.part)
    np.testing.assert_array_equal(found.labels, expected.labels.numpy())
    np.testing.assert_array_equal(found.labels[found.places], np.arange(n_labels))
    given_phasors = phasors(n, dim)
    values = expected(torch.from_numpy(given_phasors), expected.room(n)).numpy()
    coefficients = found.coefficients(given_phasors)
    np.testing.assert_allclose(found.values(coefficients), values, atol=2e-6)
    for first in range(0, found.parts, 3):
        last = min(first + 3, found.parts)
        here = slice(first * found.part, last * found.part)
        np.testing.assert_allclose(found.values(coefficients, first, last), values[:, here], atol=2e-6)


def test_by_the_definition():
    _, series = pair(50, 7)
    book = SpectralCodebook(50, 7)
    packed = phasors(3, 7)
    expected = packed @ book.codes(torch.arange(50)).numpy().T / 7
    np.testing.assert_allclose(series.values(series.coefficients(packed))[:, series.places], expected, atol=1e-6)


def test_nothing_is_left_of_earlier_predictions(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 64)
    monkeypatch.setattr(module, "SHORTEST", 16)
    series = CODEBOOKS["spectral"](300, 40, length=768).series
    assert series.parts > 1
    assert len(series._layers) > 1  # some coefficients share a place
    first, second = (series.coefficients(phasors(n, 40)) for n in (3, 5))
    expected = series.values(second[:2]).copy()
    series.values(first)
    np.testing.assert_array_equal(series.values(second[:2]), expected)


def test_spread():
    _, series = pair(9, 3)
    spread = series.spread(np.arange(9, dtype=np.float32))
    assert spread[series.places].tolist() == list(range(9))
    assert (spread == -np.inf).sum() == series.length - 9


def test_each_thread_has_a_buffer():
    _, series = pair(2000, 40)
    given_phasors = [series.coefficients(phasors(n, 40)) for n in range(1, 9)]
    expected = [series.values(each) for each in given_phasors]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for found, wanted in zip(pool.map(series.values, given_phasors), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("short", [0, 1 << 11])
def test_a_short_transform(short, monkeypatch):
    monkeypatch.setattr(module, "SHORT", short)
    _, series = pair(50, 7)
    together = series.values(series.coefficients(phasors(2, 7)))
    alone = series.values(series.coefficients(phasors(2, 7)[:1]))
    assert alone.dtype == np.float32
    np.testing.assert_allclose(alone, together[:1], atol=1e-6)
