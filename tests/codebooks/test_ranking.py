"""The best labels of a codebook: a sort of all scores, whatever the library, the batch and the budget."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codebooks.conftest import GIVEN, predictions

from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook, base, series
from circlet.codebooks.series import Series
from circlet.errors import DTypeError, ParameterError, ShapeError
from circlet.scoring import ranking
from circlet.scoring.ranking import PER_SCORE, of_rows

BOOKS = (SpectralCodebook, IndependentCodebook, HolographicCodebook)
books, kinds = st.sampled_from(BOOKS), st.sampled_from(list(GIVEN.values()))


def same(outputs):
    return outputs


def top_k(scores, outputs, n_labels, k, **options):
    """Of a codebook, or of a function that gives the scores of all labels."""
    if isinstance(scores, Codebook):
        return scores.top_k(outputs, k, **options)
    find = lambda k, mask, budget: of_rows(scores, outputs, PER_SCORE * n_labels, None, mask, k, budget)  # noqa: E731
    return ranking.top_k(find, outputs, n_labels, k, **options)


def in_parts(find, outputs, size):
    """Ids and scores that are found for `size` outputs at a time."""
    found = [find(outputs[start : start + size]) for start in range(0, len(outputs), size)]
    return [np.concatenate([np.asarray(each) for each in parts]) for parts in zip(*found, strict=True)]


def ranked(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("make", BOOKS)
class TestWithCodebooks:
    @pytest.mark.parametrize(("n_labels", "dim", "stored"), [(300, 400, [7, 299, 0]), (1, 8, [0])])
    def test_stored_labels_come_back(self, make, given_as, n_labels, dim, stored):
        book = make(n_labels, dim, seed=1)
        ids, scores = book.top_k(book.codes(given_as(np.array(stored))), 2)
        assert ids.shape == scores.shape == (len(stored), min(2, n_labels))
        assert ids[:, 0].tolist() == stored
        np.testing.assert_allclose(scores[:, 0], np.ones(len(stored)), rtol=1e-5)
        assert type(ids) is type(scores) is type(given_as(np.zeros(1)))
        ids, scores = book.top_k(given_as(np.zeros((0, book.width), dtype=np.float32)), 40)
        assert ids.shape == scores.shape == (0, min(40, n_labels))
        assert np.asarray(ids).dtype == np.int64
        assert np.asarray(scores).dtype == np.float32

    def test_more_labels_later(self, make, given_as):
        book = make(20, 8, **({"length": 60} if make is SpectralCodebook else {}))
        book.top_k(given_as(predictions(book, 1).numpy()), 3)
        book.grow(50)
        assert book.top_k(book.codes(given_as(np.array([44]))), 1)[0].item() == 44

    def test_outputs_that_require_gradients(self, make):
        book = make(30, 8)
        bias = torch.zeros(30, requires_grad=True)
        assert not book.top_k(predictions(book, 2).requires_grad_(), 4, bias=bias)[1].requires_grad


SAME_FIXTURES = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]


@settings(max_examples=2 * settings.default.max_examples, suppress_health_check=SAME_FIXTURES)
@given(
    make=books,
    cache=st.booleans(),
    n_labels=st.integers(1, 90),
    dim=st.integers(1, 30),
    seed=st.integers(0, 2**40),
    k=st.integers(1, 20),
    n=st.integers(1, 5),
    biased=st.booleans(),
    masked=st.booleans(),
)
def test_is_a_sort_of_all_scores(make, cache, n_labels, dim, seed, k, n, biased, masked):
    """Also by the plain way, which compares with every code, and the same for arrays and tensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "LABELS", 16)
        patch.setattr(base, "BLOCK", 64)
        book, k = make(n_labels, dim, seed, cache=cache), min(k, n_labels)
        predicted = predictions(book, n).numpy()
        random = np.random.default_rng(seed)
        bias = random.standard_normal(n_labels).astype(np.float32) if biased else None
        allowed = random.random(n_labels) < 0.6 if masked else None
        own = book.scores(predicted) + (0 if bias is None else bias)
        expected = np.where(True if allowed is None else allowed, own, -np.inf)
        best = np.take_along_axis(expected, ranked(expected, k), axis=1)
        for as_given in GIVEN.values():
            given = [None if each is None else as_given(each) for each in (predicted, bias, allowed)]
            plain = Codebook._best(book, *given, k, 1 << 26)
            for found in (book.top_k(given[0], k, bias=given[1], allowed=given[2]), *plain):
                ids, scores = map(np.asarray, found)
                np.testing.assert_allclose(scores, best, atol=3e-6)
                np.testing.assert_array_equal(ids < 0, best == -np.inf)
                again = np.take_along_axis(own, np.maximum(ids, 0), axis=1)
                np.testing.assert_allclose(again[ids >= 0], scores[ids >= 0], atol=3e-6)


@pytest.fixture
def short_parts(monkeypatch):
    """Split even short transforms, and leave none to NumPy, whose last digits differ."""
    monkeypatch.setattr(Series.__init__, "__defaults__", (0,))
    monkeypatch.setattr(series, "LONGEST", 40)
    monkeypatch.setattr(series, "SHORTEST", 4)


@pytest.mark.usefixtures("short_parts")
class TestSameWhateverTheBudget:
    @given(
        make=books,
        kind=kinds,
        biased=st.booleans(),
        n_labels=st.integers(1, 500),
        dim=st.integers(1, 40),
        rows=st.integers(1, 40),
        k=st.integers(1, 20),
        part=st.integers(1, 40),
        memory=st.sampled_from([1, 10_000, 100_000, 1 << 40]),
        masked=st.booleans(),
    )
    @settings(suppress_health_check=SAME_FIXTURES)
    def test_ids_and_scores_to_the_bit(self, make, kind, biased, n_labels, dim, rows, k, part, memory, masked):
        book = make(n_labels, dim, seed=dim)
        # Few different values: many labels are equal where nothing is predicted.
        bias = np.random.default_rng(0).integers(-2, 2, n_labels).astype(np.float32)
        outputs, allowed = kind(predictions(book, rows).numpy()), kind(np.arange(n_labels) % 3 > 0)
        options = {"bias": kind(bias) if biased else None, "allowed": allowed if masked else None}
        expected = book.top_k(outputs, k, **options)
        found = in_parts(lambda some: book.top_k(some, k, memory=memory, **options), outputs, part)
        assert all(map(np.array_equal, found, expected))

    @pytest.mark.parametrize(
        ("make", "n_labels", "dim"),
        [(SpectralCodebook, 40_000, 300), (SpectralCodebook, 9_000, 800), (IndependentCodebook, 6_000, 100)],
    )
    def test_many_labels(self, monkeypatch, given_as, make, n_labels, dim):
        monkeypatch.undo()
        book = make(n_labels, dim)
        outputs = given_as(predictions(book, 21).numpy())
        expected = book.top_k(outputs, 10)
        for size, memory in ((1, None), (4, 1), (21, 3_000_000)):
            found = in_parts(lambda some, memory=memory: book.top_k(some, 10, memory=memory), outputs, size)
            assert all(map(np.array_equal, found, expected))

    def test_a_function(self, given_as):
        scores = given_as(np.random.default_rng(0).integers(0, 9, (13, 50)).astype(np.float32))
        sizes = []

        def logits(part):
            sizes.append(len(part))
            return part

        expected = top_k(same, scores, 50, 7)
        for memory, taken in ((1, [1] * 13), (20 * 50 * 6, [6, 6, 1]), (1 << 30, [13])):
            sizes.clear()
            found = top_k(logits, scores, 50, 7, memory=memory)
            assert sizes == taken
            assert all(map(np.array_equal, found, expected))


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("make", BOOKS)
def test_nothing_is_predicted(make, given_as):
    """A document without a known word may have an output of zeros. Then the bias ranks, and ids among equals."""
    book = make(200, 16)
    nothing = given_as(np.zeros((2, book.width), dtype=np.float32))
    ids, scores = book.top_k(nothing, 5)
    assert ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert scores.tolist() == [[0.0] * 5] * 2
    bias = np.random.default_rng(0).integers(-2, 2, 200).astype(np.float32)
    given = given_as(bias.copy())
    for _ in range(2):
        ids, scores = book.top_k(nothing, 70, bias=given)
        np.testing.assert_array_equal(ids, ranked(np.tile(bias, (2, 1)), 70))
        np.testing.assert_array_equal(scores, bias[np.asarray(ids)])
        # Also after its values have changed in place.
        bias = np.roll(bias, 3)
        given[:] = given_as(bias)
    assert book.top_k(nothing, 2)[0].tolist() == [[0, 1]] * 2


@pytest.mark.parametrize("make", [*BOOKS, None])
def test_no_label_is_allowed(make, given_as):
    book = same if make is None else make(60, 30)
    outputs = given_as((torch.ones(4, 60) if make is None else predictions(book, 4)).numpy())
    ids, scores = top_k(book, outputs, 60, 3, allowed=given_as(np.zeros(60, dtype=bool)))
    assert ids.tolist() == [[-1] * 3] * 4
    assert scores.tolist() == [[-np.inf] * 3] * 4


def test_low_scores_and_masked_labels_are_left_out(given_as):
    outputs = given_as(np.array([[1.0, 3.0, 2.0], [0.0, 0.5, 1.5]], dtype=np.float32))
    ids, scores = top_k(same, outputs, 3, 2, threshold=1.5)
    assert ids.tolist() == [[1, 2], [2, -1]]
    assert scores.tolist() == [[3.0, 2.0], [1.5, -np.inf]]
    allowed = given_as(np.array([True, False, True]))
    assert top_k(same, outputs[:1], 3, 3, allowed=allowed, threshold=-5)[0].tolist() == [[2, 0, -1]]
    assert top_k(same, outputs[:0], 3, 2, allowed=allowed, threshold=0)[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("error", "name", "values", "message"),
    [
        (ParameterError, "memory", [0, -1, 1.5, "64M", True], "found .*; wanted a number of bytes, at least 1"),
        (ParameterError, "threshold", [float("nan"), "high", True], "found .*; wanted a number"),
        (DTypeError, "allowed", [torch.tensor([0, 2, 1])], "found torch.int64; wanted an array or tensor of bool"),
        (DTypeError, "allowed", [np.ones(3)], "found float64; wanted an array or tensor of bool"),
        (DTypeError, "allowed", [[True] * 3], "found list; wanted an array or tensor of bool"),
        (
            ShapeError,
            "allowed",
            [np.ones(2, dtype=bool), torch.ones(2, dtype=torch.bool)],
            r"found shape \(2,\); wanted \(3,\), one for each label",
        ),
    ],
)
def test_mistakes(error, name, values, message):
    for value in values:
        with pytest.raises(error, match=f"`{name}`: {message}"):
            top_k(same, torch.zeros(1, 3), 3, 2, **{name: value})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("make", BOOKS)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("n_labels", "k"), [(40_000, 10), (40_000, 300), (300, 500), (1, 2)])
def test_a_gpu_ranks_as_a_cpu_does(make, biased, n_labels, k):
    book, allowed = make(n_labels, 100), torch.arange(n_labels) % 5 > 0
    outputs, bias = predictions(book, 20), (torch.arange(n_labels) % 7 / 7 if biased else None)
    ids, scores = book.top_k(outputs, k, bias=bias, allowed=allowed)
    for memory in (None, 1 << 22):
        found, close = book.top_k(outputs.cuda(), k, bias=bias, allowed=allowed, memory=memory)
        torch.testing.assert_close(close.cpu(), scores, atol=1e-5, rtol=1e-5)
        # Labels may change places only where scores differ by no more than rounding does.
        apart = ((scores.diff(dim=1) < -1e-4) | (scores[:, 1:] == -torch.inf)).all(dim=1)
        assert torch.equal(found.cpu()[apart], ids[apart])
    assert book.top_k(outputs[:0].cuda(), k)[0].shape == (0, min(k, n_labels))


def most_held(run: Callable[[], object], tmp_path: Path) -> int:
    """The most bytes of tensors and arrays held at once, as torch and NumPy count them."""
    tracemalloc.start()
    run()
    of_arrays = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    return of_arrays + max(accumulate(change for _, change in changes), default=0)


@pytest.mark.parametrize(
    ("make", "n_labels", "rows", "small"),
    [(SpectralCodebook, 30_000, 64, 1 << 20), (IndependentCodebook, 10_000, 256, 4 << 20)],
)
def test_the_budget_is_kept(make, n_labels, rows, small, given_as, tmp_path):
    book = make(n_labels, 64)
    outputs = given_as(predictions(book, rows).numpy())
    book.top_k(outputs[:1], 10)  # makes the tables
    beside = 4 * book.width * 2 * base.LABELS if make is IndependentCodebook else 0  # codes come in blocks

    def most(memory: int) -> int:
        return most_held(lambda: book.top_k(outputs, 10, memory=memory), tmp_path)

    held, more = most(small), most(64 << 20)
    assert held < small + beside
    # The measurement notices a larger budget.
    assert small + beside < more < (64 << 20) + beside
