from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ParameterError


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
        assert book.length == 1080
        assert book.frequencies.tolist() == [19, 163, 176, 178, 280, 283, 406, 524]
        slots = book.slots(torch.tensor([0, 1, 2, 3, 500, 998, 999]))
        assert slots.tolist() == [69, 494, 572, 169, 795, 750, 165]

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
        assert f"`length`: found {length!r}; wanted an even number >= {least}" in str(error.value)

    @pytest.mark.parametrize(
        ("n_labels", "dim", "length"),
        [(1000, 256, None), (1000, 256, 1000), (50, 200, None), (3, 1, 4), (997, 100, 1994), (5000, 16, 2 * 2503)],
    )
    def test_the_transform_agrees_with_the_definition(self, n_labels, dim, length, predictions):
        book = SpectralCodebook(n_labels, dim, seed=8, length=length)
        ids = torch.arange(n_labels)
        turns = book.slots(ids)[:, None] * torch.from_numpy(book.frequencies) % book.length
        theta = turns.double() * (2 * math.pi / book.length)
        torch.testing.assert_close(book.codes(ids).double(), circular.pack(theta), rtol=0, atol=1e-6)
        predicted = predictions(book, 3, torch.float64)
        exact = predicted @ circular.pack(theta).mT / dim
        torch.testing.assert_close(book.scores(predicted), exact, rtol=0, atol=1e-12)
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

    def test_it_grows_up_to_its_length(self, predictions, similarities):
        book = SpectralCodebook(100, 8, seed=3, length=120)
        book.grow(120)
        predicted = predictions(book, 2)
        torch.testing.assert_close(book.scores(predicted), similarities(book, predicted))
        with pytest.raises(
            ParameterError, match=r"found 121 labels; wanted at most its 120 slots: .*more `slots`"
        ):
            book.grow(121)
        # The slots themselves are not kept.
        assert book.state() == {"n_labels": 120, "dim": 8, "seed": 3, "length": 120}


def label_sets(step: int, n_labels: int = 1000, k: int = 25, trials: int = 20) -> torch.Tensor:
    """Sets of labels that are so far apart; random ones for 0."""
    generator = torch.Generator().manual_seed(0)
    if not step:
        return torch.rand(trials, n_labels, generator=generator).argsort(1)[:, :k]
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

    @pytest.mark.parametrize("step", [0, 1, 7])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_spectral_codes_hold_at_least_as_much_as_independent_ones(self, step, seed, monkeypatch):
        sets = label_sets(step)
        independent = retrieved(IndependentCodebook(1000, 256, seed), sets)
        assert 0.85 < independent < 0.95
        spectral = retrieved(SpectralCodebook(1000, 256, seed), sets)
        assert spectral > independent
        if step and not seed:  # without permuted slots, progressions collapse
            assert spectral > 0.95
            monkeypatch.setattr(SpectralCodebook, "slots", lambda self, ids: ids)
            assert retrieved(SpectralCodebook(1000, 256), sets) < 0.6
