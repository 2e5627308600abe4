from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from circlet import codebooks
from circlet.algebra import circular, holographic
from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook, base
from circlet.errors import DTypeError, ParameterError, ShapeError

Make = Callable[..., Codebook]

EVERY = [
    pytest.param(IndependentCodebook, id="independent"),
    pytest.param(partial(IndependentCodebook, cache=True), id="independent-cached"),
    pytest.param(SpectralCodebook, id="spectral"),
    pytest.param(partial(SpectralCodebook, cache=True), id="spectral-cached"),
    pytest.param(partial(HolographicCodebook, projected=True), id="holographic-projected"),
    pytest.param(partial(HolographicCodebook, projected=False), id="holographic-plain"),
    pytest.param(partial(HolographicCodebook, projected=False, cache=True), id="holographic-plain-cached"),
]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def is_real(book: Codebook) -> bool:
    return isinstance(book, HolographicCodebook)


@st.composite
def ragged(draw: st.DrawFn, n_labels: int) -> tuple[list[list[int]], list[list[float]]]:
    """Label sets, some empty, some with a label twice, and a weight for each label in them."""
    sets = draw(st.lists(st.lists(st.integers(0, n_labels - 1), max_size=5), min_size=1, max_size=6))
    weight = st.floats(-4, 4, width=32)
    return sets, [draw(st.lists(weight, min_size=len(labels), max_size=len(labels))) for labels in sets]


def flat(sets: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([label for labels in sets for label in labels], dtype=torch.int64)
    return ids, torch.tensor([0, *np.cumsum([len(labels) for labels in sets])[:-1]], dtype=torch.int64)


@contextmanager
def refused(book: Codebook, error: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(error) as raised:
        yield
    assert str(raised.value) == f"{type(book).__name__}: {message}"


@pytest.mark.parametrize("make", EVERY)
class TestEveryCodebook:
    @pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
    def test_codes_have_one_row_per_label(self, make: Make, given_as, dtype):
        book, ids = make(20, 6), given_as(np.array([3, 0, 19, 3], dtype=dtype))
        assert book.width == (6 if is_real(book) else 12)
        codes = book.codes(ids)
        before = np.asarray(codes).copy()
        assert before.shape == (4, book.width)
        assert before.dtype == np.float32
        np.testing.assert_array_equal(before[0], before[3])
        assert not np.allclose(before[0], before[1])
        nothing = np.asarray(book.codes(ids[:0]))
        assert nothing.shape == (0, book.width)
        assert nothing.dtype == np.float32
        # Neither a use of the ids and the codes nor a change of the codes reaches the codebook.
        book.scores(codes)
        np.testing.assert_array_equal(codes, before)
        codes[:] = 0
        assert ids.tolist() == [3, 0, 19, 3]
        np.testing.assert_array_equal(book.codes(ids), before)

    @pytest.mark.parametrize(("n_labels", "dim"), [(40, 1), (40, 8), (5000, 9)])
    def test_arrays_and_tensors_give_the_same(self, make: Make, n_labels, dim, predictions):
        tensors, arrays = make(n_labels, dim, seed=3), make(n_labels, dim, seed=3)
        predicted, ids = predictions(tensors, 3), torch.arange(0, n_labels, 7)
        for compute, of in (
            (lambda book, ids: book.codes(ids), ids),
            (lambda book, ids: book.scored_codes(ids), ids),
            (lambda book, predicted: book.scores(predicted), predicted),
            (lambda book, predicted: np.concatenate(list(book.blocks(predicted))), predicted),
        ):
            found, expected = compute(arrays, of.numpy()), compute(tensors, of)
            assert found.dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(found, expected, atol=5e-6)

    def test_state_repr_and_copies_make_the_same_codebook(self, make: Make, predictions):
        # Numbers of NumPy come out of matrix shapes; JSON does not take them.
        book = make(np.int64(300), np.int32(6), seed=np.uint8(9))
        assert repr(book).startswith(f"{type(book).__name__}(n_labels=300, dim=6, seed=9")
        book.grow(np.int64(301))
        assert book.state() == make(300, 6, seed=9).state() | {"n_labels": 301}
        predicted, ids = predictions(book, 3), torch.arange(301)
        every = [book.codes(ids), book.concept(), book.scores(predicted), *book.top_k(predicted, 4)]
        pickled = pickle.dumps(book)
        assert len(pickled) < 500  # tables are made again
        for again in (
            type(book)(**json.loads(json.dumps(book.state()))),
            eval(repr(book), vars(codebooks)),
            copy.deepcopy(book),
            pickle.loads(pickled),
        ):
            assert again.state() == book.state()
            found = [again.codes(ids), again.concept(), again.scores(predicted), *again.top_k(predicted, 4)]
            assert all(map(torch.equal, found, every))

    def test_a_code_follows_from_its_label_and_the_seed_alone(self, make: Make):
        before = torch.get_rng_state()
        book, ids = make(50, 7, seed=3), torch.arange(50)
        every = book.codes(ids)
        order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(book.codes(order), every[order])
        for label in (0, 17, 49):
            torch.testing.assert_close(make(50, 7, seed=3).codes(torch.tensor([label])), every[label : label + 1])
        assert torch.equal(make(50, 7, seed=3).codes(ids), every)
        for seed in (2, 3 + 2**70):
            assert not torch.isclose(make(50, 7, seed=seed).codes(ids), every).all(1).any()
        book.concept()
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("block", [1, 13, 100])
    def test_blocks_change_nothing(self, make: Make, block, monkeypatch, predictions):
        book = make(50, 3, seed=3)
        predicted = predictions(book, 4)
        codes, scores = book.codes(torch.arange(50)), book.scores(predicted)
        monkeypatch.setattr(base, "BLOCK", block)
        again = make(50, 3, seed=3)
        torch.testing.assert_close(again.codes(torch.arange(50)), codes)
        torch.testing.assert_close(again.scores(predicted), scores)

    @given(sets_and_weights=ragged(12), weighted=st.booleans())
    @settings(max_examples=25)
    def test_superpose_adds_the_codes_of_each_set(self, make: Make, sets_and_weights, weighted):
        sets, weights = sets_and_weights
        book = make(12, 4, seed=1)
        ids, offsets = flat(sets)
        factors = torch.tensor([value for row in weights for value in row]) if weighted else None
        sums = book.superpose(ids, offsets, factors)
        assert sums.shape == (len(sets), book.width)
        assert sums.dtype == torch.float32
        assert torch.equal(sums, book.superpose(ids, offsets, factors, check=False))
        if weighted:
            assert torch.equal(sums, book.superpose(ids, offsets, factors.double()))
        codes = book.codes(torch.arange(12))
        for row, labels, values in zip(sums, sets, weights, strict=True):
            factor = torch.tensor(values if weighted else [1.0] * len(values))
            torch.testing.assert_close(row, (factor[:, None] * codes[labels]).sum(dim=0))

    @pytest.mark.parametrize(("n_labels", "dim"), [(30, 5), (30, 64), (7, 1), (1, 5), (1, 1)])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 5e-7)])
    def test_scores_are_inner_products_with_the_codes(
        self, make: Make, n_labels, dim, dtype, tolerance, predictions, similarities
    ):
        book = make(n_labels, dim, seed=2)
        predicted = predictions(book, 6, dtype)
        scores = book.scores(predicted)
        assert scores.shape == (6, n_labels)
        assert scores.dtype == dtype
        torch.testing.assert_close(scores, similarities(book, predicted), rtol=0, atol=tolerance)
        rough = book.scores(predicted.bfloat16()).to(dtype)
        torch.testing.assert_close(rough, scores, rtol=0, atol=0.02)

    def test_scores_are_differentiable(self, make: Make, predictions):
        book = make(7, 3)
        assert torch.autograd.gradcheck(book.scores, (predictions(book, 2, torch.float64).requires_grad_(),))
        # Regression: the FFT fails on an empty batch.
        nothing = torch.zeros(0, book.width, dtype=torch.float64, requires_grad=True)
        scores = book.scores(nothing)
        assert scores.shape == (0, 7)
        assert scores.dtype == torch.float64
        scores.sum().backward()
        assert nothing.grad.shape == nothing.shape

    @pytest.mark.parametrize(("n_labels", "dim"), [(100, 64), (1, 1)])
    def test_a_code_scores_one_with_its_own_label(self, make: Make, n_labels, dim):
        book = make(n_labels, dim)
        codes = book.codes(torch.arange(n_labels))
        scores = book.scores(normalize(codes, dim=1) if is_real(book) else codes)
        torch.testing.assert_close(scores.diagonal(), torch.ones(n_labels))
        assert scores.fill_diagonal_(0).abs().max() < 0.7

    def test_growing_keeps_the_old_codes_and_scores(self, make: Make, predictions, similarities):
        # 40 labels have at least 42 slots by default: 2 more always fit.
        book = make(40, 6, seed=4)
        predicted, ids = predictions(book, 3), torch.arange(40)
        codes, scores = book.codes(ids), book.scores(predicted)
        book.grow(40)
        book.grow(42)
        assert book.n_labels == 42
        torch.testing.assert_close(book.codes(ids), codes)
        grown = book.scores(predicted)
        assert grown.shape == (3, 42)
        torch.testing.assert_close(grown[:, :40], scores)
        torch.testing.assert_close(grown, similarities(book, predicted))

    def test_wrong_parameters(self, make: Make):
        book = make(10, 4)
        for name, values, least in (
            ("n_labels", (0, -5, 2.5, "many"), 1),
            ("dim", (0, 8.0, None), 1),
            ("seed", (-1, 0.5), 0),
        ):
            for value in values:
                with refused(book, ParameterError, f"`{name}`: found {value!r}; wanted an integer >= {least}"):
                    make(**{"n_labels": 10, "dim": 4, "seed": 0} | {name: value})
        for value in (11.0, "11", None):
            with refused(book, ParameterError, f"`n_labels`: found {value!r}; wanted an integer >= 1"):
                book.grow(value)
        with refused(book, ParameterError, "found 9 labels; wanted at least the present 10"):
            book.grow(9)
        assert book.n_labels == 10

    def test_wrong_ids(self, make: Make):
        # Regression: permuting a number beyond the slots never came to an end, and a negative id read the
        # cached table from behind.
        book = make(10, 4)
        for use in (book.codes, lambda ids: book.superpose(ids, torch.tensor([0]))):
            for ids, found in (
                (torch.tensor([1.0]), "torch.float32"),
                (torch.tensor([True]), "torch.bool"),
                (torch.tensor([1j]), "torch.complex64"),
                ([1, 2], "list"),
                (np.array([1.0, 2.0]), "float64"),
            ):
                wanted = "wanted an array or a tensor of integers"
                with refused(book, DTypeError, f"found label ids of type {found}; {wanted}"):
                    use(ids)
            for label in (-1, 10, 16, 2**40, -(2**40)):
                wanted = "wanted ids from 0 to 9, or more labels (`grow`)"
                with refused(book, ParameterError, f"found label id {label}; {wanted}"):
                    use(torch.tensor([3, label]))

    def test_wrong_shapes(self, make: Make, given_as):
        book = make(10, 4)
        for ids, shape in ((3, ()), ([[1, 2]], (1, 2))):
            with refused(book, ShapeError, f"found label ids of shape {shape}; wanted (m,)"):
                book.codes(given_as(np.array(ids)))
        for shape in ((4,), (1, 4, 4), (2, 5), (2, 0)):
            for use in (book.scores, lambda predicted: book.top_k(predicted, 3)):
                wanted = f"wanted (batch, {book.width})"
                with refused(book, ShapeError, f"found predicted codes of shape {shape}; {wanted}"):
                    use(given_as(np.zeros(shape)))

    @pytest.mark.parametrize("device", DEVICES)
    def test_the_same_on_every_device(self, make: Make, device, predictions):
        book, other = make(60, 9, seed=5), make(60, 9, seed=5)
        ids, offsets, predicted = torch.arange(60), torch.tensor([0, 20, 20]), predictions(book, 3)
        for there, here in (
            (other.codes(ids.to(device)), book.codes(ids)),
            (other.superpose(ids.to(device), offsets.to(device)), book.superpose(ids, offsets)),
            (other.scores(predicted.to(device)), book.scores(predicted)),
        ):
            assert there.device.type == device
            torch.testing.assert_close(there.cpu(), here)


@pytest.mark.parametrize("make", EVERY)
class TestConceptVector:
    """The paper stores ⊕ p ⊗ c and decodes with p†. Leaving p out gives the same scores."""

    def test_binding_with_it_cancels(self, make: Make):
        book = make(200, 32, seed=6)
        p, codes = book.concept().double(), book.codes(torch.arange(200)).double()
        algebra = holographic if is_real(book) else circular
        vectors = codes if is_real(book) else circular.unpack(codes)
        for k in (1, 2, 9):
            ids = torch.randperm(200, generator=torch.Generator().manual_seed(k))[:k]
            decoded = algebra.unbind(algebra.superpose(algebra.bind(p, vectors[ids])), p)
            # Circular vectors are compared by their angles alone, real ones by their cosine.
            the_long_way = algebra.similarity(decoded, vectors, **({"cosine": True} if is_real(book) else {}))
            total = book.superpose(ids, torch.tensor([0])).double()
            predicted = normalize(total, dim=1) if is_real(book) else circular.pack(circular.unpack(total))
            torch.testing.assert_close(book.scores(predicted)[0], the_long_way, rtol=0, atol=1e-5)

    def test_it_follows_from_the_seed_and_is_not_a_label(self, make: Make):
        book = make(50, 64, seed=1)
        p = book.concept()
        assert p.shape == (64,)
        assert torch.equal(p, make(90, 64, seed=1).concept())
        assert not torch.isclose(p, make(50, 64, seed=2).concept()).any()
        predicted = normalize(p, dim=0) if is_real(book) else circular.pack(p)
        assert book.scores(predicted[None]).abs().max() < 0.7
