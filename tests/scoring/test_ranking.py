from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as examples
from scipy.special import expit, logit

from circlet.scoring import arrays, tensors
from circlet.scoring import ranking as module
from circlet.scoring.ranking import Gain, larger, mean_log_odds, merge, top_k_by_gain, without
from circlet.scoring.scorers import Ensemble, Scorer

INF = np.inf
both = pytest.mark.parametrize("ops", [arrays, tensors], ids=["arrays", "tensors"])


def sorted_out(scores: np.ndarray, k: int, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The same by sorting everything."""
    ids, values = np.full((len(scores), k), -1), np.full((len(scores), k), -INF, dtype=scores.dtype)
    for row, numbers in enumerate(scores):
        pairs = [(-x, c if labels is None else int(labels[c])) for c, x in enumerate(numbers) if x > -INF]
        for place, (negative, label) in enumerate(sorted(pairs)[:k]):
            ids[row, place], values[row, place] = label, -negative
    return ids, values


def of(ops: Any, numbers: Any) -> Any:
    array = np.asarray(numbers)
    return array.copy() if ops is arrays else torch.from_numpy(array.copy())


def check(ops: Any, scores: np.ndarray, k: int, labels: np.ndarray | None = None) -> None:
    found = ops.best_columns(of(ops, scores), k, None if labels is None else of(ops, labels))
    for own, expected in zip(found, sorted_out(scores, k, labels), strict=True):
        np.testing.assert_array_equal(own, expected)
        assert np.asarray(own).dtype == expected.dtype


@both
class TestBestColumns:
    def test_by_hand(self, ops):
        ids, values = ops.best_columns(of(ops, np.float32([[1, 3, 2, 3], [0, -INF, 5, 5]])), 3)
        assert ids.tolist() == [[1, 3, 2], [2, 3, 0]]
        assert values.tolist() == [[3, 3, 2], [5, 5, 0]]

    def test_labels_break_ties(self, ops):
        scores, labels = of(ops, np.float32([[3, 3, 3, 1]])), of(ops, np.int32([9, 4, 7, 0]))
        assert ops.best_columns(scores, 2, labels)[0].tolist() == [[4, 7]]

    @pytest.mark.parametrize("rows", [1, 2])
    def test_infinite_scores(self, ops, rows):
        scores = np.float32([[0, -INF, INF, INF, -INF]] * rows)
        ids, values = ops.best_columns(of(ops, scores), 4)
        assert ids.tolist() == [[2, 3, 0, -1]] * rows
        assert values.tolist() == [[INF, INF, 0, -INF]] * rows

    @settings(max_examples=150)
    @given(
        scores=examples.arrays(
            np.float32,
            st.tuples(st.integers(1, 4), st.integers(1, 90)),
            elements=st.sampled_from([-INF, -1, 0, 0.5, 1, 2]) | st.floats(-9, 9, width=32),
        ),
        k=st.integers(1, 20),
        labelled=st.booleans(),
    )
    def test_like_sorting(self, ops, scores, k, labelled):
        labels = np.random.default_rng(0).permutation(scores.shape[1]).astype(np.int32)
        check(ops, scores, min(k, scores.shape[1]), labels if labelled else None)

    @pytest.mark.parametrize("m", [500, 4321, 256 * 40, 51_277])  # the last group may be incomplete
    @pytest.mark.parametrize("n", [1, 3])
    def test_groups(self, ops, m, n):
        random, few = np.random.default_rng(m), np.zeros((n, m), dtype=np.float32)
        few[:, ::300], few[:, -3:] = 1, [4, 2, 3]
        for numbers in (random.standard_normal((n, m)), random.integers(0, 40, (n, m)), few):
            for k in (1, 5, 300):
                check(ops, numbers.astype(np.float32), k)


@both
def test_merge(ops):
    one = of(ops, [[4, 2], [1, -1]]), of(ops, np.float32([[5, 1], [3, -INF]]))
    ids, scores = merge(one, (of(ops, [[3], [0]]), of(ops, np.float32([[5], [3]]))), 2)
    assert ids.tolist() == [[3, 4], [0, 1]]
    assert scores.tolist() == [[5, 5], [3, 3]]


@both
def test_without(ops):
    found = of(ops, [[4, 2, -1]]), of(ops, np.float32([[5, 1, -INF]]))
    assert without(found, None) is found
    ids, scores = without(found, 2.0)
    assert ids.tolist() == [[4, -1, -1]]
    assert scores.tolist() == [[5, -INF, -INF]]
    assert scores.dtype == found[1].dtype
    assert without(found, 1.0)[0].tolist() == [[4, 2, -1]]


# Multiples of a quarter are added and divided without rounding, and there are many ties among few of them.
quarters = st.integers(-12, 12).map(lambda number: number / 4)
ROWS = st.integers(0, 40)


class Scores:
    """A scorer whose outputs are the scores; what it was asked for is kept."""

    def __init__(self, n_labels: int) -> None:
        self.n_labels = n_labels
        self.asked: list[tuple[int, int]] = []
        self.scorer = Ensemble([Scorer(None, n_labels)], [(1.0, 0.0)])

    def top_k(self, output: Any, k: int, **options: Any) -> Any:
        self.asked.append((len(output[0]), k))
        return self.scorer.top_k(output, k, **options)


def gain_of(ops: Any, slope: float, intercept: float, log_weights: Any) -> Gain:
    weights = np.array(log_weights, dtype=np.float64)
    return Gain(slope, intercept, weights if ops is arrays else torch.from_numpy(weights))


def ranked(gain: Gain, scores: Any, k: int, **options: Any) -> tuple[np.ndarray, np.ndarray, list]:
    """Ids, scores, and what the scorer was asked for."""
    numbers, ops = np.array(scores, dtype=np.float32), gain.ops
    if ops is tensors and options.get("allowed") is not None:
        options["allowed"] = torch.from_numpy(options["allowed"])
    scorer = Scores(numbers.shape[1])
    found = top_k_by_gain(scorer, [of(ops, numbers)], k, gain, **options)
    return np.asarray(found[0]), np.asarray(found[1]), scorer.asked


def gains_of(scores: np.ndarray, gain: Gain) -> np.ndarray:
    x = scores.astype(np.float64)
    return np.asarray(gain.log_probabilities(x if gain.ops is arrays else torch.from_numpy(x)) + gain.log_weights)


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
    return scores.astype(np.float32), (slope, intercept, weights), allowed


@contextmanager
def few_candidates() -> Iterator[None]:
    """As few as there may be, so that more have to be found."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PER_PLACE": 1, "MORE": 0, "GROWTH": 2}.items():
            patch.setattr(module, name, value)
        yield


@both
class TestTopKByGain:
    def test_by_hand(self, ops):
        gain = gain_of(ops, 1.0, 0.0, np.log([1.0, 4.0, 0.5]))
        np.testing.assert_allclose(gain.weights, [1, 4, 0.5])
        # The odds are 1, 1/4 and 9. By odds times weight, which is the bound, the last would be the first.
        ids, scores, _ = ranked(gain, logit([[0.5, 0.2, 0.9]]), 2)
        assert ids.tolist() == [[1, 0]]  # gains of 0.8 and 0.5, and 0.45 is left
        np.testing.assert_allclose(expit(scores), [[0.2, 0.5]], rtol=1e-6)

    def test_a_bound_that_hides_the_best_is_not_enough(self, ops):
        # Nine labels are certain, so that their bounds are far above their gains of 0.
        scores, gain = [[*[50.0] * 9, 0.0], [*[-3.0] * 9, 4.0]], gain_of(ops, 1.0, 0.0, [*[0.0] * 9, 3.0])
        with few_candidates():
            ids, values, asked = ranked(gain, scores, 1)
        assert ids.tolist() == [[9], [9]]
        assert values.tolist() == [[0.0], [4.0]]
        assert asked == [(2, 1), (2, 2), (1, 4), (1, 8), (1, 10)]  # only the row that needs more is asked again

    def test_a_bound_that_is_hardly_above_the_gain(self, ops):
        # The first has the bound 0 and the gain log σ(−3) + 3 = −0.049, the second −0.03 and −0.0301.
        with few_candidates():
            assert ranked(gain_of(ops, 1.0, 0.0, [3.0, 8.97]), [[-3.0, -9.0]], 1)[0].tolist() == [[1]]

    @given(
        case=cases(),
        k=st.integers(1, 4) | st.just(20),
        threshold=st.none() | quarters,
        memory=st.sampled_from([None, 5000]),
        few=st.booleans(),
    )
    def test_is_a_sort_of_all_gains(self, ops, case, k, threshold, memory, few):
        scores, numbers, allowed = case
        gain = gain_of(ops, *numbers)
        with few_candidates() if few else nullcontext():
            ids, values, _ = ranked(gain, scores, k, memory=memory, allowed=allowed, threshold=threshold)
        expected = sorted_by_gain(scores, gain, k, allowed, threshold)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(values, expected[1])
        assert ids.dtype == np.int64
        assert values.dtype == np.float32

    def test_the_lower_id_is_the_first_of_equals(self, ops):
        # So certain that rounding leaves no difference; the bounds would have them the other way around.
        gain = gain_of(ops, 1.0, 0.0, [1.0, 1.0, 0.5])
        assert ranked(gain, [[60.0, 80.0, 70.0]], 3)[0].tolist() == [[0, 1, 2]]

    def test_a_label_of_little_weight_above_the_threshold(self, ops):
        with few_candidates():  # its bound is below that of the other label, which is below the threshold
            ids, _, _ = ranked(gain_of(ops, 1.0, 0.0, [4.0, -9.0]), [[-10.0, 2.0]], 1, threshold=0.0)
        assert ids.tolist() == [[1]]

    def test_labels_below_the_threshold_leave_their_places_to_others(self, ops):
        gain, scores = gain_of(ops, 1.0, 0.0, [5.0, 0.0, 0.0]), [[-2.0, 1.0, 0.5]]
        assert ranked(gain, scores, 2)[0].tolist() == [[0, 1]]
        ids, left, _ = ranked(gain, scores, 2, threshold=0.0)
        assert ids.tolist() == [[1, 2]]
        assert left.tolist() == [[1.0, 0.5]]
        ids, left, _ = ranked(gain, scores, 2, threshold=0.75)
        assert ids.tolist() == [[1, -1]]
        assert left.tolist() == [[1.0, -INF]]


@both
class TestHowManyCandidates:
    """Few of many labels are looked at, also where less than k are found."""

    SCORES = torch.randn(6, 5000, generator=torch.Generator().manual_seed(0)).numpy() - 8
    WEIGHTS = torch.rand(5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy()

    def test_usually_with_few_allowed_or_above_the_threshold_and_in_little_memory(self, ops):
        gain = gain_of(ops, 1.0, 0.0, self.WEIGHTS)
        assert ranked(gain, self.SCORES, 5)[2] == [(6, 26)]
        ids, _, asked = ranked(gain, self.SCORES, 5, allowed=np.arange(5000) < 3)
        assert ((ids >= 0).sum(axis=1) == 3).all()
        assert asked == [(6, 26)]
        ids, _, asked = ranked(gain, self.SCORES, 5, threshold=-4.75)
        found = (ids >= 0).sum(axis=1)
        assert found.min() < 5
        np.testing.assert_array_equal(found, (self.SCORES >= -4.75).sum(axis=1).clip(max=5))
        assert asked == [(6, 26)]
        memory = np.int64(3 * 26 * module.PER_CANDIDATE)
        assert ranked(gain, self.SCORES, 5, memory=memory)[2] == [(3, 26), (3, 26)]


def mean_of(ops: Any, logits: Any) -> np.ndarray:
    parts = [np.array(each, dtype=np.float32) for each in logits]
    return np.asarray(mean_log_odds(ops, parts if ops is arrays else map(torch.from_numpy, parts)))


@both
class TestMeanLogOdds:
    def test_solved_by_hand(self, ops):
        found = mean_of(ops, logit([[0.2, 0.5], [0.6, 0.75]]))
        np.testing.assert_allclose(found, logit([0.4, 0.625]), rtol=1e-5)

    @pytest.mark.parametrize(
        ("logits", "expected"),
        [
            ([1000.0, 1000.0], 1000.0),
            ([-1000.0, -1000.0], -1000.0),
            ([500.0, -500.0], 0.0),
            ([1e30, 1e30], 1e30),
            ([-200.0, -1e30], -200 - math.log(2)),  # half of e⁻²⁰⁰
            ([100.0, 90.0, 90.0], 90 + math.log(3 / 2)),
        ],
    )
    def test_next_to_0_and_1_nothing_is_rounded(self, ops, logits, expected):
        assert mean_of(ops, [[each] for each in logits])[0] == pytest.approx(expected, rel=1e-6)

    @given(st.lists(st.floats(-15, 15, width=32), min_size=1, max_size=5))
    def test_is_the_mean_of_probabilities(self, ops, logits):
        found = mean_of(ops, [[each] for each in logits])[0]
        assert found == pytest.approx(logit(expit(np.float64(logits)).mean()), rel=1e-4, abs=1e-4)

    @pytest.mark.parametrize("n", [7, 37])
    def test_equal_at_all_places(self, ops, n):
        """Labels with equal scores are ordered by id, so that not even the last digit may depend on the place."""
        for one, other in np.random.default_rng(0).standard_normal((200, 2)) * 5:
            assert len(np.unique(mean_of(ops, [[one] * n, [other] * n]))) == 1


@both
def test_a_label_of_two_rankings_has_the_higher_of_its_scores(ops):
    one = of(ops, [[4, 2], [1, -1]]), of(ops, np.float32([[5, 1], [3, -INF]]))
    other = of(ops, [[2, 3], [-1, -1]]), of(ops, np.float32([[6, 5], [-INF, -INF]]))
    ids, scores = map(np.asarray, larger(ops, one, other))
    assert ids.tolist() == [[2, 3], [1, -1]]
    assert scores.tolist() == [[6, 5], [3, -INF]]
