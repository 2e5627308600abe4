from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.network import Network, NetworkSettings, inference
from circlet.network.gain import Gain
from circlet.network.inference import score_blocks, top_k

N_LABELS = 12
X = sp.random(60, 20, density=0.3, format="csr", dtype=np.float32, random_state=0)
pytestmark = pytest.mark.usefixtures("one_thread")


def make(**changes) -> Network:
    return Network(NetworkSettings(dim=32, hidden=(24,), **changes), 20, N_LABELS, sparse=True)


class TestTopK:
    def test_batches_change_nothing(self, monkeypatch):
        network = make(dropout=0.5)
        ids, scores = top_k(network, X, 4)
        for size in (1, 7, 1000):
            monkeypatch.setattr(inference, "BATCH", size)
            again = top_k(network, X, 4)
            np.testing.assert_array_equal(again[0], ids)
            np.testing.assert_allclose(again[1], scores, rtol=1e-5, atol=1e-6)
        assert ids.shape == scores.shape == (X.shape[0], 4)
        assert ids.dtype == np.int64
        assert scores.dtype == np.float32

    @pytest.mark.parametrize("k", [3, 100])
    def test_no_rows(self, k):
        ids, scores = top_k(make(), X[:0], k)
        assert ids.shape == scores.shape == (0, min(k, N_LABELS))
        assert ids.dtype == np.int64
        assert scores.dtype == np.float32

    def test_more_labels_than_there_are(self):
        ids, _ = top_k(make(), X, 100)
        assert ids.shape == (X.shape[0], N_LABELS)
        assert (np.sort(ids, axis=1) == np.arange(N_LABELS)).all()

    def test_neither_transposes_nor_trains(self, monkeypatch):
        def refuse(*_):
            raise AssertionError("transposed")

        monkeypatch.setattr(type(X), "tocsc", refuse)
        network = make(dropout=0.5).train()
        ids, _ = top_k(network, X, 3)
        assert not network.training
        assert (top_k(network, X, 3)[0] == ids).all()

    @pytest.mark.parametrize("head", ["chrr-amplitude", "fc"])
    def test_by_gain(self, head, monkeypatch):
        network = make(head=head)
        gain = Gain(2.0, -1.0, torch.linspace(0, 3, N_LABELS, dtype=torch.float64))
        monkeypatch.setattr(inference, "BATCH", 7)
        ids, scores = top_k(network, X, 4, gain=gain, allowed=np.arange(N_LABELS) > 2)
        every = np.concatenate(list(score_blocks(network, X)))
        values = gain.log_probabilities(torch.from_numpy(every)).numpy() + gain.log_weights.numpy()
        np.testing.assert_array_equal(ids, 3 + np.argsort(-values[:, 3:], axis=1)[:, :4])
        np.testing.assert_allclose(scores, np.take_along_axis(every, ids, axis=1), rtol=1e-5, atol=1e-5)
        assert top_k(network, X[:0], 4, gain=gain)[0].shape == (0, 4)


class TestScoreBlocks:
    def test_are_the_scores_behind_the_ranking(self, monkeypatch):
        network = make()
        monkeypatch.setattr(inference, "BATCH", 7)
        blocks = list(score_blocks(network, X))
        assert [len(block) for block in blocks] == [7] * 8 + [4]
        scores = np.concatenate(blocks)
        ids, best = top_k(network, X, N_LABELS)
        np.testing.assert_allclose(np.take_along_axis(scores, ids, axis=1), best, rtol=1e-5, atol=1e-5)

    def test_no_rows(self):
        (block,) = score_blocks(make(), X[:0])
        assert block.shape == (0, N_LABELS)
