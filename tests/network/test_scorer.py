from __future__ import annotations

import pytest
import torch
from tests.network.scorers import BOOKS, SENSIBLE, N, make, scorer_for

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ParameterError
from circlet.network import Scorer
from circlet.network.losses import LOSSES
from circlet.scoring.ranking import Gain, top_k_by_gain
from circlet.scoring.scorers import Ensemble


def output_for(book: Codebook | None, n: int) -> torch.Tensor:
    return torch.randn(n, N if book is None else book.width, generator=torch.Generator().manual_seed(0))


def test_at_first_unrelated_labels_have_logits_of_about_1():
    book = IndependentCodebook(3000, 400)
    scorer = scorer_for("bce", book)
    output = circular.pack(circular.random(2, 400, generator=torch.Generator().manual_seed(0)))
    assert float(scorer.logits(output).detach().std()) == pytest.approx(1, abs=0.1)


def test_what_is_learned_are_scale_and_bias():
    scorer, codes = make("bce", "spectral")
    output = output_for(codes, 3).requires_grad_()
    expected = codes.scores(output) * scorer.log_scale.exp() + scorer.bias[:N]
    torch.testing.assert_close(scorer.logits(output), expected)
    wanted = torch.autograd.grad(expected.square().sum(), (output, *scorer.parameters()))
    found = torch.autograd.grad(scorer.logits(output).square().sum(), (output, *scorer.parameters()))
    torch.testing.assert_close(found, wanted)
    ids, scores = scorer.top_k(output, 4)
    assert not scores.requires_grad
    torch.testing.assert_close(scores, scorer.logits(output).detach().gather(1, ids))
    with torch.no_grad():
        scorer.bias[7] = 99
    assert (scorer.top_k(output, 1)[0] == 7).all()


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
    def test_more_than_the_slots_and_shrinking(self, name):
        scorer, codes = make(name, "spectral")
        with pytest.raises(ParameterError, match="train a new model"):
            scorer.grow(codes.length + 1)
        with pytest.raises(ParameterError, match="found 8 labels; wanted at least the present 9"):
            scorer.grow(N - 1)
        assert scorer.n_labels == N


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("k", [5, 300])  # with and without the kernels
def test_the_same_on_a_gpu(k):
    book, random = SpectralCodebook(2000, 64), torch.Generator().manual_seed(0)
    scorer, output = Scorer(book, 2000, scaled=True, biased=True), torch.randn(9, book.width, generator=random)
    own = Ensemble([scorer], [(1.0, 0.0)])
    gain = Gain(1.5, 0.5, torch.rand(2000, generator=random, dtype=torch.float64))
    allowed = torch.arange(2000) % 3 > 0
    ids, scores = top_k_by_gain(own, [output], k, gain, allowed=allowed)
    there = Gain(gain.slope, gain.intercept, gain.log_weights.cuda())
    scorer.cuda()
    found, close = top_k_by_gain(own, [output.cuda()], k, there, allowed=allowed.cuda())
    torch.testing.assert_close(close.cpu().sort().values, scores.sort().values, atol=1e-4, rtol=1e-4)
    assert (found.cpu() == ids).float().mean() > 0.99  # labels that are practically equal may change places
