from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet import codebooks as torch_codebooks
from circlet.codebooks import HolographicCodebook, SpectralCodebook
from circlet.codebooks.fourier import make_series
from circlet.errors import ParameterError
from circlet.runtime import codebooks as module
from circlet.runtime.codebooks import CODEBOOKS

BOOKS = list(CODEBOOKS)


def pair(name: str, n_labels: int, dim: int, seed: int = 0):
    book = torch_codebooks.CODEBOOKS[name](n_labels, dim, seed)
    return book, CODEBOOKS[name](**book.state())


def predictions(book, n: int) -> np.ndarray:
    random = np.random.default_rng(n).standard_normal((n, book.width)).astype(np.float32)
    return random / np.linalg.norm(random, axis=1, keepdims=True) * np.float32(np.sqrt(book.width / 2))


def together(found) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


@pytest.mark.parametrize("name", BOOKS)
def test_names(name):
    expected, book = pair(name, 9, 4, 7)
    assert repr(book) == repr(expected)
    assert book.width == expected.width
    assert float(book.scale) == pytest.approx(expected.scale)


def test_the_same_names_as_with_torch():
    assert set(CODEBOOKS) == set(torch_codebooks.CODEBOOKS)


@pytest.mark.parametrize("name", [name for name in BOOKS if name != "spectral"])
@pytest.mark.parametrize("dim", [1, 8, 9])
def test_codes(name, dim):
    expected, book = pair(name, 40, dim, 3)
    ids = np.array([3, 0, 39, 3])
    np.testing.assert_allclose(book.codes(ids), expected.codes(torch.from_numpy(ids)).numpy(), atol=1e-6)


@settings(max_examples=40)
@given(
    name=st.sampled_from(BOOKS),
    n_labels=st.integers(1, 90),
    dim=st.integers(1, 30),
    seed=st.integers(0, 2**40),
    k=st.integers(1, 20),
    n=st.integers(1, 5),
    table=st.booleans(),
    biased=st.booleans(),
    masked=st.booleans(),
)
def test_like_torch(name, n_labels, dim, seed, k, n, table, biased, masked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TABLE_LIMIT", 1 << 26 if table else 0)
        patch.setattr(module, "LABELS", 16)
        patch.setattr(module, "BLOCK", 64)
        expected, book = pair(name, n_labels, dim, seed)
        predicted, k = predictions(book, n), min(k, n_labels)
        random = np.random.default_rng(seed)
        bias = random.standard_normal(n_labels).astype(np.float32) if biased else None
        allowed = random.random(n_labels) < 0.6 if masked else None
        np.testing.assert_allclose(
            book.scores(predicted), expected.scores(torch.from_numpy(predicted)).numpy(), atol=3e-6
        )
        ids, scores = together(book.best(predicted, k, book.offsets(bias), allowed, 1 << 26))
    wanted_ids, wanted = expected.top_k(
        torch.from_numpy(predicted),
        k,
        bias=None if bias is None else torch.from_numpy(bias),
        allowed=None if allowed is None else torch.from_numpy(allowed),
    )
    np.testing.assert_allclose(scores, wanted.numpy(), atol=3e-6)
    np.testing.assert_array_equal(ids < 0, wanted_ids.numpy() < 0)
    own = expected.scores(torch.from_numpy(predicted)).numpy() + (0 if bias is None else bias)
    np.testing.assert_allclose(np.take_along_axis(own, np.maximum(ids, 0), axis=1)[ids >= 0], scores[ids >= 0],
                               atol=3e-6)  # fmt: skip


@pytest.mark.parametrize("k", [1, 10, 900])
def test_parts_are_ranked_one_after_the_other(k, monkeypatch):
    monkeypatch.setattr("circlet.runtime.codebooks.VALUES", 3000)
    monkeypatch.setattr("circlet.runtime.codebooks.LONGEST", 1 << 14)
    expected, book = pair("spectral", 60_000, 40)
    assert book.series.parts > 2 * book.series.parts_at_a_time
    predicted = predictions(book, 3)
    bias = np.random.default_rng(0).integers(0, 3, 60_000).astype(np.float32) / 8
    ids, scores = together(book.best(predicted, k, book.offsets(bias), None, 1 << 26))
    wanted_ids, wanted = expected.top_k(torch.from_numpy(predicted), k, bias=torch.from_numpy(bias))
    np.testing.assert_allclose(scores, wanted.numpy(), atol=1e-6)
    assert (ids == wanted_ids.numpy()).mean() > 0.99
    nothing = np.zeros((1, 80), dtype=np.float32)  # all labels are equal, and the lowest ids come first
    assert together(book.best(nothing, k, book.offsets(None), None, 1 << 26))[0].tolist() == [list(range(k))]
    few = np.zeros(60_000, dtype=bool)
    few[[5, 59_999]] = True
    ids, scores = together(book.best(predicted, 3, book.offsets(None), few, 1 << 26))
    assert [set(row) for row in ids.tolist()] == [{5, 59_999, -1}] * 3
    assert (scores[:, 2] == -np.inf).all()


def test_plain_holographic_codes_are_compared_by_their_cosine():
    expected = HolographicCodebook(12, 9, projected=False)
    book = CODEBOOKS["holographic"](**expected.state())
    np.testing.assert_allclose(np.linalg.norm(book.codes(np.arange(12)), axis=1), 1, rtol=1e-6)
    predicted = predictions(book, 3)
    np.testing.assert_allclose(
        book.scores(predicted), expected.scores(torch.from_numpy(predicted)).numpy(), atol=1e-6
    )


@pytest.mark.parametrize("name", BOOKS)
def test_scores_are_products_with_codes(name):
    _, book = pair(name, 23, 16, seed=3)
    predicted = predictions(book, 4)
    codes = book.codes(np.arange(23))
    assert codes.dtype == np.float32
    np.testing.assert_allclose(book.scores(predicted), book.scale * predicted @ codes.T, atol=1e-5)
    np.testing.assert_array_equal(book.codes(np.array([7, 2])), codes[[7, 2]])


@pytest.mark.parametrize("length", [35, 32, 22, 33])
def test_lengths(length):
    with pytest.raises(ParameterError, match="`length` must be an even number >= 34"):
        CODEBOOKS["spectral"](23, 16, length=length)


def pair_of_series(n_labels: int, dim: int, seed: int = 0, length: int | None = None):
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
def test_like_torch_of_series(n_labels, dim, seed, longest, n):
    with pytest.MonkeyPatch.context() as patch:
        for target in ("circlet.codebooks.fourier", "circlet.runtime.codebooks"):
            patch.setattr(f"{target}.LONGEST", longest)
            patch.setattr(f"{target}.SHORTEST", longest // 4)
        expected, found = pair_of_series(n_labels, dim, seed)
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
    _, series = pair_of_series(9, 3)
    spread = series.spread(np.arange(9, dtype=np.float32))
    assert spread[series.places].tolist() == list(range(9))
    assert (spread == -np.inf).sum() == series.length - 9


def test_each_thread_has_a_buffer():
    _, series = pair_of_series(2000, 40)
    given_phasors = [series.coefficients(phasors(n, 40)) for n in range(1, 9)]
    expected = [series.values(each) for each in given_phasors]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for found, wanted in zip(pool.map(series.values, given_phasors), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("short", [0, 1 << 11])
def test_a_short_transform(short, monkeypatch):
    monkeypatch.setattr(module, "SHORT", short)
    _, series = pair_of_series(50, 7)
    together = series.values(series.coefficients(phasors(2, 7)))
    alone = series.values(series.coefficients(phasors(2, 7)[:1]))
    assert alone.dtype == np.float32
    np.testing.assert_allclose(alone, together[:1], atol=1e-6)
