from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.errors import ParameterError
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.network.network import score_blocks, top_k

F, L = 20, 12
X = sp.random(30, F, density=0.3, format="csr", dtype=np.float32, random_state=0)
CURVES = [(2.0, -1.0), (0.5, 0.25), (1.0, 0.0)]
HEADS = {"chrr": "spectral", "chrr-amplitude": "independent", "hrr": "holographic", "fc": "auto"}


def make(seed: int, head: str = "chrr", **changes) -> Network:
    settings = {"dim": 16, "hidden": (8,), "head": head, "codebook": HEADS[head], "loss": "softmax", **changes}
    network = Network(NetworkSettings(**settings, seed=seed), F, L, sparse=True)
    with torch.no_grad():
        network.encoder.hidden[0].weight.mul_(50)  # so that documents differ
    return network


@cache
def ensemble(head: str = "chrr") -> Ensemble:
    """Three networks, which tests only read."""
    return Ensemble([make(seed, head) for seed in (3, 4, 5)], CURVES)


class TestRows:
    """From rows to the best labels and to all scores, a batch at a time."""

    def test_batches_change_nothing(self):
        network = Ensemble([make(0, dropout=0.5)])
        ids, scores = top_k(network, X, 4)
        for size in (1, 7):
            again = top_k(network, X, 4, batch=size)
            np.testing.assert_array_equal(again[0], ids)
            np.testing.assert_allclose(again[1], scores, rtol=1e-5, atol=1e-6)
        assert ids.shape == scores.shape == (X.shape[0], 4)
        assert ids.dtype == np.int64
        assert scores.dtype == np.float32

    def test_neither_transposes_nor_trains(self, monkeypatch):
        def refuse(*_):
            raise AssertionError("transposed")

        monkeypatch.setattr(type(X), "tocsc", refuse)
        ensemble = Ensemble([make(seed, dropout=0.5).train() for seed in (0, 1)])
        one, other = (top_k(ensemble, X, 3)[1] for _ in range(2))
        np.testing.assert_array_equal(one, other)
        assert not any(network.training for network in ensemble.networks)

    def test_blocks_are_the_scores_behind_the_ranking(self):
        network = Ensemble([make(0)])
        blocks = list(score_blocks(network, X, batch=7))
        assert [len(block) for block in blocks] == [7, 7, 7, 7, 2]
        ids, best = top_k(network, X, L)
        scores = np.concatenate(blocks)
        np.testing.assert_allclose(np.take_along_axis(scores, ids, axis=1), best, rtol=1e-5, atol=1e-5)


class TestEnsemble:
    def test_mistakes(self):
        with pytest.raises(ParameterError, match="`memory`: found"):
            top_k(ensemble(), X, 3, memory=0)

    def test_counts_of_all_networks(self):
        counts, one = ensemble().parameter_counts(), make(0).parameter_counts()
        assert counts == {part: 3 * count for part, count in one.items()}

    def test_all_grow(self):
        network = Ensemble([make(seed) for seed in (0, 1)])
        network.grow(L + 2)
        assert network.n_labels == L + 2
        assert [each.codebook.n_labels for each in network.networks] == [L + 2, L + 2]
        assert sorted(top_k(network, X[:1], 99)[0][0]) == list(range(L + 2))

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    def test_on_a_gpu(self):
        ids, scores = top_k(ensemble(), X, 4)
        moved = Ensemble([make(seed) for seed in (3, 4, 5)], CURVES).to(torch.device("cuda"))
        assert moved.device.type == "cuda"
        found = top_k(moved, X, 4, allowed=np.ones(L, dtype=bool))
        np.testing.assert_array_equal(found[0], ids)
        np.testing.assert_allclose(found[1], scores, rtol=1e-3, atol=1e-4)
