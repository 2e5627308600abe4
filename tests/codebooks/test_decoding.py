from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.codebooks.conftest import predictions

from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook, fourier
from circlet.codebooks import decoding as decode
from circlet.codebooks.fourier import Series
from circlet.errors import DTypeError, ParameterError, ShapeError
from circlet.network.losses import LOSSES
from circlet.network.scorer import Scorer

BOOKS = (SpectralCodebook, IndependentCodebook, HolographicCodebook)

# Few different values, so that most rows have ties, some of them at the last place.
scores_with_ties = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=st.integers(-2, 2).map(float)
)


def same(outputs: torch.Tensor) -> torch.Tensor:
    return outputs


def top_k(scorer, outputs, n_labels, k, **options):
    """Of a codebook, a scorer, or a function that gives the scores of all labels."""
    if isinstance(scorer, (Codebook, Scorer)):
        return scorer.top_k(outputs, k, **options)
    allowed = options.get("allowed")
    return decode.top_k(
        lambda k, budget: decode.of_rows(scorer, outputs, decode.PER_SCORE * n_labels, allowed, k, budget),
        outputs,
        n_labels,
        k,
        **options,
    )


def ranked(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def check(scores: np.ndarray, k: int) -> None:
    ids, values = top_k(same, torch.from_numpy(scores), scores.shape[1], k)
    np.testing.assert_array_equal(ids.numpy(), ranked(scores, k))
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(scores, ids.numpy(), axis=1))


class TestTopK:
    @given(scores=scores_with_ties, k=st.integers(1, 15))
    @settings(max_examples=3 * settings.default.max_examples)
    def test_is_a_stable_sort_of_all_scores(self, scores, k):
        check(scores, k)

    @pytest.mark.parametrize("k", [1, 5, 50])
    def test_many_ties_in_wide_rows(self, k):
        # Wide enough for torch's other algorithms and for groups, the last of which is incomplete.
        for width in (5000, 50 * 256 * 4 + 77):
            check(np.random.default_rng(0).integers(0, 4, (3, width)).astype(np.float32), k)

    @pytest.mark.parametrize("k", [1, 10, 700])
    @pytest.mark.parametrize("width", [700, 256 * 40, 256 * 50 + 3])
    def test_scores_that_differ(self, k, width):
        check(np.random.default_rng(0).standard_normal((20, width), dtype=np.float32), k)

    def test_the_best_are_in_the_last_group(self):
        scores = np.zeros((2, 256 * 40 + 9), dtype=np.float32)
        scores[:, -3:] = [3, 1, 2]
        check(scores, 4)

    def test_equal_scores_across_groups(self):
        scores = np.zeros((2, 256 * 40), dtype=np.float32)
        scores[0, ::300] = 1
        scores[1, [9000, 17]] = 2
        check(scores, 5)

    def test_infinite_scores(self):
        outputs = torch.tensor([[0, -np.inf, np.inf, np.inf, -np.inf]])
        ids, values = top_k(same, outputs, 5, 4)
        assert ids.tolist() == [[2, 3, 0, -1]]
        assert values.tolist() == [[np.inf, np.inf, 0, -np.inf]]

    @pytest.mark.parametrize("k", [2, 9])
    def test_no_predictions(self, k):
        ids, scores = top_k(same, torch.zeros(0, 5), 5, k)
        assert ids.shape == scores.shape == (0, min(k, 5))
        assert ids.dtype == torch.int64
        assert scores.dtype == torch.float32


@pytest.mark.parametrize("make", BOOKS)
class TestWithCodebooks:
    def test_stored_labels_come_back(self, make):
        book = make(300, 400, seed=1)
        ids, scores = top_k(book, book.codes(torch.tensor([7, 299, 0])), 300, 2)
        assert ids[:, 0].tolist() == [7, 299, 0]
        torch.testing.assert_close(scores[:, 0], torch.ones(3))

    def test_no_predictions(self, make):
        book = make(30, 8)
        ids, scores = top_k(book, torch.zeros(0, book.width), 30, 4)
        assert ids.shape == scores.shape == (0, 4)

    def test_a_codebooks_own_scores_give_the_same(self, make):
        book = make(90, 16)
        outputs = predictions(book, 5)
        ids, scores = top_k(book, outputs, 90, 6)
        expected, close = top_k(book.scores, outputs, 90, 6)
        assert torch.equal(ids, expected)
        torch.testing.assert_close(scores, close, atol=1e-6, rtol=0)

    def test_one_label(self, make):
        book = make(1, 8)
        ids, scores = top_k(book, book.codes(torch.tensor([0])), 1, 3)
        assert ids.tolist() == [[0]]
        torch.testing.assert_close(scores, torch.ones(1, 1))

    def test_outputs_of_another_width(self, make):
        with pytest.raises(ShapeError, match=r"shape \(batch, "):
            top_k(make(30, 8), torch.zeros(2, 5), 30, 4)

    def test_more_labels_later(self, make):
        book = make(20, 8, **({"length": 60} if make is SpectralCodebook else {}))
        top_k(book, predictions(book, 1), 20, 3)
        book.grow(50)
        assert top_k(book, book.codes(torch.tensor([44])), 50, 1)[0].item() == 44

    def test_outputs_that_require_gradients(self, make):
        book = make(30, 8)
        assert not top_k(book, predictions(book, 2).requires_grad_(), 30, 4)[1].requires_grad


def a_scorer(name: str, book: Codebook, seed: int = 0) -> Scorer:
    loss = Scorer(book, book.n_labels, scaled=LOSSES[name].scaled, biased=LOSSES[name].biased)
    if name == "bce":
        # Few different values: many labels are equal where nothing is predicted.
        values = np.random.default_rng(seed).integers(-2, 2, len(loss.bias))
        loss.bias.data.copy_(torch.from_numpy(values))
    return loss


@pytest.fixture
def short_parts(monkeypatch):
    """Split even short transforms."""
    monkeypatch.setattr(fourier, "LONGEST", 40)
    monkeypatch.setattr(fourier, "SHORTEST", 4)


# The fixtures are the same for all examples.
SAME_FIXTURES = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
books = st.sampled_from(BOOKS)


@pytest.mark.usefixtures("short_parts")
class TestSameWhateverTheBudget:
    @given(
        make=books,
        loss=st.sampled_from(list(LOSSES)),
        n_labels=st.integers(1, 500),
        dim=st.integers(1, 40),
        rows=st.integers(1, 40),
        k=st.integers(1, 20),
        part=st.integers(1, 40),
        memory=st.sampled_from([1, 10_000, 100_000, 1 << 40]),
        masked=st.booleans(),
    )
    @settings(suppress_health_check=SAME_FIXTURES)
    def test_ids_and_scores_to_the_bit(self, make, loss, n_labels, dim, rows, k, part, memory, masked):
        book = make(n_labels, dim, seed=dim)
        scorer, outputs = a_scorer(loss, book), predictions(book, rows)
        allowed = torch.arange(n_labels) % 3 > 0 if masked else None
        expected = top_k(scorer, outputs, n_labels, k, allowed=allowed)
        found = [
            top_k(scorer, some, n_labels, k, memory=memory, allowed=allowed) for some in torch.split(outputs, part)
        ]
        assert torch.equal(torch.cat([ids for ids, _ in found]), expected[0])
        assert torch.equal(torch.cat([scores for _, scores in found]), expected[1])

    @pytest.mark.parametrize(
        ("make", "n_labels", "dim"),
        [(SpectralCodebook, 40_000, 300), (SpectralCodebook, 9_000, 800), (IndependentCodebook, 6_000, 100)],
    )
    def test_many_labels(self, monkeypatch, make, n_labels, dim):
        monkeypatch.undo()
        book = make(n_labels, dim)
        scorer, outputs = a_scorer("softmax", book), predictions(book, 21)
        expected = top_k(scorer, outputs, n_labels, 10)
        for size, memory in ((1, None), (4, 1), (21, 3_000_000)):
            found = [top_k(scorer, some, n_labels, 10, memory=memory) for some in torch.split(outputs, size)]
            assert torch.equal(torch.cat([ids for ids, _ in found]), expected[0])
            assert torch.equal(torch.cat([scores for _, scores in found]), expected[1])

    @given(make=books, loss=st.sampled_from(list(LOSSES)), n_labels=st.integers(1, 300), dim=st.integers(1, 40))
    @settings(suppress_health_check=SAME_FIXTURES)
    def test_is_a_sort_of_all_logits(self, make, loss, n_labels, dim):
        book = make(n_labels, dim, seed=1)
        scorer, outputs = a_scorer(loss, book), predictions(book, 4)
        with torch.no_grad():
            logits = scorer.logits(outputs)
        ids, scores = top_k(scorer, outputs, n_labels, n_labels)
        assert torch.equal(ids.sort(dim=1).values, torch.arange(n_labels).expand(4, -1))
        assert (scores.diff(dim=1) <= 0).all()
        torch.testing.assert_close(scores, logits.gather(1, ids), atol=2e-5, rtol=1e-5)

    def test_a_callable(self):
        scores = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (13, 50)).astype(np.float32))
        sizes = []

        def logits(part):
            sizes.append(len(part))
            return part

        expected = top_k(same, scores, 50, 7)
        for memory, taken in ((1, [1] * 13), (20 * 50 * 6, [6, 6, 1]), (1 << 30, [13])):
            sizes.clear()
            found = top_k(logits, scores, 50, 7, memory=memory)
            assert sizes == taken
            assert all(map(torch.equal, found, expected))

    def test_many_predictions_of_few_labels(self, monkeypatch):
        monkeypatch.setattr(decode, "MOST", 7)
        book, sizes = SpectralCodebook(9, 3), []
        outputs = predictions(book, 20)
        whole = Series.__call__
        monkeypatch.setattr(
            Series, "__call__", lambda self, part, room: sizes.append(len(part)) or whole(self, part, room)
        )
        assert torch.equal(top_k(book, outputs, 9, 2)[0], top_k(book.scores, outputs, 9, 2)[0])
        assert sizes == [7, 7, 6]

    def test_more_memory_than_the_cache_has_is_not_used(self):
        assert decode._budget(1 << 40, torch.device("cpu")) == decode.MEMORY
        assert decode._budget(1000, torch.device("cpu")) == 1000


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("make", BOOKS)
class TestNothingPredicted:
    """A document without a known word may have an output of zeros. Then the bias ranks, and ids among equals."""

    def test_all_labels_are_equal(self, make):
        book = make(200, 16)
        for scorer in (book, a_scorer("cosine", book), a_scorer("softmax", book)):
            ids, scores = top_k(scorer, torch.zeros(2, book.width), 200, 5)
            assert ids.tolist() == [[0, 1, 2, 3, 4]] * 2
            assert scores.tolist() == [[0.0] * 5] * 2

    def test_the_bias_ranks(self, make):
        book = make(200, 16)
        loss = a_scorer("bce", book)
        bias = loss.bias.detach().numpy()[None, :200]
        for _ in range(2):
            ids, scores = top_k(loss, torch.zeros(1, book.width), 200, 70)
            np.testing.assert_array_equal(ids, ranked(bias, 70))
            np.testing.assert_array_equal(scores, np.take_along_axis(bias, ids.numpy(), axis=1))
            # Also after its values have changed in place.
            loss.bias.data.numpy()[:] = np.roll(loss.bias.data.numpy(), 3)
            bias = loss.bias.detach().numpy()[None, :200]


class TestLeftOut:
    @pytest.mark.parametrize("make", [*BOOKS, None])
    def test_masked_labels(self, make):
        book = None if make is None else make(60, 30)
        scorer = same if book is None else book
        outputs = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
        outputs = outputs if book is None else predictions(book, 4)
        every, values = top_k(scorer, outputs, 60, 60)
        allowed = torch.arange(60) % 2 == 0
        ids, scores = top_k(scorer, outputs, 60, 60, allowed=allowed)
        even = every % 2 == 0
        assert torch.equal(ids[:, :30], every[even].view(4, 30))
        assert torch.equal(scores[:, :30], values[even].view(4, 30))
        assert (ids[:, 30:] == -1).all()
        assert (scores[:, 30:] == -torch.inf).all()

    @pytest.mark.parametrize("make", BOOKS)
    def test_all_are_masked(self, make):
        book = make(9, 8)
        ids, scores = top_k(book, predictions(book, 2), 9, 3, allowed=torch.zeros(9, dtype=torch.bool))
        assert ids.tolist() == [[-1] * 3] * 2
        assert scores.tolist() == [[-np.inf] * 3] * 2

    def test_low_scores(self):
        outputs = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.5, 1.5]])
        ids, scores = top_k(same, outputs, 3, 2, threshold=1.5)
        assert ids.tolist() == [[1, 2], [2, -1]]
        assert scores.tolist() == [[3.0, 2.0], [1.5, -np.inf]]

    def test_mask_and_threshold(self):
        allowed = torch.tensor([True, False, True])
        ids, _ = top_k(same, torch.tensor([[1.0, 3.0, 2.0]]), 3, 3, allowed=allowed, threshold=-5)
        assert ids.tolist() == [[2, 0, -1]]

    def test_no_rows(self):
        ids, _ = top_k(same, torch.zeros(0, 3), 3, 2, allowed=torch.ones(3, dtype=torch.bool), threshold=0)
        assert ids.shape == (0, 2)


class TestMistakes:
    @pytest.mark.parametrize("memory", [0, -1, 1.5, "64M", True])
    def test_memory(self, memory):
        with pytest.raises(ParameterError, match=r"`memory` must be a number of bytes, at least 1, got"):
            top_k(same, torch.zeros(1, 3), 3, 2, memory=memory)

    @pytest.mark.parametrize("threshold", [float("nan"), "high"])
    def test_threshold(self, threshold):
        with pytest.raises(ParameterError, match="`threshold` must be a number, got"):
            top_k(same, torch.zeros(1, 3), 3, 2, threshold=threshold)

    def test_mask_of_another_type(self):
        with pytest.raises(DTypeError, match=r"`allowed` must be an array or tensor of bool, got torch.int64"):
            top_k(same, torch.zeros(1, 3), 3, 2, allowed=torch.tensor([0, 2, 1]))
        with pytest.raises(DTypeError, match=r"`allowed` must be an array or tensor of bool, got list"):
            top_k(same, torch.zeros(1, 3), 3, 2, allowed=[True] * 3)

    def test_mask_of_another_length(self):
        with pytest.raises(ShapeError, match=r"`allowed` must have shape \(3,\), one for each label, got \(2,\)"):
            top_k(same, torch.zeros(1, 3), 3, 2, allowed=torch.tensor([True, False]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("make", BOOKS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("n_labels", "k"), [(40_000, 10), (40_000, 300), (300, 500), (1, 2)])
def test_a_gpu_ranks_as_a_cpu_does(make, name, n_labels, k):
    book = make(n_labels, 100)
    loss, allowed = a_scorer(name, book), torch.arange(n_labels) % 5 > 0
    outputs = predictions(book, 20)
    ids, scores = top_k(loss, outputs, n_labels, k, allowed=allowed)
    loss = loss.cuda()
    for memory in (None, 1 << 22):
        found, close = top_k(loss, outputs.cuda(), n_labels, k, allowed=allowed, memory=memory)
        torch.testing.assert_close(close.cpu(), scores, atol=1e-5, rtol=1e-5)
        # Labels may change places only where scores differ by no more than rounding does.
        apart = ((scores.diff(dim=1) < -1e-4) | (scores[:, 1:] == -torch.inf)).all(dim=1)
        assert torch.equal(found.cpu()[apart], ids[apart])
    empty, _ = top_k(loss, outputs[:0].cuda(), n_labels, k)
    assert empty.shape == (0, min(k, n_labels))


def most_held(run: Callable[[], object], tmp_path: Path) -> int:
    """The most bytes of tensors held at once, as torch counts them: no other program matters."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    return max(accumulate(change for _, change in changes))


@pytest.mark.parametrize(
    ("make", "n_labels", "rows", "small", "beside"),
    # `beside` the budget there is a block of codes, if codes come in blocks.
    [(SpectralCodebook, 30_000, 64, 2 << 20, 0), (IndependentCodebook, 10_000, 256, 4 << 20, 6 << 20)],
)
def test_the_budget_is_kept(make, n_labels, rows, small, beside, tmp_path):
    book = make(n_labels, 64)
    outputs = predictions(book, rows)
    top_k(book, outputs[:1], n_labels, 10)  # makes the tables

    def most(memory: int) -> int:
        return most_held(lambda: top_k(book, outputs, n_labels, 10, memory=memory), tmp_path)

    held, more = most(small), most(64 << 20)
    assert held < small + beside
    # The measurement notices a larger budget.
    assert more < (64 << 20) + beside
    assert held < more - (4 << 20)
