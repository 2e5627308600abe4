from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.codebooks import HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.network import scorer as gains
from circlet.network.losses import LOSSES
from circlet.network.scorer import Gain, Scorer, best_by_gain, top_k_by_gain

pytestmark = pytest.mark.usefixtures("one_thread")
# Multiples of a quarter are added and divided without rounding, and there are many ties among few of them.
quarters = st.integers(-12, 12).map(lambda number: number / 4)
ROWS = st.integers(0, 40)


def of_scores(n_labels: int) -> Scorer:
    """A scorer whose outputs are the scores."""
    return Scorer(None, n_labels, scaled=False, biased=False)


def gains_of(scores: np.ndarray, gain: Gain) -> np.ndarray:
    x = torch.from_numpy(gain.slope * scores.astype(np.float64) + gain.intercept)
    return (torch.nn.functional.logsigmoid(x) + gain.log_weights).numpy()


def sorted_by_gain(scores, gain, k, allowed, threshold) -> tuple[np.ndarray, np.ndarray]:
    """The same by looking at every label."""
    values = gains_of(scores, gain)
    if allowed is not None:
        values[:, ~allowed] = -np.inf
    if threshold is not None:
        values[scores < threshold] = -np.inf
    ids = np.argsort(-values, axis=1, kind="stable")[:, :k]
    none = np.take_along_axis(values, ids, axis=1) == -np.inf
    return np.where(none, -1, ids), np.where(none, -np.inf, np.take_along_axis(scores, ids, axis=1))


@st.composite
def cases(draw):
    # Numbers of a seed are less alike than those of hypothesis, and the k best are more often not the first found.
    random, n_labels = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.integers(1, 12))
    scores, weights = (random.integers(-12, 13, shape) / 4 for shape in ((draw(ROWS), n_labels), n_labels))
    slope, intercept = draw(st.sampled_from([0.125, 1.0, 4.0])), draw(quarters)
    allowed = random.random(n_labels) < 0.7 if draw(st.booleans()) else None
    return scores.astype(np.float32), Gain(slope, intercept, torch.from_numpy(weights)), allowed


@contextmanager
def few_candidates() -> Iterator[None]:
    """As few as there may be, so that more have to be found."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PER_PLACE": 1, "MORE": 0, "GROWTH": 2}.items():
            patch.setattr(gains, name, value)
        yield


@pytest.fixture
def asked(monkeypatch) -> list[tuple[int, int]]:
    """How many rows and candidates a scorer was asked for, each time."""
    found: list[tuple[int, int]] = []
    whole = Scorer.top_k

    def spy(self, output, k, **options):
        found.append((len(output), k))
        return whole(self, output, k, **options)

    monkeypatch.setattr(Scorer, "top_k", spy)
    return found


class TestBestByGain:
    def test_by_hand(self):
        chances = torch.tensor([[0.5, 0.2, 0.9, 0.1], [0.4, 0.1, 0.4, 0.0]])
        weights = torch.tensor([1.0, 4.0, 0.5, 9.0])
        places, values = best_by_gain(chances.log(), weights.log(), 3)
        assert places.tolist() == [[3, 1, 0], [0, 1, 2]]  # 0.9, 0.8, 0.5; and 0.4 twice, 0.2
        torch.testing.assert_close(values.exp(), torch.tensor([[0.9, 0.8, 0.5], [0.4, 0.4, 0.2]]))

    def test_columns_of_each_row(self):
        weights = torch.tensor([[1.0, 3.0], [3.0, 1.0]])
        places, _ = best_by_gain(torch.zeros(2, 2), weights, 1)
        assert places.tolist() == [[1], [0]]


class TestTopK:
    def test_by_hand(self):
        chances = torch.tensor([[0.5, 0.2, 0.9]], dtype=torch.float64)
        gain = Gain(1.0, 0.0, torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64).log())
        # The odds are 1, 1/4 and 9. By odds times weight, which is the bound, the last would be the first.
        ids, scores = top_k_by_gain(of_scores(3), chances.logit().float(), 2, gain)
        assert ids.tolist() == [[1, 0]]  # gains of 0.8 and 0.5, and 0.45 is left
        torch.testing.assert_close(scores.double().sigmoid(), torch.tensor([[0.2, 0.5]], dtype=torch.float64))

    def test_a_bound_that_hides_the_best_is_not_enough(self, asked):
        # Nine labels are certain, so that their bounds are far above their gains of 0.
        scores = torch.tensor([[*[50.0] * 9, 0.0], [*[-3.0] * 9, 4.0]])
        gain = Gain(1.0, 0.0, torch.tensor([*[0.0] * 9, 3.0], dtype=torch.float64))
        with few_candidates():
            ids, values = top_k_by_gain(of_scores(10), scores, 1, gain)
        assert ids.tolist() == [[9], [9]]
        assert values.tolist() == [[0.0], [4.0]]
        assert asked == [(2, 1), (2, 2), (1, 4), (1, 8), (1, 10)]  # only the row that needs more is asked again

    def test_a_bound_that_is_hardly_above_the_gain(self):
        # The first has the bound 0 and the gain log σ(−3) + 3 = −0.049, the second −0.03 and −0.0301.
        gain = Gain(1.0, 0.0, torch.tensor([3.0, 8.97], dtype=torch.float64))
        with few_candidates():
            assert top_k_by_gain(of_scores(2), torch.tensor([[-3.0, -9.0]]), 1, gain)[0].tolist() == [[1]]

    @given(
        case=cases(),
        k=st.integers(1, 4) | st.just(20),
        threshold=st.none() | quarters,
        memory=st.sampled_from([None, 5000]),
        few=st.booleans(),
    )
    def test_is_a_sort_of_all_gains(self, case, k, threshold, memory, few):
        scores, gain, allowed = case
        mask = None if allowed is None else torch.from_numpy(allowed)
        options = {"memory": memory, "allowed": mask, "threshold": threshold}
        with few_candidates() if few else nullcontext():
            ids, values = top_k_by_gain(of_scores(scores.shape[1]), torch.from_numpy(scores), k, gain, **options)
        expected = sorted_by_gain(scores, gain, k, allowed, threshold)
        np.testing.assert_array_equal(ids.numpy(), expected[0])
        np.testing.assert_array_equal(values.numpy(), expected[1])
        assert ids.dtype == torch.int64
        assert values.dtype == torch.float32

    @given(
        make=st.sampled_from([SpectralCodebook, IndependentCodebook, HolographicCodebook]),
        loss=st.sampled_from(list(LOSSES)),
        seed=st.integers(0, 1000),
        slope=st.floats(0.01, 100),
        intercept=st.floats(-20, 20),
        n_labels=st.integers(1, 60),
        k=st.integers(1, 12),
    )
    @settings(max_examples=settings.default.max_examples // 2)
    def test_codebooks_and_losses(self, make, loss, seed, slope, intercept, n_labels, k):
        random, book = torch.Generator().manual_seed(seed), make(n_labels, 8, seed=seed)
        scorer = Scorer(book, n_labels, scaled=LOSSES[loss].scaled, biased=LOSSES[loss].biased)
        if scorer.bias is not None:
            scorer.bias.data.normal_(generator=random)
        output = torch.randn(3, book.width, generator=random)
        gain = Gain(slope, intercept, 3 * torch.rand(n_labels, generator=random, dtype=torch.float64))
        allowed = torch.rand(n_labels, generator=random) < 0.8
        with few_candidates():
            found, scores = (part.numpy() for part in top_k_by_gain(scorer, output, k, gain, allowed=allowed))
        logits = scorer.logits(output).detach().numpy()
        expected, _ = sorted_by_gain(logits, gain, k, allowed.numpy(), None)
        there = expected >= 0
        np.testing.assert_array_equal(found >= 0, there)
        assert allowed[found[there]].all()
        # Labels whose gains differ only by the rounding of their scores may change places.
        every, error = gains_of(logits, gain), 1e-5 * max(1, slope)
        close, best = (np.take_along_axis(every, ids, axis=1)[there] for ids in (found, expected))
        np.testing.assert_allclose(close, best, atol=error)
        np.testing.assert_allclose(
            scores[there], np.take_along_axis(logits, found, axis=1)[there], atol=error / slope
        )

    def test_the_lower_id_is_the_first_of_equals(self):
        # So certain that rounding leaves no difference; the bounds would have them the other way around.
        gain = Gain(1.0, 0.0, torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64))
        assert top_k_by_gain(of_scores(3), torch.tensor([[60.0, 80.0, 70.0]]), 3, gain)[0].tolist() == [[0, 1, 2]]

    def test_equal_weights_change_nothing(self):
        book = SpectralCodebook(300, 16)
        scorer = Scorer(book, 300, scaled=True, biased=True)
        output = torch.randn(5, book.width, generator=torch.Generator().manual_seed(0))
        ids, scores = top_k_by_gain(scorer, output, 7, Gain(2.0, -1.0, torch.zeros(300, dtype=torch.float64)))
        assert all(map(torch.equal, (ids, scores), scorer.top_k(output, 7)))

    @pytest.mark.parametrize("k", [0, 3, 9])
    def test_no_rows(self, k):
        ids, scores = top_k_by_gain(of_scores(5), torch.zeros(0, 5), k, Gain(1.0, 0.0, torch.zeros(5).double()))
        assert ids.shape == scores.shape == (0, min(k, 5))


class TestHowManyCandidates:
    """Few of many labels are looked at, also where less than k are found."""

    SCORES = torch.randn(6, 5000, generator=torch.Generator().manual_seed(0)) - 8
    GAIN = Gain(1.0, 0.0, torch.rand(5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64))

    def test_usually(self, asked):
        top_k_by_gain(of_scores(5000), self.SCORES, 5, self.GAIN)
        assert asked == [(6, 26)]

    def test_few_are_allowed(self, asked):
        ids, _ = top_k_by_gain(of_scores(5000), self.SCORES, 5, self.GAIN, allowed=torch.arange(5000) < 3)
        assert ((ids >= 0).sum(dim=1) == 3).all()
        assert asked == [(6, 26)]

    def test_few_are_above_the_threshold(self, asked):
        ids, _ = top_k_by_gain(of_scores(5000), self.SCORES, 5, self.GAIN, threshold=-4.75)
        found = (ids >= 0).sum(dim=1)
        assert found.min() < 5
        assert torch.equal(found, (self.SCORES >= -4.75).sum(dim=1).clamp(max=5))
        assert asked == [(6, 26)]

    def test_memory(self, asked):
        top_k_by_gain(of_scores(5000), self.SCORES, 5, self.GAIN, memory=np.int64(3 * 26 * gains.PER_CANDIDATE))
        assert asked == [(3, 26), (3, 26)]


def test_a_label_of_little_weight_above_the_threshold():
    gain = Gain(1.0, 0.0, torch.tensor([4.0, -9.0], dtype=torch.float64))
    with few_candidates():  # its bound is below that of the other label, which is below the threshold
        ids, _ = top_k_by_gain(of_scores(2), torch.tensor([[-10.0, 2.0]]), 1, gain, threshold=0.0)
    assert ids.tolist() == [[1]]


def test_labels_below_the_threshold_leave_their_places_to_others():
    gain = Gain(1.0, 0.0, torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64))
    scores = torch.tensor([[-2.0, 1.0, 0.5]])
    assert top_k_by_gain(of_scores(3), scores, 2, gain)[0].tolist() == [[0, 1]]
    ids, left = top_k_by_gain(of_scores(3), scores, 2, gain, threshold=0.0)
    assert ids.tolist() == [[1, 2]]
    assert left.tolist() == [[1.0, 0.5]]
    ids, left = top_k_by_gain(of_scores(3), scores, 2, gain, threshold=0.75)
    assert ids.tolist() == [[1, -1]]
    assert left.tolist() == [[1.0, -math.inf]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("k", [5, 300])  # with and without the kernels
def test_the_same_on_a_gpu(k):
    book, random = SpectralCodebook(2000, 64), torch.Generator().manual_seed(0)
    scorer, output = Scorer(book, 2000, scaled=True, biased=True), torch.randn(9, book.width, generator=random)
    gain = Gain(1.5, 0.5, torch.rand(2000, generator=random, dtype=torch.float64))
    allowed = torch.arange(2000) % 3 > 0
    ids, scores = top_k_by_gain(scorer, output, k, gain, allowed=allowed)
    there = Gain(gain.slope, gain.intercept, gain.log_weights.cuda())
    found, close = top_k_by_gain(scorer.cuda(), output.cuda(), k, there, allowed=allowed.cuda())
    torch.testing.assert_close(close.cpu().sort().values, scores.sort().values, atol=1e-4, rtol=1e-4)
    assert (found.cpu() == ids).float().mean() > 0.99  # labels that are practically equal may change places
