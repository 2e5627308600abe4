from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from circlet.algebra import circular, holographic
from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ShapeError
from circlet.network.batch import LabelSets
from circlet.network.losses import LOSSES
from circlet.network.scorer import Scorer
from circlet.settings import network as network_settings
from circlet.settings.network import COSINES

N, DIM = 9, 6
BOOKS = {"independent": IndependentCodebook, "spectral": SpectralCodebook, "holographic": HolographicCodebook}
SETS = [[3], [0, 8, 2], [], [5, 3], []]


def label_sets(sets: list[list[int]]) -> LabelSets:
    ids = [label for labels in sets for label in labels]
    starts = [sum(len(labels) for labels in sets[:row]) for row in range(len(sets))]
    documents = [row for row, labels in enumerate(sets) for _ in labels]
    return LabelSets(*(torch.tensor(part, dtype=torch.int64) for part in (ids, starts, documents)))


def output_for(book: Codebook | None, n: int, seed: int = 0) -> torch.Tensor:
    """What a head puts out: phasors, vectors of norm 1, or scores."""
    random = torch.randn(n, N if book is None else book.width, generator=torch.Generator().manual_seed(seed))
    if isinstance(book, HolographicCodebook):
        random = normalize(random, dim=1)
    elif book is not None:
        random = circular.pack(circular.unpack(random))
    return random.requires_grad_()


def dense(sets: list[list[int]]) -> torch.Tensor:
    targets = torch.zeros(len(sets), N)
    for row, labels in enumerate(sets):
        targets[row, labels] = 1
    return targets


class Judge(torch.nn.Module):
    """A loss and the scorer that it judges, as a network has them."""

    def __init__(self, name: str, codes: Codebook | None) -> None:
        super().__init__()
        self.loss = LOSSES[name]
        self.scorer = Scorer(codes, N, scaled=self.loss.scaled, biased=self.loss.biased)

    def forward(self, output: torch.Tensor, labels: LabelSets) -> torch.Tensor:
        return self.loss.function(self.scorer, output, labels)

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        return self.scorer.logits(output)


def make(name: str, book: str | None) -> tuple[Judge, Codebook | None]:
    codes = None if book is None else BOOKS[book](N, DIM, seed=1)
    judge = Judge(name, codes)
    with torch.no_grad():
        for position, parameter in enumerate(judge.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(position)))
    return judge, codes


SENSIBLE = [(name, book) for name in LOSSES for book in (*BOOKS, None) if not (name in COSINES and book is None)]
every = pytest.mark.parametrize(("name", "book"), SENSIBLE)
ragged = st.lists(st.sets(st.integers(0, N - 1), max_size=4).map(sorted), min_size=1, max_size=5)


def literal_cosine(output: torch.Tensor, sets: list[list[int]], book: Codebook) -> torch.Tensor:
    """The paper's equation 4, label by label."""
    total = torch.zeros(())
    for row, labels in enumerate(sets):
        for label in labels:
            code = book.codes(torch.tensor([label]))[0]
            if isinstance(book, HolographicCodebook):
                total = total + 1 - holographic.similarity(output[row], code, cosine=True)
            else:
                total = total + 1 - circular.similarity(circular.unpack(output[row]), circular.unpack(code))
    return total / len(sets)


def naive_softmax(logits: torch.Tensor, sets: list[list[int]]) -> torch.Tensor:
    total = torch.zeros(())
    for row, labels in enumerate(sets):
        for label in labels:
            probability = logits[row, label].exp() / sum(score.exp() for score in logits[row])
            total = total - probability.log() / len(labels)
    return total / len(sets)


class TestEveryLoss:
    @every
    def test_is_a_number_with_finite_gradients(self, name, book):
        loss, codes = make(name, book)
        output = output_for(codes, len(SETS))
        value = loss(output, label_sets(SETS))
        assert value.shape == ()
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(output.grad).all()
        assert all(torch.isfinite(parameter.grad).all() for parameter in loss.parameters())

    @every
    def test_documents_without_labels(self, name, book):
        loss, codes = make(name, book)
        output = output_for(codes, 3)
        value = loss(output, label_sets([[], [], []]))
        value.backward()
        assert torch.isfinite(output.grad).all()
        if name in ("bce", "mean-bce"):  # every label is false, which is something to learn
            assert value > 0
        else:
            assert value.item() == 0
            assert not output.grad.any()

    @every
    def test_a_batch_is_the_mean_of_its_documents(self, name, book):
        loss, codes = make(name, book)
        output = output_for(codes, len(SETS))
        alone = [loss(output[row : row + 1], label_sets([labels])) for row, labels in enumerate(SETS)]
        torch.testing.assert_close(loss(output, label_sets(SETS)), torch.stack(alone).mean())

    @every
    def test_no_documents(self, name, book):
        loss, codes = make(name, book)
        assert loss(output_for(codes, 0), label_sets([])).item() == 0

    @pytest.mark.parametrize("book", ["independent", "spectral"])
    @pytest.mark.parametrize("name", LOSSES)
    def test_gradient_by_finite_differences(self, name, book):
        loss, codes = make(name, book)
        assert codes is not None
        loss.double()
        # Off the unit circle too: the formulas hold for any output.
        output = torch.randn(
            len(SETS), codes.width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        assert torch.autograd.gradcheck(
            lambda output: loss(output, label_sets(SETS)), (output.requires_grad_(),), atol=1e-4
        )


class TestCosine:
    @pytest.mark.parametrize("book", BOOKS)
    @given(sets=ragged, seed=st.integers(0, 99))
    @settings(max_examples=15)
    def test_is_the_literal_equation(self, book, sets, seed):
        loss, codes = make("cosine", book)
        output = output_for(codes, len(sets), seed)
        torch.testing.assert_close(
            loss(output, label_sets(sets)), literal_cosine(output, sets, codes), atol=1e-5, rtol=1e-5
        )

    @pytest.mark.parametrize("book", BOOKS)
    def test_a_perfect_prediction_costs_nothing(self, book):
        loss, codes = make("cosine", book)
        assert codes is not None
        value = loss(codes.codes(torch.tensor([4, 7])), label_sets([[4], [7]]))
        assert value.item() == pytest.approx(0, abs=1e-5)

    @pytest.mark.parametrize("book", BOOKS)
    def test_never_scores_all_labels(self, book, monkeypatch):
        loss, codes = make("cosine", book)
        expected = loss(output_for(codes, len(SETS)), label_sets(SETS))

        def refuse(*_):
            raise AssertionError("scored all labels")

        monkeypatch.setattr(type(codes), "scores", refuse)
        asked = []
        generate = type(codes)._generate
        monkeypatch.setattr(type(codes), "_generate", lambda self, ids: asked.append(ids) or generate(self, ids))
        assert torch.equal(loss(output_for(codes, len(SETS)), label_sets(SETS)), expected)
        assert torch.cat(asked).tolist() == [0, 2, 3, 5, 8]

    def test_has_no_parameters(self):
        assert not list(make("cosine", "spectral")[0].parameters())


class TestBinary:
    @pytest.mark.parametrize("book", [*BOOKS, None])
    @given(sets=ragged, seed=st.integers(0, 99))
    @settings(max_examples=15)
    def test_is_torchs_on_dense_targets(self, book, sets, seed):
        loss, codes = make("bce", book)
        output = output_for(codes, len(sets), seed)
        expected = binary_cross_entropy_with_logits(loss.logits(output), dense(sets), reduction="sum") / len(sets)
        torch.testing.assert_close(loss(output, label_sets(sets)), expected)

    def test_takes_half_precision_and_refuses_other_widths(self):
        loss, codes = make("bce", "spectral")
        output = output_for(codes, len(SETS)).detach()
        found = loss(output.bfloat16(), label_sets(SETS))
        torch.testing.assert_close(found, loss(output, label_sets(SETS)), rtol=0.02, atol=0)
        with pytest.raises(ShapeError, match=re.escape(f"(batch, {codes.width})")):
            loss(output[:, 1:], label_sets(SETS))

    @pytest.mark.parametrize("book", [*BOOKS, None])
    def test_large_logits_do_not_overflow(self, book):
        loss, codes = make("bce", book)
        with torch.no_grad():
            if codes is not None:
                loss.scorer.log_scale.fill_(math.log(1e4))
        output = output_for(codes, len(SETS))
        value = loss(output if codes is not None else output * 1e4, label_sets(SETS))
        assert torch.isfinite(value)


class TestSoftmax:
    @pytest.mark.parametrize("book", [*BOOKS, None])
    @given(sets=ragged, seed=st.integers(0, 99))
    @settings(max_examples=15)
    def test_is_a_naive_loop(self, book, sets, seed):
        loss, codes = make("softmax", book)
        output = output_for(codes, len(sets), seed)
        expected = naive_softmax(loss.logits(output), sets)
        torch.testing.assert_close(loss(output, label_sets(sets)), expected)

    def test_a_shift_of_all_scores_changes_nothing(self):
        loss, _ = make("softmax", None)
        output, labels = output_for(None, len(SETS)), label_sets(SETS)
        torch.testing.assert_close(loss(output + 100, labels), loss(output, labels), atol=1e-4, rtol=1e-4)


def test_cosine_needs_codes():
    with pytest.raises(TypeError, match="this scorer has no codebook"):
        LOSSES["cosine"].function(
            Scorer(None, N, scaled=False, biased=False), torch.zeros(1, N), label_sets([[1]])
        )


def test_settings_name_the_losses():
    assert set(LOSSES) == set(network_settings.LOSSES)


@pytest.mark.parametrize("book", ["independent", "spectral", "holographic"])
def test_absolute_cosine_ignores_the_sign_of_each_similarity(book):
    loss, codes = make("absolute-cosine", book)
    output = output_for(codes, len(SETS)).detach()
    similarities = codes.scores(output)
    wanted = sum(1 - similarities[row, label].abs() for row, labels in enumerate(SETS) for label in labels)
    torch.testing.assert_close(loss(output, label_sets(SETS)), wanted / len(SETS))
    torch.testing.assert_close(loss(-output, label_sets(SETS)), wanted / len(SETS))


@pytest.mark.parametrize("book", ["independent", None])
def test_mean_bce_is_bce_divided_by_the_number_of_labels(book):
    summed, codes = make("bce", book)
    averaged, _ = make("mean-bce", book)
    output = output_for(codes, len(SETS)).detach()
    n = codes.n_labels if codes is not None else output.shape[1]
    torch.testing.assert_close(averaged(output, label_sets(SETS)) * n, summed(output, label_sets(SETS)))
