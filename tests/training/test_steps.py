"""Recorded steps do what plain ones do. They need a GPU; test_batches has what needs none."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.training.runs import Stop
from torch import nn

from circlet.network import Ensemble, Network, NetworkSettings
from circlet.network.network import top_k
from circlet.training import TrainingSettings, steps, train
from circlet.training.steps import Batches

CUDA = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
N, F, L = 330, 40, 15


def data(*, dense: bool = False):
    random = np.random.default_rng(0)
    centers = random.random((L, F))
    Y = (random.random((N, L)) < 0.15).astype(np.float32)
    X = (Y @ centers * (random.random((N, F)) < 0.4)).astype(np.float32)
    X[5], Y[7] = 0, 0
    return X if dense else sp.csr_matrix(X), sp.csr_matrix(Y)


def network(**given) -> Network:
    return Network(NetworkSettings(**{"dim": 32, "hidden": (48,), "dropout": 0.2} | given), F, L, sparse=True)


def test_what_can_be_recorded():
    def recordable(made: Network, device: torch.device = CUDA, **options) -> bool:
        return steps.recordable(made, Batches(*data(), TrainingSettings(), 0), device, **options)

    assert recordable(network())
    assert not recordable(network(), torch.device("cpu"))
    custom = network()
    custom.encoder = nn.Linear(F, 48)
    assert not recordable(custom)
    assert not recordable(network(loss="cosine"), table=10)  # codes that are too many to keep
    assert recordable(network(loss="bce"), table=10)


@needs_gpu
class TestRecorded:
    @pytest.mark.parametrize("optimizer", ["adamw", "adam", "adadelta", "sgd"])
    @pytest.mark.parametrize(
        ("head", "loss", "codebook"),
        [
            ("chrr", "bce", "spectral"),
            ("chrr-amplitude", "cosine", "spectral"),
            ("chrr", "cosine", "independent"),
            ("chrr-half", "softmax", "four-phase"),
            ("hrr", "cosine", "auto"),
            ("fc", "bce", "auto"),
        ],
    )
    def test_ends_where_plain_steps_end(self, head, loss, codebook, optimizer, monkeypatch):
        X, Y = data()
        lr = {"adadelta": 1.0, "sgd": 0.1}.get(optimizer, 1e-2)
        chosen = TrainingSettings(epochs=4, batch_size=32, optimizer=optimizer, lr=lr)
        losses = []
        for record in (True, False):
            if not record:
                monkeypatch.setattr(steps, "recordable", lambda *_: False)
            made = network(head=head, loss=loss, codebook=codebook, dropout=0.0)
            losses.append([entry["loss"] for entry in train(made, X, Y, chosen, device=CUDA)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)
        assert losses[0][-1] < losses[0][0]

    @pytest.mark.parametrize("dense", [False, True])
    def test_dropout_and_validation(self, dense):
        X, Y = data(dense=dense)
        made = Network(NetworkSettings(dim=32, hidden=(64,), dropout=0.3), F, L, sparse=not dense)
        chosen = TrainingSettings(epochs=12, batch_size=32, input_dropout=0.1, lr=1e-2)
        history = train(made, X[:300], Y[:300], chosen, device=CUDA, validation=(X[300:], Y[300:]))
        assert history[-1]["nDCG@5"] > history[0]["nDCG@5"]
        ids, _ = top_k(Ensemble([made]), X[300:], 3)
        assert ids.shape == (30, 3)

    def test_noise_differs_from_step_to_step(self):
        X, Y = data()
        made = network(dropout=0.5)
        before = made.noise.get_state()
        train(made, X, Y, TrainingSettings(epochs=1, batch_size=32), device=CUDA)
        assert not torch.equal(made.noise.get_state()[: len(before)], before)

    def test_resumes_after_an_epoch(self, tmp_path):
        X, Y = data()
        whole = train(network(), X, Y, TrainingSettings(epochs=3, batch_size=32), device=CUDA)
        chosen = TrainingSettings(epochs=3, batch_size=32)
        with pytest.raises(InterruptedError):
            train(network(), X, Y, chosen, device=CUDA, folder=tmp_path, reporter=Stop(2))
        rest = train(network(), X, Y, chosen, device=CUDA, folder=tmp_path, resume=True)
        np.testing.assert_allclose([r["loss"] for r in rest], [r["loss"] for r in whole], rtol=0.02)
