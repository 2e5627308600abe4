from __future__ import annotations

import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.network.scorers import BOOKS, DIM, SENSIBLE, N
from tests.network.scorers import make as make_scorer
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, softplus

from circlet import kernels
from circlet.algebra import circular, holographic
from circlet.codebooks import CODEBOOKS, Codebook, HolographicCodebook, SpectralCodebook
from circlet.errors import ShapeError
from circlet.network import Scorer, losses
from circlet.network.encoders import LabelSets, label_sets
from circlet.network.losses import LOSSES, binary_cross_entropy, spectral_binary_loss, table_binary_loss
from circlet.settings import network as network_settings

SETS = [[3], [0, 8, 2], [], [5, 3], []]


def sets_of(sets: list[list[int]]) -> LabelSets:
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

    def __init__(self, name: str, scorer: Scorer) -> None:
        super().__init__()
        self.loss, self.scorer, self.logits = LOSSES[name], scorer, scorer.logits

    def forward(self, output: torch.Tensor, labels: LabelSets) -> torch.Tensor:
        return self.loss.function(self.scorer, output, labels)


def make(name: str, book: str | None) -> tuple[Judge, Codebook | None]:
    scorer, codes = make_scorer(name, book)
    return Judge(name, scorer), codes


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
    def test_is_the_mean_of_the_documents_with_finite_gradients(self, name, book):
        loss, codes = make(name, book)
        assert loss(output_for(codes, 0), sets_of([])).item() == 0
        output = output_for(codes, len(SETS))
        value = loss(output, sets_of(SETS))
        assert value.shape == ()
        alone = [loss(output[row : row + 1], sets_of([labels])) for row, labels in enumerate(SETS)]
        torch.testing.assert_close(value, torch.stack(alone).mean())
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(output.grad).all()
        assert all(torch.isfinite(parameter.grad).all() for parameter in loss.parameters())

    @every
    def test_documents_without_labels(self, name, book):
        loss, codes = make(name, book)
        output = output_for(codes, 3)
        value = loss(output, sets_of([[], [], []]))
        value.backward()
        assert torch.isfinite(output.grad).all()
        if name in ("bce", "mean-bce"):  # every label is false, which is something to learn
            assert value > 0
        else:
            assert value.item() == 0
            assert not output.grad.any()

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
            lambda output: loss(output, sets_of(SETS)), (output.requires_grad_(),), atol=1e-4
        )


class TestCosine:
    @pytest.mark.parametrize("book", BOOKS)
    @given(sets=ragged, seed=st.integers(0, 99))
    @settings(max_examples=15)
    def test_is_the_literal_equation(self, book, sets, seed):
        loss, codes = make("cosine", book)
        output = output_for(codes, len(sets), seed)
        torch.testing.assert_close(
            loss(output, sets_of(sets)), literal_cosine(output, sets, codes), atol=1e-5, rtol=1e-5
        )

    @pytest.mark.parametrize("book", BOOKS)
    def test_a_perfect_prediction_costs_nothing(self, book):
        loss, codes = make("cosine", book)
        assert codes is not None
        value = loss(codes.codes(torch.tensor([4, 7])), sets_of([[4], [7]]))
        assert value.item() == pytest.approx(0, abs=1e-5)

    @pytest.mark.parametrize("book", BOOKS)
    def test_never_scores_all_labels(self, book, monkeypatch):
        loss, codes = make("cosine", book)
        expected = loss(output_for(codes, len(SETS)), sets_of(SETS))

        def refuse(*_):
            raise AssertionError("scored all labels")

        monkeypatch.setattr(type(codes), "scores", refuse)
        asked = []
        generate = type(codes)._generate
        monkeypatch.setattr(type(codes), "_generate", lambda *given: asked.append(given[2]) or generate(*given))
        assert torch.equal(loss(output_for(codes, len(SETS)), sets_of(SETS)), expected)
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
        torch.testing.assert_close(loss(output, sets_of(sets)), expected)

    def test_takes_half_precision_and_refuses_other_widths(self):
        loss, codes = make("bce", "spectral")
        output = output_for(codes, len(SETS)).detach()
        found = loss(output.bfloat16(), sets_of(SETS))
        torch.testing.assert_close(found, loss(output, sets_of(SETS)), rtol=0.02, atol=0)
        with pytest.raises(ShapeError, match=re.escape(f"(batch, {codes.width})")):
            loss(output[:, 1:], sets_of(SETS))

    @pytest.mark.parametrize("book", [*BOOKS, None])
    def test_large_logits_do_not_overflow(self, book):
        loss, codes = make("bce", book)
        with torch.no_grad():
            if codes is not None:
                loss.scorer.log_scale.fill_(math.log(1e4))
        output = output_for(codes, len(SETS))
        value = loss(output if codes is not None else output * 1e4, sets_of(SETS))
        assert torch.isfinite(value)


class TestSoftmax:
    @pytest.mark.parametrize("book", [*BOOKS, None])
    @given(sets=ragged, seed=st.integers(0, 99))
    @settings(max_examples=15)
    def test_is_a_naive_loop(self, book, sets, seed):
        loss, codes = make("softmax", book)
        output = output_for(codes, len(sets), seed)
        expected = naive_softmax(loss.logits(output), sets)
        torch.testing.assert_close(loss(output, sets_of(sets)), expected)

    def test_a_shift_of_all_scores_changes_nothing(self):
        loss, _ = make("softmax", None)
        output, labels = output_for(None, len(SETS)), sets_of(SETS)
        torch.testing.assert_close(loss(output + 100, labels), loss(output, labels), atol=1e-4, rtol=1e-4)


def test_settings_name_the_losses():
    assert set(LOSSES) == set(network_settings.LOSSES)


@pytest.mark.parametrize("book", ["independent", "spectral", "holographic"])
def test_absolute_cosine_ignores_the_sign_of_each_similarity(book):
    loss, codes = make("absolute-cosine", book)
    output = output_for(codes, len(SETS)).detach()
    similarities = codes.scores(output)
    wanted = sum(1 - similarities[row, label].abs() for row, labels in enumerate(SETS) for label in labels)
    torch.testing.assert_close(loss(output, sets_of(SETS)), wanted / len(SETS))
    torch.testing.assert_close(loss(-output, sets_of(SETS)), wanted / len(SETS))


@pytest.mark.parametrize("book", ["independent", None])
def test_mean_bce_is_bce_divided_by_the_number_of_labels(book):
    summed, codes = make("bce", book)
    averaged, _ = make("mean-bce", book)
    output = output_for(codes, len(SETS)).detach()
    n = codes.n_labels if codes is not None else output.shape[1]
    torch.testing.assert_close(averaged(output, sets_of(SETS)) * n, summed(output, sets_of(SETS)))


BOOK = SpectralCodebook(N, DIM, seed=1)
SLOTS = BOOK.slots_on(torch.device("cpu"))


def inputs(n: int, seed: int = 0) -> list[torch.Tensor]:
    """Predictions, the logarithm of the scale, and a bias per label."""
    generator = torch.Generator().manual_seed(seed)
    predicted = circular.pack(circular.unpack(torch.randn(n, 2 * DIM, generator=generator)))
    parts = [predicted, torch.randn((), generator=generator), torch.randn(N, generator=generator)]
    return [part.requires_grad_() for part in parts]


def as_sets(sets: list[list[int]]) -> LabelSets:
    return label_sets(sp.csr_matrix(np.asarray(dense(sets))))


@given(sets=ragged, seed=st.integers(0, 99), logits=st.sampled_from([1, 14, 30, 1000]))
@settings(max_examples=25)
def test_loss_and_gradients_are_torchs_however_many_rows_at_a_time(sets, seed, logits):
    assert BOOK.length > N  # slots without a label have no part in it
    output, log_scale, bias = given_ = inputs(len(sets), seed)
    scores = BOOK.scores(output) * log_scale.exp() + bias
    expected = binary_cross_entropy_with_logits(scores, dense(sets), reduction="sum")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "LOGITS", logits)
        found = spectral_binary_loss(SLOTS, *given_, as_sets(sets))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * found, given_), torch.autograd.grad(3 * expected, given_))


@pytest.mark.parametrize("filling", [5, 3])
def test_labels_that_only_fill_sets_up_do_not_count(filling):
    # The second document has one label and, to fill up, one of weight 0: another, or the same again.
    filled = LabelSets(
        *(torch.tensor(part) for part in ([0, 8, 3, filling], [0, 2], [0, 0, 1, 1])),
        weights=torch.tensor([1.0, 1, 1, 0]),
    )
    parts, plain = inputs(2), as_sets([[0, 8], [3]])
    found, expected = (spectral_binary_loss(SLOTS, *parts, sets) for sets in (filled, plain))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts))
    table = BOOK.half_table_on(torch.device("cpu"))
    of_tables = [table_binary_loss(table, BOOK.scale, *parts, sets) for sets in (filled, plain)]
    torch.testing.assert_close(*of_tables)


TRUE = torch.tensor([[0, 0, 0, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0, 1], [0] * 9], dtype=torch.float32)


def binary_loss(outputs, codes, factor, bias, ids, documents, weights):
    """What the kernel computes, in plain torch and without rounding."""
    scores = factor.double() * (outputs.double() @ codes[: len(bias)].double().T)
    logits = scores + bias
    by_logit = logits.sigmoid().index_put((documents, ids), -weights.double(), accumulate=True)
    loss = softplus(logits).sum() - (logits[documents, ids] * weights).sum()
    return SimpleNamespace(
        value=loss.float(),
        by_logit=torch.nn.functional.pad(by_logit, (0, len(codes) - len(bias))).bfloat16(),
        by_label=by_logit.sum(dim=0).float(),
        by_log_factor=(by_logit * scores).sum().float(),
    )


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    monkeypatch.setitem(sys.modules, "circlet.kernels.triton", SimpleNamespace(binary_loss=binary_loss))


def scorer_of(kind: str) -> tuple[Scorer, torch.Tensor]:
    book = CODEBOOKS[kind](N, DIM, seed=1)
    scorer = Scorer(book, N, scaled=True, biased=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        scorer.bias[:N] = torch.randn(N, generator=generator)
    output = (
        torch.nn.functional.normalize(torch.randn(3, book.width, generator=generator), dim=1) / book.scale**0.5
    )
    return scorer, output.requires_grad_()


@pytest.mark.parametrize("kind", sorted(CODEBOOKS))
def test_loss_and_gradients_are_torchs_up_to_the_rounding_of_bfloat16(kind, monkeypatch):
    scorer, output = scorer_of(kind)
    expected = binary_cross_entropy_with_logits(scorer.logits(output), TRUE, reduction="sum") / len(TRUE)
    scorer.codebook.cache = True
    monkeypatch.setattr(kernels, "run_on", lambda device: True)
    found = binary_cross_entropy(scorer, output, label_sets(sp.csr_matrix(TRUE.numpy())))
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0)
    parts = [output, scorer.log_scale, scorer.bias]
    for one, other in zip(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.01)


def test_a_table_is_kept_until_the_codebook_grows():
    book = CODEBOOKS["spectral"](N, DIM, seed=1)
    device = torch.device("cpu")
    table = book.half_table_on(device)
    assert table is book.half_table_on(device)
    assert table.shape == (16, book.width)
    assert not table[N:].any()
    torch.testing.assert_close(table[:N].float(), book.codes(torch.arange(N)), rtol=0.01, atol=0.01)
    book.grow(N + 1)
    assert book.half_table_on(device)[N].any()
