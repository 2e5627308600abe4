from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.algebra import circular
from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ParameterError
from circlet.network import scorer as gains
from circlet.network.losses import LOSSES
from circlet.network.scorer import Gain, Scorer, top_k_by_gain
from circlet.settings.network import COSINES

N, DIM = 9, 6
BOOKS = {"independent": IndependentCodebook, "spectral": SpectralCodebook, "holographic": HolographicCodebook}
SENSIBLE = [(name, book) for name in LOSSES for book in (*BOOKS, None) if not (name in COSINES and book is None)]
every = pytest.mark.parametrize(("name", "book"), SENSIBLE)


def output_for(book: Codebook | None, n: int) -> torch.Tensor:
    return torch.randn(n, N if book is None else book.width, generator=torch.Generator().manual_seed(0))


def scorer_for(name: str, codes: Codebook | None) -> Scorer:
    loss = LOSSES[name]
    return Scorer(codes, N if codes is None else codes.n_labels, scaled=loss.scaled, biased=loss.biased)


def make(name: str, book: str | None) -> tuple[Scorer, Codebook | None]:
    codes = None if book is None else BOOKS[book](N, DIM, seed=1)
    scorer = scorer_for(name, codes)
    with torch.no_grad():
        for position, parameter in enumerate(scorer.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(position)))
    return scorer, codes


class TestLogits:
    @every
    def test_logits_have_a_column_per_label(self, name, book):
        scorer, codes = make(name, book)
        assert scorer.logits(output_for(codes, 4)).shape == (4, N)
        assert scorer.logits(output_for(codes, 0)).shape == (0, N)

    @pytest.mark.parametrize("book", BOOKS)
    def test_logits_are_scaled_similarities_and_a_bias(self, book):
        scorer, codes = make("bce", book)
        output = output_for(codes, 3)
        expected = codes.scores(output) * scorer.log_scale.exp() + scorer.bias[:N]
        torch.testing.assert_close(scorer.logits(output), expected)

    def test_at_first_unrelated_labels_have_logits_of_about_1(self):
        book = IndependentCodebook(3000, 400)
        scorer = scorer_for("bce", book)
        output = circular.pack(circular.random(2, 400, generator=torch.Generator().manual_seed(0)))
        assert float(scorer.logits(output).detach().std()) == pytest.approx(1, abs=0.1)


class TestTopK:
    @every
    def test_is_a_sort_of_the_logits(self, name, book):
        scorer, codes = make(name, book)
        output = output_for(codes, 5)
        ids, scores = scorer.top_k(output, 4)
        expected = scorer.logits(output).detach().topk(4)
        assert torch.equal(ids, expected.indices)
        torch.testing.assert_close(scores, expected.values)

    @every
    def test_allowed_labels_above_a_threshold(self, name, book):
        scorer, codes = make(name, book)
        output, allowed = output_for(codes, 5), torch.arange(N) % 2 == 0
        logits = scorer.logits(output).detach()
        cut = float(logits.flatten().sort().values[20:22].mean())  # between two scores: rounding does not matter
        ids, scores = scorer.top_k(output, N, allowed=allowed, threshold=cut)
        expected = (logits >= cut) & allowed
        assert ((ids >= 0).sum(dim=1) == expected.sum(dim=1)).all()
        assert all(not found % 2 for found in ids[ids >= 0].tolist())
        assert (scores[ids < 0] == -torch.inf).all()

    @every
    def test_offsets_are_added(self, name, book):
        scorer, codes = make(name, book)
        output, offsets = output_for(codes, 5), torch.linspace(-3, 3, N)
        ids, scores = scorer.top_k(output, N, offsets=offsets)
        expected = (scorer.logits(output).detach() + offsets).topk(N)
        assert torch.equal(ids, expected.indices)
        torch.testing.assert_close(scores, expected.values)


class TestStart:
    @pytest.mark.parametrize("book", BOOKS)
    def test_starts_from_the_labels_frequencies(self, book):
        scorer, _ = make("bce", book)
        counts = torch.tensor([0, 1, 5, 10, 0, 2, 2, 2, 9])
        scorer.start_from(counts, 10)
        torch.testing.assert_close(scorer.bias[:N].sigmoid(), (counts + 0.5) / 11)
        # Labels to come have not been seen either.
        torch.testing.assert_close(scorer.bias[N:].sigmoid(), torch.full((len(scorer.bias) - N,), 0.5 / 11))
        assert scorer.bias.requires_grad

    def test_the_others_have_nothing_to_start_from(self):
        for name, book in SENSIBLE:
            if name not in ("bce", "mean-bce") or book is None:
                scorer, _ = make(name, book)
                before = {key: tensor.clone() for key, tensor in scorer.state_dict().items()}
                scorer.start_from(torch.ones(N), 10)
                assert all(torch.equal(tensor, before[key]) for key, tensor in scorer.state_dict().items())


class TestGrowth:
    @pytest.mark.parametrize("name", LOSSES)
    def test_old_labels_keep_their_scores(self, name):
        scorer, codes = make(name, "spectral")
        output = output_for(codes, 4)
        before = scorer.logits(output).detach()
        shapes = {key: tensor.shape for key, tensor in scorer.state_dict().items()}
        scorer.grow(N + 3)
        after = scorer.logits(output).detach()
        assert scorer.n_labels == codes.n_labels == N + 3
        assert after.shape == (4, N + 3)
        torch.testing.assert_close(after[:, :N], before)
        assert {key: tensor.shape for key, tensor in scorer.state_dict().items()} == shapes

    @pytest.mark.parametrize("name", ["cosine", "softmax"])
    @pytest.mark.parametrize("book", ["independent", "holographic"])
    def test_codebooks_without_slots_grow_without_bound(self, name, book):
        scorer, codes = make(name, book)
        scorer.grow(5 * N)
        assert scorer.logits(output_for(codes, 2)).shape == (2, 5 * N)

    def test_fc_cannot(self):
        scorer, _ = make("bce", None)
        with pytest.raises(ParameterError, match="head fc has one output per label and can't take new labels"):
            scorer.grow(N + 1)

    def test_bce_has_no_bias_beyond_its_own(self):
        scorer, codes = make("bce", "independent")
        with pytest.raises(
            ParameterError, match=f"a bias for {N} labels and can't take {N + 1}: .*cosine or softmax"
        ):
            scorer.grow(N + 1)
        assert scorer.n_labels == codes.n_labels == N

    @pytest.mark.parametrize("name", LOSSES)
    def test_more_than_the_slots(self, name):
        scorer, codes = make(name, "spectral")
        with pytest.raises(ParameterError, match="train a new model"):
            scorer.grow(codes.length + 1)
        assert scorer.n_labels == N

    @pytest.mark.parametrize("name", LOSSES)
    def test_shrinking(self, name):
        scorer, _ = make(name, "spectral")
        with pytest.raises(ParameterError, match="can't shrink"):
            scorer.grow(N - 1)
        assert scorer.n_labels == N


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


class TestTopKGain:
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
