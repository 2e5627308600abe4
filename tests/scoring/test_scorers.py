"""Scores and rankings are the same for NumPy and torch: every test runs for both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit, logit

from circlet.codebooks import CODEBOOKS
from circlet.scoring import arrays, tensors
from circlet.scoring.ranking import Gain, top_k_by_gain
from circlet.scoring.scorers import PER_MEAN, Ensemble, Scorer

N, DIM = 9, 6
BOOKS = {"spectral": {"length": 26}, "independent": {}, "holographic": {}, None: {}}
CURVES = [(2.0, -1.0), (0.5, 0.25)]
pytestmark = pytest.mark.parametrize("ops", [arrays, tensors], ids=["arrays", "tensors"])
books = pytest.mark.parametrize("book", BOOKS)


def own(ops: Any, array: np.ndarray | None) -> Any:
    return array if ops is arrays or array is None else torch.from_numpy(array)


def normal(ops: Any, *shape: int, seed: int = 0) -> Any:
    return own(ops, np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def made(ops: Any, book: str | None, *, biased: bool = True, absolute: bool = False, seed: int = 1) -> Scorer:
    if book is None:
        return Scorer(None, N)
    known = CODEBOOKS
    bias = normal(ops, N, seed=seed) if biased else None
    return Scorer(known[book](N, DIM, seed=seed, **BOOKS[book]), N, np.float32(3), bias, absolute=absolute)


def outputs_for(scorer: Scorer, ops: Any, n: int = 5, seed: int = 0) -> Any:
    return normal(ops, n, N if scorer.codebook is None else scorer.codebook.width, seed=seed)


def sorted_out(
    logits: np.ndarray, k: int, allowed: Any = None, threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and scores by sorting all of them."""
    left = np.where(True if allowed is None else allowed, logits, -np.inf)
    if threshold is not None:
        left = np.where(left < threshold, -np.inf, left)
    ids = np.argsort(-left, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(left, ids, axis=1)
    return np.where(scores == -np.inf, -1, ids), scores


class TestScorer:
    @books
    @pytest.mark.parametrize("biased", [True, False])
    def test_logits_are_scaled_similarities_and_a_bias(self, ops, book, biased):
        scorer = made(ops, book, biased=biased)
        output = outputs_for(scorer, ops)
        expected = output if book is None else 3 * scorer.codebook.scores(output) + (scorer.bias if biased else 0)
        np.testing.assert_allclose(scorer.logits(output), expected, atol=1e-5)
        assert scorer.logits(output[:0]).shape == (0, N)

    @books
    @pytest.mark.parametrize("kind", ["plain", "biased", "absolute"])
    @pytest.mark.parametrize("shifted", [False, True])
    @pytest.mark.parametrize("memory", [None, 1])
    @pytest.mark.parametrize("cut", [False, True])
    def test_the_best_are_a_sort_of_the_logits(self, ops, book, kind, shifted, memory, cut):
        scorer = made(ops, book, biased=kind == "biased", absolute=kind == "absolute")
        output, offsets = outputs_for(scorer, ops), None
        logits, options = np.asarray(scorer.logits(output)), {}
        if shifted and kind != "absolute":
            offsets = np.linspace(-3, 3, N, dtype=np.float32)
            logits = logits + offsets
        if cut:
            # Between two scores, so that rounding does not matter.
            options = {"allowed": np.arange(N) % 4 > 0, "threshold": float(np.sort(logits.ravel())[20:22].mean())}
        for k in (4, 99) if kind == "absolute" else (0, 4, 99):
            expected = sorted_out(logits, k, **options)
            given_options = options | {"allowed": own(ops, options["allowed"])} if cut else {}
            ids, scores = scorer.top_k(output, k, offsets=own(ops, offsets), memory=memory, **given_options)
            np.testing.assert_array_equal(ids, expected[0])
            np.testing.assert_allclose(scores, expected[1], atol=1e-5)

    def test_offsets_do_not_stay(self, ops):
        scorer = made(ops, "spectral")
        output, high = outputs_for(scorer, ops), np.array([99] + [0] * (N - 1), dtype=np.float32)
        plain = scorer.top_k(output, 3)
        assert (scorer.top_k(output, 1, offsets=own(ops, high))[0] == 0).all()
        assert (scorer.top_k(output, 1, offsets=own(ops, high[::-1].copy()))[0] == N - 1).all()
        np.testing.assert_array_equal(scorer.top_k(output, 3)[0], plain[0])


class TestEnsemble:
    def several(self, ops: Any, book: str | None) -> tuple[Ensemble, list[Any], np.ndarray]:
        """Two scorers as one, their outputs, and the mean of their probabilities."""
        scorers = [made(ops, book, seed=seed) for seed in (1, 2)]
        outputs = [outputs_for(scorer, ops, 9, seed) for seed, scorer in enumerate(scorers)]
        each = zip(scorers, outputs, CURVES, strict=True)
        mean = np.mean([expit(a * np.float64(one.logits(output)) + b) for one, output, (a, b) in each], axis=0)
        return Ensemble(scorers, CURVES), outputs, mean

    @books
    def test_a_single_scorer_is_used_as_it_is(self, ops, book):
        scorer = made(ops, book)
        one, output = Ensemble([scorer], [(2.0, 1.0)]), outputs_for(scorer, ops)
        np.testing.assert_array_equal(one.logits([output]), scorer.logits(output))
        for found, wanted in zip(one.top_k([output], 3), scorer.top_k(output, 3), strict=True):
            np.testing.assert_array_equal(found, wanted)

    @books
    def test_logits_are_the_log_odds_of_the_mean(self, ops, book):
        ensemble, outputs, mean = self.several(ops, book)
        assert np.asarray(ensemble.logits(outputs)).dtype == np.float32
        np.testing.assert_allclose(expit(np.asarray(ensemble.logits(outputs))), mean, rtol=1e-4)

    @given(
        book=st.sampled_from(list(BOOKS)),
        k=st.integers(0, N + 2),
        allowed=st.none() | st.lists(st.booleans(), min_size=N, max_size=N),
        threshold=st.none() | st.floats(-4, 2),
        memory=st.none() | st.integers(1, 5000),
    )
    def test_the_best_are_a_sort_of_all_mean_probabilities(self, ops, book, k, allowed, threshold, memory):
        ensemble, outputs, mean = self.several(ops, book)
        mask = None if allowed is None else np.array(allowed)
        assume(threshold is None or np.abs(logit(mean) - threshold).min() > 1e-4)
        options = {"allowed": own(ops, mask), "threshold": threshold, "memory": memory}
        ids, scores = map(np.asarray, ensemble.top_k(outputs, k, **options))
        wanted_ids, wanted = sorted_out(logit(mean), k, mask, threshold)
        np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(ids < 0, wanted_ids < 0)
        own_scores = np.where(ids < 0, -np.inf, np.take_along_axis(logit(mean), ids, axis=1))
        np.testing.assert_allclose(own_scores, scores, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(("rows", "parts"), [(1, [1] * 9), (4, [4, 4, 1]), (100, [9])])
    def test_no_more_rows_at_a_time_than_the_memory_has_room_for(self, ops, rows, parts, monkeypatch):
        seen, real = [], Scorer.logits

        def watch(scorer, output):
            seen.append(len(output))
            return real(scorer, output)

        ensemble, outputs, _ = self.several(ops, None)
        monkeypatch.setattr(Scorer, "logits", watch)
        ensemble.top_k(outputs, 3, memory=PER_MEAN * N * rows)
        assert seen[::2] == seen[1::2] == parts

    def test_equal_labels_are_ordered_by_id(self, ops):
        same = own(ops, np.array([[0, 0, 0, 1, 0]], dtype=np.float32))
        ids, _ = Ensemble([Scorer(None, 5)] * 2, CURVES).top_k([same, same], 4)
        assert ids.tolist() == [[3, 0, 1, 2]]

    @books
    def test_by_gain(self, ops, book):
        ensemble, outputs, _ = self.several(ops, book)
        gain, k = Gain(2.0, -1.0, own(ops, np.linspace(0, 3, N))), 4
        ids, scores = ensemble.top_k(outputs, k, gain=gain, allowed=own(ops, np.arange(N) > 2))
        every = ensemble.logits(outputs)
        values = np.asarray(gain.log_probabilities(every)) + np.linspace(0, 3, N)
        np.testing.assert_array_equal(ids, sorted_out(values, k, np.arange(N) > 2)[0])
        np.testing.assert_allclose(scores, np.take_along_axis(np.asarray(every), np.asarray(ids), 1), atol=1e-5)
        same = top_k_by_gain(ensemble, outputs, k, gain, allowed=own(ops, np.arange(N) > 2))
        np.testing.assert_array_equal(ids, same[0])
        assert ensemble.top_k([each[:0] for each in outputs], k, gain=gain)[0].shape == (0, k)
