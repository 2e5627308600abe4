from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from circlet import codebooks
from circlet.algebra import circular, holographic
from circlet.codebooks import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook, decoding
from circlet.codebooks.hashing import _mixed, permuted, uniform
from circlet.errors import DTypeError, ParameterError, ShapeError

Make = Callable[..., Codebook]

INDEPENDENT = pytest.param(IndependentCodebook, id="independent")
CACHED = pytest.param(partial(IndependentCodebook, cache=True), id="independent-cached")
SPECTRAL = pytest.param(SpectralCodebook, id="spectral")
PROJECTED = pytest.param(partial(HolographicCodebook, projected=True), id="holographic-projected")
PLAIN = pytest.param(partial(HolographicCodebook, projected=False), id="holographic-plain")
PLAIN_CACHED = pytest.param(
    partial(HolographicCodebook, projected=False, cache=True), id="holographic-plain-cached"
)

EVERY = [INDEPENDENT, CACHED, SPECTRAL, PROJECTED, PLAIN, PLAIN_CACHED]
CIRCULAR = [INDEPENDENT, CACHED, SPECTRAL]
HOLOGRAPHIC = [PROJECTED, PLAIN, PLAIN_CACHED]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


pytestmark = pytest.mark.usefixtures("one_thread")


def predictions(book: Codebook, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a head puts out: packed phasors, or vectors of norm 1."""
    random = torch.randn(n, book.width, generator=torch.Generator().manual_seed(n), dtype=dtype)
    return normalize(random, dim=1) if is_real(book) else circular.pack(circular.unpack(random))


def is_real(book: Codebook) -> bool:
    return isinstance(book, HolographicCodebook)


def similarities(book: Codebook, predicted: torch.Tensor) -> torch.Tensor:
    """The scores by their definition: one inner product with each label's code."""
    codes = book.codes(torch.arange(book.n_labels)).to(predicted.dtype)
    return predicted @ (normalize(codes, dim=1) if is_real(book) else codes / book.dim).mT


@st.composite
def ragged(draw: st.DrawFn, n_labels: int) -> tuple[list[list[int]], list[list[float]]]:
    """Label sets, some empty, some with a label twice, and a weight for each label in them."""
    sets = draw(st.lists(st.lists(st.integers(0, n_labels - 1), max_size=5), min_size=1, max_size=6))
    weight = st.floats(-4, 4, width=32)
    return sets, [draw(st.lists(weight, min_size=len(labels), max_size=len(labels))) for labels in sets]


def flat(sets: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([label for labels in sets for label in labels], dtype=torch.int64)
    return ids, torch.tensor([0, *np.cumsum([len(labels) for labels in sets])[:-1]], dtype=torch.int64)


@pytest.mark.parametrize("make", EVERY)
class TestEveryCodebook:
    @pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
    def test_codes_have_one_row_per_label(self, make: Make, dtype):
        book = make(20, 6)
        codes = book.codes(torch.tensor([3, 0, 19, 3], dtype=dtype))
        assert book.width == (6 if is_real(book) else 12)
        assert codes.shape == (4, book.width)
        assert codes.dtype == torch.float32
        assert torch.equal(codes[0], codes[3])
        assert not torch.allclose(codes[0], codes[1])

    def test_codes_of_no_labels(self, make: Make):
        book = make(20, 6)
        codes = book.codes(torch.tensor([], dtype=torch.int64))
        assert codes.shape == (0, book.width)
        assert codes.dtype == torch.float32

    def test_a_code_follows_from_its_label_alone(self, make: Make):
        book = make(50, 7, seed=3)
        every = book.codes(torch.arange(50))
        order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(book.codes(order), every[order])
        for label in (0, 17, 49):
            torch.testing.assert_close(make(50, 7, seed=3).codes(torch.tensor([label])), every[label : label + 1])

    @pytest.mark.parametrize("block", [1, 13, 100])
    def test_blocks_change_nothing(self, make: Make, block, monkeypatch):
        book = make(50, 3, seed=3)
        predicted = predictions(book, 4)
        codes, scores = book.codes(torch.arange(50)), book.scores(predicted)
        monkeypatch.setattr(decoding, "BLOCK", block)
        again = make(50, 3, seed=3)
        torch.testing.assert_close(again.codes(torch.arange(50)), codes)
        torch.testing.assert_close(again.scores(predicted), scores)

    def test_asking_changes_neither_the_ids_nor_the_codes(self, make: Make):
        book, ids = make(20, 4), torch.arange(20)
        codes = book.codes(ids)
        assert torch.equal(ids, torch.arange(20))
        codes.zero_()
        assert book.codes(ids).any()

    def test_the_global_random_state_is_left_alone(self, make: Make):
        before = torch.get_rng_state()
        book = make(20, 4)
        book.codes(torch.arange(20))
        book.concept()
        assert torch.equal(before, torch.get_rng_state())

    def test_the_seed_decides(self, make: Make):
        ids = torch.arange(40)
        first, same, other = (make(40, 8, seed=seed).codes(ids) for seed in (1, 1, 2))
        assert torch.equal(first, same)
        assert not torch.isclose(first, other).all(1).any()

    def test_a_seed_of_any_size(self, make: Make):
        ids = torch.arange(40)
        small, large = make(40, 8, seed=5).codes(ids), make(40, 8, seed=5 + 2**70).codes(ids)
        assert not torch.isclose(small, large).all(1).any()

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
        codes = book.codes(torch.arange(12))
        for row, labels, values in zip(sums, sets, weights, strict=True):
            expected = torch.zeros(book.width)
            for label, value in zip(labels, values, strict=True):
                expected += codes[label] * (value if weighted else 1)
            torch.testing.assert_close(row, expected)

    def test_superpose_takes_weights_of_another_dtype(self, make: Make):
        book = make(12, 4)
        ids, offsets = torch.tensor([1, 2, 2]), torch.tensor([0, 1])
        sums = book.superpose(ids, offsets, torch.tensor([2, 1, 1]))
        torch.testing.assert_close(sums, 2 * book.codes(torch.tensor([1, 2])))
        half = torch.tensor([2, 1, 1], dtype=torch.float64)
        torch.testing.assert_close(book.superpose(ids, offsets, half), sums)

    def test_superpose_of_empty_sets_alone(self, make: Make):
        book = make(12, 4)
        nothing = torch.tensor([], dtype=torch.int64)
        assert torch.equal(book.superpose(nothing, torch.tensor([0, 0, 0])), torch.zeros(3, book.width))

    @pytest.mark.parametrize(("n_labels", "dim"), [(30, 5), (30, 64), (7, 1), (1, 5), (1, 1)])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 5e-7)])
    def test_scores_are_inner_products_with_the_codes(self, make: Make, n_labels, dim, dtype, tolerance):
        book = make(n_labels, dim, seed=2)
        predicted = predictions(book, 6, dtype)
        scores = book.scores(predicted)
        assert scores.shape == (6, n_labels)
        assert scores.dtype == dtype
        torch.testing.assert_close(scores, similarities(book, predicted), rtol=0, atol=tolerance)

    def test_scores_of_low_precision_predictions(self, make: Make):
        book = make(30, 16)
        predicted = predictions(book, 6)
        scores = book.scores(predicted.bfloat16()).float()
        torch.testing.assert_close(scores, book.scores(predicted), rtol=0, atol=0.02)

    def test_scores_of_no_predictions(self, make: Make):
        # Regression: the FFT fails on an empty batch.
        book = make(30, 5)
        nothing = torch.zeros(0, book.width, dtype=torch.float64, requires_grad=True)
        scores = book.scores(nothing)
        assert scores.shape == (0, 30)
        assert scores.dtype == torch.float64
        scores.sum().backward()
        assert nothing.grad.shape == nothing.shape

    def test_a_code_scores_one_with_its_own_label(self, make: Make):
        book = make(100, 64)
        codes = book.codes(torch.arange(100))
        scores = book.scores(normalize(codes, dim=1) if is_real(book) else codes)
        torch.testing.assert_close(scores.diagonal(), torch.ones(100))
        assert scores.fill_diagonal_(0).abs().max() < 0.7

    def test_scores_are_differentiable(self, make: Make):
        book = make(7, 3)
        predicted = predictions(book, 2, torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(book.scores, (predicted,))

    def test_growing_keeps_the_old_codes_and_scores(self, make: Make):
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

    def test_shrinking_is_refused(self, make: Make):
        book = make(40, 6)
        with pytest.raises(ParameterError, match="a codebook of 40 labels can't shrink to 39"):
            book.grow(39)

    @pytest.mark.parametrize("n_labels", [41.0, "41", None])
    def test_growing_to_what_is_no_number(self, make: Make, n_labels):
        book = make(40, 6)
        with pytest.raises(ParameterError, match=r"`n_labels` must be an integer >= 1, got .*(41|None)"):
            book.grow(n_labels)
        assert book.n_labels == 40

    def test_state_gives_the_same_codes_again(self, make: Make):
        book = make(40, 6, seed=9)
        book.grow(42)
        state = json.loads(json.dumps(book.state()))
        again = type(book)(**state)
        assert again.state() == book.state()
        ids = torch.arange(42)
        assert torch.equal(again.codes(ids), book.codes(ids))
        assert torch.equal(again.concept(), book.concept())

    def test_numbers_of_numpy_are_numbers(self, make: Make):
        # They come out of matrix shapes; JSON does not take them.
        book = make(np.int64(40), np.int32(6), seed=np.uint8(9))
        book.grow(np.int64(41))
        assert json.loads(json.dumps(book.state())) == make(40, 6, seed=9).state() | {"n_labels": 41}

    def test_repr_is_how_it_is_made(self, make: Make):
        book = make(40, 6, seed=9)
        text = repr(book)
        assert text.startswith(f"{type(book).__name__}(n_labels=40, dim=6, seed=9")
        assert eval(text, vars(codebooks)).state() == book.state()

    def test_one_label_of_one_dimension(self, make: Make):
        book = make(1, 1)
        code = book.codes(torch.tensor([0]))
        assert code.shape == (1, book.width)
        assert torch.isfinite(code).all()
        torch.testing.assert_close(book.scores(normalize(code, dim=1)), torch.ones(1, 1))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"n_labels": 0}, "`n_labels` must be an integer >= 1, got 0"),
            ({"n_labels": -5}, "`n_labels` must be an integer >= 1, got -5"),
            ({"n_labels": 2.5}, "`n_labels` must be an integer >= 1, got 2.5"),
            ({"n_labels": "many"}, "`n_labels` must be an integer >= 1, got 'many'"),
            ({"dim": 0}, "`dim` must be an integer >= 1, got 0"),
            ({"dim": 8.0}, "`dim` must be an integer >= 1, got 8.0"),
            ({"dim": None}, "`dim` must be an integer >= 1, got None"),
            ({"seed": -1}, "`seed` must be an integer >= 0, got -1"),
            ({"seed": 0.5}, "`seed` must be an integer >= 0, got 0.5"),
        ],
    )
    def test_wrong_parameters(self, make: Make, arguments, message):
        with pytest.raises(ParameterError) as error:
            make(**{"n_labels": 10, "dim": 4, "seed": 0} | arguments)
        assert type(make(10, 4)).__name__ in str(error.value)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("ids", "found"),
        [
            (torch.tensor([1.0]), "torch.float32"),
            (torch.tensor([True]), "torch.bool"),
            (torch.tensor([1j]), "torch.complex64"),
            ([1, 2], "list"),
            (np.array([1, 2]), "ndarray"),
        ],
    )
    def test_ids_of_a_wrong_type(self, make: Make, ids, found):
        book = make(10, 4)
        message = f"label ids must be a tensor of integers, got {found}"
        for use in (book.codes, lambda ids: book.superpose(ids, torch.tensor([0]))):
            with pytest.raises(DTypeError, match=message):
                use(ids)

    @pytest.mark.parametrize(("ids", "shape"), [(torch.tensor(3), r"\(\)"), (torch.tensor([[1, 2]]), r"\(1, 2\)")])
    def test_ids_of_a_wrong_shape(self, make: Make, ids, shape):
        with pytest.raises(ShapeError, match=rf"label ids must have shape \(m,\), got {shape}"):
            make(10, 4).codes(ids)

    @pytest.mark.parametrize("label", [-1, 10, 16, 2**40, -(2**40)])
    def test_ids_of_no_label(self, make: Make, label):
        # Regression: permuting a number beyond the slots never came to an end, and a negative id read the
        # cached table from behind.
        book = make(10, 4)
        ids = torch.tensor([3, label])
        message = f"label ids must be between 0 and 9, got {label}; `grow` makes room"
        for use in (book.codes, lambda ids: book.superpose(ids, torch.tensor([0]))):
            with pytest.raises(ParameterError, match=message):
                use(ids)

    @pytest.mark.parametrize("shape", [(4,), (1, 4, 4), (2, 5), (2, 0)])
    def test_predictions_of_a_wrong_shape(self, make: Make, shape):
        book = make(10, 4)
        with pytest.raises(ShapeError) as error:
            book.scores(torch.zeros(shape))
        name = type(book).__name__
        assert f"{name}.scores: predicted codes must have shape (batch, {book.width}), got {shape}" in str(
            error.value
        )

    @pytest.mark.parametrize("device", DEVICES)
    def test_the_same_on_every_device(self, make: Make, device):
        book, other = make(60, 9, seed=5), make(60, 9, seed=5)
        ids, offsets, predicted = torch.arange(60), torch.tensor([0, 20, 20]), predictions(book, 3)
        results = {
            "codes": (other.codes(ids.to(device)), book.codes(ids)),
            "sums": (other.superpose(ids.to(device), offsets.to(device)), book.superpose(ids, offsets)),
            "scores": (other.scores(predicted.to(device)), book.scores(predicted)),
        }
        for there, here in results.values():
            assert there.device.type == device
            torch.testing.assert_close(there.cpu(), here)


class TestConceptVector:
    """The paper stores ⊕ p ⊗ c and decodes with p†. Leaving p out gives the same scores."""

    @pytest.mark.parametrize("make", CIRCULAR)
    def test_binding_with_it_cancels_for_circular_codes(self, make: Make):
        book = make(200, 32, seed=6)
        p, codes = book.concept().double(), book.codes(torch.arange(200)).double()
        for k in (1, 2, 9):
            ids = torch.randperm(200, generator=torch.Generator().manual_seed(k))[:k]
            memory = circular.superpose(circular.bind(p, circular.unpack(codes[ids])))
            decoded = circular.unbind(memory, p)
            the_long_way = circular.similarity(decoded, circular.unpack(codes))
            total = book.superpose(ids, torch.tensor([0])).double()
            shortcut = book.scores(circular.pack(circular.unpack(total)))[0]
            torch.testing.assert_close(shortcut, the_long_way, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("make", HOLOGRAPHIC)
    def test_binding_with_it_cancels_for_real_codes(self, make: Make):
        book = make(200, 32, seed=6)
        p, codes = book.concept().double(), book.codes(torch.arange(200)).double()
        for k in (1, 2, 9):
            ids = torch.randperm(200, generator=torch.Generator().manual_seed(k))[:k]
            decoded = holographic.unbind(holographic.superpose(holographic.bind(p, codes[ids])), p)
            the_long_way = holographic.similarity(decoded, codes, cosine=True)
            total = book.superpose(ids, torch.tensor([0])).double()
            shortcut = book.scores(normalize(total, dim=1))[0]
            torch.testing.assert_close(shortcut, the_long_way, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("make", EVERY)
    def test_it_follows_from_the_seed_and_is_no_label(self, make: Make):
        book = make(50, 64, seed=1)
        p = book.concept()
        assert p.shape == (64,)
        assert torch.equal(p, make(90, 64, seed=1).concept())
        assert not torch.isclose(p, make(50, 64, seed=2).concept()).any()
        predicted = normalize(p, dim=0) if is_real(book) else circular.pack(p)
        assert book.scores(predicted[None]).abs().max() < 0.7


class TestIndependent:
    def test_pinned_angles(self):
        # Angles in units of 2π / 2²⁴, from −π. They must never change: models keep a seed, not the codes.
        book = IndependentCodebook(2**41, 4, seed=7)
        angles = circular.unpack(book.codes(torch.tensor([0, 2, 2**40])).double())
        expected = torch.tensor(PINNED_7)[[0, 2, 3]].double() * 2**-24 * 2 * math.pi - math.pi
        torch.testing.assert_close(angles, expected, rtol=0, atol=1e-6)

    def test_each_dimension_is_uniform(self):
        codes = IndependentCodebook(20_000, 8, seed=1).codes(torch.arange(20_000))
        turns = (circular.unpack(codes) / (2 * math.pi) + 0.5).clamp(0, 1 - 1e-6)
        for column in turns.T:
            counts = torch.histc(column, bins=50, min=0, max=1)
            # 49 degrees of freedom: mean 49, standard deviation 9.9.
            assert 15 < ((counts - 400) ** 2 / 400).sum() < 95

    def test_no_two_labels_share_a_code(self):
        codes = IndependentCodebook(20_000, 2).codes(torch.arange(20_000))
        assert len(codes.unique(dim=0)) == 20_000

    def test_distinct_labels_are_unrelated(self):
        # A mean of dim cosines of uniform angles: mean 0, variance 1/2 / dim.
        codes = IndependentCodebook(1000, 64, seed=2).codes(torch.arange(1000))
        similarity = (codes @ codes.mT / 64)[tuple(torch.triu_indices(1000, 1000, offset=1))]
        assert abs(similarity.mean()) < 5e-4
        assert similarity.var().item() == pytest.approx(1 / 128, rel=0.02)

    def test_huge_ids(self):
        book = IndependentCodebook(2**62, 16)
        ids = torch.tensor([2**31, 2**32, 2**32 + 1, 2**40, 2**61 + 2**40, 0, 1])
        codes = book.codes(ids)
        gram = codes @ codes.mT / 16
        torch.testing.assert_close(gram.diagonal(), torch.ones(7))
        assert gram.fill_diagonal_(0).abs().max() < 0.8

    def test_without_a_cache_no_table_is_built(self, monkeypatch):
        blocks = []
        generate = IndependentCodebook._generate
        monkeypatch.setattr(
            IndependentCodebook, "_generate", lambda self, ids: blocks.append(len(ids)) or generate(self, ids)
        )
        book = IndependentCodebook(200_000, 8)
        predicted = predictions(book, 2)
        scores = book.scores(predicted)
        assert book._table is None
        assert sum(blocks) == 200_000
        assert max(blocks) * book.width <= decoding.BLOCK < 200_000 * book.width
        ids = torch.tensor([0, 99_999, max(blocks) - 1, max(blocks), 199_999])
        torch.testing.assert_close(scores[:, ids], predicted @ book.codes(ids).mT / 8)

    def test_a_cache_is_generated_once_and_again_when_it_grows(self, monkeypatch):
        book, calls = IndependentCodebook(50, 4, cache=True), []
        generate = IndependentCodebook._generate
        monkeypatch.setattr(
            IndependentCodebook, "_generate", lambda self, ids: calls.append(len(ids)) or generate(self, ids)
        )
        assert book._table is None
        for _ in range(2):
            book.codes(torch.arange(50))
            book.scores(predictions(book, 2))
        assert calls == [50]
        book.grow(60)
        book.scores(predictions(book, 2))
        assert calls == [50, 60]

    def test_cache_and_no_cache_agree(self):
        ids = torch.arange(50)
        plain, cached = IndependentCodebook(50, 4), IndependentCodebook(50, 4, cache=True)
        assert torch.equal(plain.codes(ids), cached.codes(ids))


class TestSpectral:
    def test_by_hand(self, monkeypatch):
        # M = 8 and 3 dimensions take the frequencies 1, 2, 3; label 1 is in slot 1: 45°, 90°, 135°.
        monkeypatch.setattr(SpectralCodebook, "slots", lambda self, ids: ids)
        book = SpectralCodebook(8, 3, length=8)
        assert book.frequencies.tolist() == [1, 2, 3]
        angles = circular.unpack(book.codes(torch.tensor([0, 1, 2])))
        expected = torch.deg2rad(torch.tensor([[0.0, 0, 0], [45, 90, 135], [90, 180, -90]]))
        torch.testing.assert_close(circular.wrap(angles - expected), torch.zeros(3, 3), rtol=0, atol=1e-6)
        # cos 45° + cos 90° + cos 135° = 0, and cos 90° + cos 180° + cos 270° = −1.
        scores = book.scores(circular.pack(torch.zeros(1, 3)))[0, :3]
        torch.testing.assert_close(scores, torch.tensor([1.0, 0, -1 / 3]))

    def test_pinned_slots_and_frequencies(self):
        # They must never change: models keep a seed, not the codes.
        book = SpectralCodebook(1000, 8, seed=0)
        assert book.length == PINNED_LENGTH
        assert book.frequencies.tolist() == PINNED_FREQUENCIES
        assert book.slots(torch.tensor([0, 1, 2, 3, 500, 998, 999])).tolist() == PINNED_SLOTS

    @given(n_labels=st.integers(1, 300), dim=st.integers(1, 80), seed=st.integers(0, 2**64))
    @settings(max_examples=50)
    def test_frequencies_and_slots(self, n_labels, dim, seed):
        book = SpectralCodebook(n_labels, dim, seed)
        assert book.length % 2 == 0
        assert book.length >= max(n_labels, 2 * (dim + 1))
        frequencies = book.frequencies.tolist()
        assert len(frequencies) == len(set(frequencies)) == dim
        assert frequencies == sorted(frequencies)
        assert frequencies[0] >= 1
        assert frequencies[-1] <= book.length // 2 - 1
        book.grow(book.length)
        assert sorted(book.slots(torch.arange(book.length)).tolist()) == list(range(book.length))

    @pytest.mark.parametrize("n_labels", [1000, 3993, 13_330, 30_938, 670_091, 1_000_000])
    def test_the_default_length_is_close_with_room_to_grow(self, n_labels):
        length = SpectralCodebook(n_labels, 16).length
        assert 1.049 * n_labels < length < 1.15 * n_labels

    @pytest.mark.parametrize(
        ("n_labels", "dim", "length", "least"),
        [(100, 8, 101, 100), (100, 8, 98, 100), (10, 8, 16, 18), (100, 8, 200.0, 100), (100, 8, "200", 100)],
    )
    def test_wrong_lengths(self, n_labels, dim, length, least):
        with pytest.raises(ParameterError) as error:
            SpectralCodebook(n_labels, dim, length=length)
        assert f"`length` must be an even number >= {least}" in str(error.value)
        assert f"got {length!r}" in str(error.value)

    @pytest.mark.parametrize(
        ("n_labels", "dim", "length"),
        [(1000, 256, None), (1000, 256, 1000), (50, 200, None), (3, 1, 4), (997, 100, 1994), (5000, 16, 2 * 2503)],
    )
    def test_the_transform_agrees_with_the_definition(self, n_labels, dim, length):
        book = SpectralCodebook(n_labels, dim, seed=8, length=length)
        ids = torch.arange(n_labels)
        turns = book.slots(ids)[:, None] * book.frequencies % book.length
        theta = turns.double() * (2 * math.pi / book.length)
        torch.testing.assert_close(book.codes(ids).double(), circular.pack(theta), rtol=0, atol=1e-6)
        predicted = predictions(book, 3, torch.float64)
        exact = predicted @ circular.pack(theta).mT / dim
        torch.testing.assert_close(book.scores(predicted), exact, rtol=0, atol=1e-12)
        torch.testing.assert_close(book.scores(predicted), similarities(book, predicted), rtol=0, atol=5e-7)
        torch.testing.assert_close(book.scores(predicted.float()).double(), exact, rtol=0, atol=1e-5)

    def test_codes_of_many_slots_keep_their_digits(self):
        # slot × frequency is near 10¹⁴ here, far beyond what float32 counts.
        book = SpectralCodebook(20_000_000, 4, seed=1)
        ids = torch.tensor([0, 12_345_678, 19_999_999])
        turns = [[slot * f % book.length for f in book.frequencies.tolist()] for slot in book.slots(ids).tolist()]
        theta = torch.tensor(turns, dtype=torch.float64) * (2 * math.pi / book.length)
        torch.testing.assert_close(book.codes(ids).double(), circular.pack(theta), rtol=0, atol=2e-6)

    @pytest.mark.parametrize("dim", [1, 7, 64])
    def test_codes_of_the_shortest_length_are_orthogonal(self, dim):
        # With every frequency between 0 and M/2 in use, two codes miss only the constant and the alternating
        # one: a similarity of 0 or −1/dim.
        book = SpectralCodebook(2 * (dim + 1), dim, length=2 * (dim + 1))
        codes = book.codes(torch.arange(book.n_labels)).double()
        gram = (codes @ codes.mT / dim).fill_diagonal_(0)
        assert torch.minimum(gram.abs(), (gram + 1 / dim).abs()).max() < 1e-6

    def test_it_grows_up_to_its_length(self):
        book = SpectralCodebook(100, 8, length=120)
        predicted = predictions(book, 2)
        before = book.scores(predicted)
        book.grow(120)
        after = book.scores(predicted)
        torch.testing.assert_close(after[:, :100], before)
        torch.testing.assert_close(after, similarities(book, predicted))
        with pytest.raises(ParameterError, match=r"121 labels do not fit into its 120 slots; .* more `slots`"):
            book.grow(121)
        assert book.n_labels == 120

    def test_the_state_is_small_and_not_the_slots(self):
        book = SpectralCodebook(1000, 8, seed=3)
        book.scores(predictions(book, 1))
        assert book.state() == {"n_labels": 1000, "dim": 8, "seed": 3, "length": book.length}


def label_sets(kind: str, n_labels: int, k: int, trials: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "random":
        return torch.rand(trials, n_labels, generator=generator).argsort(1)[:, :k]
    step = {"consecutive": 1, "every seventh": 7}[kind]
    start = torch.randint(0, n_labels - k * step, (trials, 1), generator=generator)
    return start + step * torch.arange(k)


def retrieved(book: Codebook, sets: torch.Tensor) -> float:
    """The fraction of k stored labels among the k best scored."""
    n, k = sets.shape
    sums = book.superpose(sets.flatten(), torch.arange(0, n * k, k))
    best = book.scores(circular.pack(circular.unpack(sums))).topk(k).indices
    return (best[:, :, None] == sets[:, None, :]).any(1).float().mean().item()


class TestCapacity:
    """Do 1,000 labels of 256 dimensions hold sets of 25? Means over 20 sets."""

    @pytest.mark.parametrize("kind", ["random", "consecutive", "every seventh"])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_spectral_codes_hold_no_less_than_independent_ones(self, kind, seed):
        sets = label_sets(kind, 1000, 25, trials=20)
        independent = retrieved(IndependentCodebook(1000, 256, seed), sets)
        assert 0.85 < independent < 0.95
        assert retrieved(SpectralCodebook(1000, 256, seed), sets) > independent

    @pytest.mark.parametrize("kind", ["consecutive", "every seventh"])
    def test_without_permuted_slots_progressions_collapse(self, kind, monkeypatch):
        sets = label_sets(kind, 1000, 25, trials=20)
        book = SpectralCodebook(1000, 256)
        assert retrieved(book, sets) > 0.95
        monkeypatch.setattr(SpectralCodebook, "slots", lambda self, ids: ids)
        assert retrieved(SpectralCodebook(1000, 256), sets) < 0.6


class TestHolographic:
    @pytest.mark.parametrize("dim", [1, 2, 7, 64])
    def test_projected_codes_have_a_unit_spectrum(self, dim):
        codes = HolographicCodebook(100, dim).codes(torch.arange(100))
        magnitude = torch.fft.rfft(codes).abs()
        torch.testing.assert_close(magnitude, torch.ones_like(magnitude))
        torch.testing.assert_close(codes.norm(dim=1), torch.ones(100))

    @pytest.mark.parametrize("dim", [31, 32])
    def test_plain_codes_are_normal_with_variance_one_over_dim(self, dim):
        codes = HolographicCodebook(5000, dim, seed=1, projected=False).codes(torch.arange(5000)).double()
        scaled = codes * math.sqrt(dim)
        # 5,000 draws in each dimension: a standard error of 0.014 for the mean and 0.02 for the variance.
        assert scaled.mean(0).abs().max() < 0.06
        assert (scaled.var(0) - 1).abs().max() < 0.09
        for bound, probability in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
            assert (scaled.abs() < bound).double().mean().item() == pytest.approx(probability, abs=0.004)
        # The two numbers that Box and Muller make of one pair are independent.
        correlation = torch.corrcoef(scaled.T).fill_diagonal_(0)
        assert correlation.abs().max() < 0.07

    def test_box_and_muller_by_hand(self):
        first, second, third, fourth = (number * 2**-24 for number in PINNED_0[0])
        radius = [math.sqrt(-2 * math.log(1 - number)) for number in (first, second)]
        angle = [2 * math.pi * number for number in (third, fourth)]
        expected = [radius[0] * math.cos(angle[0]), radius[1] * math.cos(angle[1]), radius[0] * math.sin(angle[0])]
        code = HolographicCodebook(5, 3, seed=0, projected=False).codes(torch.tensor([0]))[0]
        assert code.tolist() == pytest.approx([value / math.sqrt(3) for value in expected], abs=1e-6)

    @pytest.mark.parametrize("projected", [True, False])
    def test_scores_are_cosines(self, projected):
        book = HolographicCodebook(50, 16, projected=projected)
        predicted = predictions(book, 3)
        expected = holographic.similarity(predicted[:, None], book.codes(torch.arange(50)), cosine=True)
        torch.testing.assert_close(book.scores(predicted), expected)

    def test_projection_keeps_the_label(self):
        ids = torch.arange(20)
        plain = HolographicCodebook(20, 16, projected=False).codes(ids)
        torch.testing.assert_close(HolographicCodebook(20, 16).codes(ids), holographic.project(plain))

    def test_state_tells_which(self):
        for projected in (True, False):
            assert HolographicCodebook(20, 16, projected=projected).state()["projected"] is projected


PINNED_0 = [
    [14254383, 7111711, 1971737, 2782558],
    [11965807, 9230765, 1185127, 5687059],
    [8815382, 2381994, 12898954, 6578039],
    [1660735, 1378427, 2071765, 9165199],
]
PINNED_7 = [
    [14088638, 776242, 3083917, 4412586],
    [1227477, 2244797, 2554225, 4228487],
    [14229219, 6584236, 9663232, 15587824],
    [2008284, 2708288, 9952916, 3119629],
]
PINNED_LENGTH = 1080
PINNED_FREQUENCIES = [19, 163, 176, 178, 280, 283, 406, 524]
PINNED_SLOTS = [69, 494, 572, 169, 795, 750, 165]


def lowbias32(x: int) -> int:
    """The published hash, in numbers that never overflow."""
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


class TestUniform:
    @pytest.mark.parametrize(("seed", "expected"), [(0, PINNED_0), (7, PINNED_7)])
    def test_pinned_numbers(self, seed, expected):
        numbers = uniform(seed, torch.tensor([0, 1, 2, 2**40]), 4) * 2**24
        assert numbers.long().tolist() == expected

    @given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
    def test_the_hash_is_the_published_one(self, numbers):
        assert _mixed(torch.tensor(numbers)).tolist() == [lowbias32(number) for number in numbers]

    def test_numbers_are_below_one_on_a_grid_that_float32_holds(self):
        numbers = uniform(0, torch.arange(10_000), 20)
        assert numbers.shape == (10_000, 20)
        assert numbers.dtype == torch.float32
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert torch.equal(numbers * 2**24, (numbers * 2**24).round())

    @given(
        ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8),
        n=st.integers(1, 12),
        seed=st.integers(0, 2**70),
    )
    @settings(max_examples=50)
    def test_an_entry_follows_from_its_position_alone(self, ids, n, seed):
        numbers = uniform(seed, torch.tensor(ids), n)
        assert torch.equal(numbers, uniform(seed, torch.tensor(ids), n + 5)[:, :n])
        for i, label in enumerate(ids):
            assert torch.equal(numbers[i : i + 1], uniform(seed, torch.tensor([label]), n))

    @pytest.mark.parametrize(
        "other",
        [
            lambda ids: uniform(1, ids, 16),
            lambda ids: uniform(2**32, ids, 16),
            lambda ids: uniform(0, ids + 1, 16),
            lambda ids: uniform(0, ids + 2**32, 16),
            lambda ids: uniform(0, -1 - ids, 16),
            lambda ids: uniform(0, ids, 17)[:, 1:],
            lambda ids: uniform(0, ids, 16).flip(1),
        ],
        ids=["seed", "large seed", "neighbours", "high bits", "negative ids", "next column", "mirrored column"],
    )
    def test_numbers_of_other_positions_are_unrelated(self, other):
        ids = torch.arange(5000)
        pairs = torch.stack([uniform(0, ids, 16).flatten(), other(ids).flatten()])
        # 80,000 pairs: a standard error of 0.0035.
        assert abs(torch.corrcoef(pairs.double())[0, 1]) < 0.015


class TestPermuted:
    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 16, 17, 255, 256, 257, 1080])
    def test_it_is_a_permutation(self, size):
        for seed in range(5):
            assert sorted(permuted(torch.arange(size), size, seed, stream=1).tolist()) == list(range(size))

    @given(size=st.integers(1, 3000), seed=st.integers(0, 2**64), stream=st.integers(0, 5))
    @settings(max_examples=50)
    def test_it_is_a_permutation_of_any_size(self, size, seed, stream):
        every = permuted(torch.arange(size), size, seed, stream=stream)
        assert torch.equal(every.sort().values, torch.arange(size))
        some = torch.tensor([size - 1, 0, size // 2])
        assert torch.equal(permuted(some, size, seed, stream=stream), every[some])

    @pytest.mark.parametrize("size", [2**30, 2**30 + 1, 2**40 + 1])
    def test_large_sizes(self, size):
        x = torch.cat([torch.arange(1000), torch.arange(size - 1000, size)])
        values = permuted(x, size, 0, stream=1)
        assert len(values.unique()) == 2000
        assert values.min() >= 0
        assert values.max() < size

    def test_its_argument_is_not_changed(self):
        x = torch.arange(100)
        permuted(x, 100, 0, stream=1)
        assert torch.equal(x, torch.arange(100))

    def test_seeds_and_streams_differ(self):
        x = torch.arange(1000)
        first = permuted(x, 1000, 0, stream=1)
        for other in (permuted(x, 1000, 1, stream=1), permuted(x, 1000, 0, stream=2), x):
            # Two random permutations agree in one place on average.
            assert (first == other).sum() < 8

    def test_progressions_do_not_stay_progressions(self):
        slots = permuted(torch.arange(1080), 1080, 0, stream=2)
        for step in (1, 2, 7, 108):
            differences = (slots[step:] - slots[:-step]) % 1080
            # 1 − 1/e of all differences occur in random permutations.
            assert 0.55 < len(differences.unique()) / len(differences) < 0.72


class TestPhases:
    @pytest.mark.parametrize("phases", [2, 4, 8])
    def test_angles_are_equidistant_and_all_occur(self, phases):
        codes = IndependentCodebook(60, 30, seed=3, phases=phases).codes(torch.arange(60))
        turns = circular.unpack(codes) / (2 * math.pi) * phases
        nearest = turns.round() - turns.round().min()
        torch.testing.assert_close(turns - turns.min(), nearest, atol=1e-5, rtol=0)
        assert torch.bincount(nearest.long().flatten() % phases).min() > 1800 / phases * 0.8

    def test_is_part_of_the_state(self):
        book = IndependentCodebook(20, 6, phases=4)
        assert book.state()["phases"] == 4
        ids = torch.arange(20)
        assert torch.equal(IndependentCodebook(**book.state()).codes(ids), book.codes(ids))
        assert "phases" not in IndependentCodebook(20, 6).state()

    def test_one_phase_is_none(self):
        with pytest.raises(ParameterError, match="`phases` must be an integer >= 2, got 1"):
            IndependentCodebook(20, 6, phases=1)


@pytest.mark.parametrize("book", [IndependentCodebook, HolographicCodebook, SpectralCodebook])
def test_superposing_from_a_table_is_superposing(book):
    ids, offsets = torch.tensor([3, 0, 3, 7, 7]), torch.tensor([0, 2, 2])
    weights = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0])
    plain, cached = book(9, 6), book(9, 6, cache=True)
    torch.testing.assert_close(cached.superpose(ids, offsets, weights), plain.superpose(ids, offsets, weights))
    torch.testing.assert_close(
        cached.superpose(ids, offsets, weights, check=False), plain.superpose(ids, offsets, weights)
    )
