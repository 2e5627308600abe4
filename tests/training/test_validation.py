"""What validation measures, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.network import Network
from circlet.network.batch import as_batch
from circlet.settings import NetworkSettings
from circlet.training.loop import VALIDATION_LOSS, measured, watched, worth


def test_the_least_loss_is_the_best():
    assert worth("loss", 2.0) < worth("loss", 1.0)
    assert worth("P@1", 2.0) > worth("P@1", 1.0)


def test_names_in_records():
    assert (watched("loss"), watched("nDCG@5")) == (VALIDATION_LOSS, "nDCG@5")


@pytest.fixture
def network() -> Network:
    return Network(NetworkSettings(head="fc", hidden=(4,), loss="bce", dropout=0.0), 3, 5, sparse=True)


def rows(n: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    random = np.random.default_rng(0)
    X = sp.csr_matrix(random.random((n, 3)).astype(np.float32))
    return X, sp.csr_matrix((random.random((n, 5)) < 0.4).astype(np.float32))


def test_the_loss_is_the_mean_over_all_rows(network):
    X, Y = rows(700)  # several batches, the last one shorter
    found = measured(network, X, Y, "loss")
    with torch.no_grad():
        logits = network.scorer.logits(network(as_batch(X)))
        whole = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, torch.from_numpy(Y.toarray()), reduction="sum"
        )
    assert found == {VALIDATION_LOSS: pytest.approx(float(whole) / 700, rel=1e-5)}


def test_a_metric_of_the_ranking(network):
    X, _ = rows(6)
    with torch.no_grad():
        best = network.scorer.logits(network(as_batch(X))).argmax(dim=1).numpy()
    Y = sp.csr_matrix((np.ones(3), (np.arange(3), best[:3])), shape=(6, 5))
    assert measured(network, X, Y, "P@1") == {"P@1": pytest.approx(0.5)}
