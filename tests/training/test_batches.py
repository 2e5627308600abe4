from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from circlet.network import Scorer
from circlet.network.encoders import LabelSets, label_sets
from circlet.network.losses import LOSSES
from circlet.network.network import make_codebook
from circlet.settings import NetworkSettings, TrainingSettings
from circlet.training.steps import Batches, DeviceRows

CPU = torch.device("cpu")


def ragged(seed: int, n: int, width: int) -> sp.csr_matrix:
    """Rows of very different lengths, some empty."""
    random = np.random.default_rng(seed)
    filled = random.random((n, width)) < random.random((n, 1)) * random.integers(0, 2, (n, 1))
    return sp.csr_matrix(np.where(filled, random.standard_normal((n, width)), 0).astype(np.float32))


def as_sets(labels: LabelSets) -> list[list[int]]:
    kept = slice(None) if labels.weights is None else labels.weights > 0
    ids, documents = labels.ids[kept], labels.documents[kept]
    return [sorted(ids[documents == document].tolist()) for document in range(len(labels))]


class TestBatches:
    def identity(self, n: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Row i has the feature i and the label i."""
        return sp.identity(n, dtype=np.float32, format="csr"), sp.identity(n, dtype=np.float32, format="csr")

    def rows(self, batches: Batches, epoch: int, first: int = 0) -> list[list[int]]:
        found = []
        for rows, labels in batches.epoch(epoch, first):
            assert torch.equal(rows.columns, labels.ids)
            found.append(labels.ids.tolist())
        return found

    @pytest.mark.parametrize(("n", "size"), [(1, 4), (4, 4), (10, 4), (10, 1), (10, 100)])
    def test_every_row_once_an_epoch(self, n, size):
        batches = Batches(*self.identity(n), TrainingSettings(batch_size=size), seed=0)
        found = self.rows(batches, 0)
        assert len(found) == batches.steps(0) == math.ceil(n / size)
        assert all(len(part) == size for part in found[:-1])
        assert sorted(row for part in found for row in part) == list(range(n))

    def test_the_order_follows_from_seed_and_epoch(self):
        make = lambda seed: Batches(*self.identity(50), TrainingSettings(batch_size=8), seed=seed)  # noqa: E731
        assert self.rows(make(0), 1) == self.rows(make(0), 1)
        assert self.rows(make(0), 1) != self.rows(make(0), 2)
        assert self.rows(make(0), 1) != self.rows(make(1), 1)

    @pytest.mark.parametrize("first", [1, 4, 6, 7])
    def test_an_epoch_can_be_entered_at_any_step(self, first):
        batches = Batches(*self.identity(50), TrainingSettings(batch_size=8), seed=0)
        assert self.rows(batches, 3, first) == self.rows(batches, 3)[first:]

    @pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
    def test_input_dropout(self, sparse):
        features = np.ones((300, 100), dtype=np.float32)
        given = sp.csr_matrix(features) if sparse else features
        batches = Batches(
            given, self.identity(300)[1], TrainingSettings(batch_size=300, input_dropout=0.25), seed=0
        )
        rows, _ = next(batches.epoch(0, 0))
        values = rows.values if sparse else rows
        assert float((values == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
        assert set(values.unique().tolist()) == {0, float(np.float32(4 / 3))}
        again, _ = next(batches.epoch(0, 0))
        assert torch.equal(again.values if sparse else again, values)
        other, _ = next(batches.epoch(1, 0))
        assert not torch.equal(other.values if sparse else other, values)
        np.testing.assert_array_equal(given.toarray() if sparse else given, 1)


class TestDeviceRows:
    @given(seed=st.integers(0, 10**6), n=st.integers(1, 9), width=st.integers(1, 12))
    @example(seed=42, n=2, width=4)  # nothing but empty rows
    @settings(max_examples=60)
    def test_a_batch_is_the_rows_written_out_and_their_labels(self, seed, n, width):
        X, Y = ragged(seed, n, width), abs(ragged(seed + 1, n, 7))
        rows = np.random.default_rng(seed).integers(0, n, 5)
        dense, labels = DeviceRows(X, Y, CPU).batch(torch.from_numpy(rows))
        expected = torch.from_numpy(X[rows].toarray()).bfloat16()
        np.testing.assert_array_equal(dense.float().numpy(), expected.float().numpy())
        assert as_sets(labels) == as_sets(label_sets(Y[rows]))

    def test_dense_rows(self):
        X = np.arange(12, dtype=np.float32).reshape(4, 3)
        got, _ = DeviceRows(X, ragged(0, 4, 5), CPU).batch(torch.tensor([2, 0]))
        np.testing.assert_array_equal(got.numpy(), X[[2, 0]])

    def test_every_batch_has_the_same_shapes(self):
        data = DeviceRows(ragged(3, 20, 30), abs(ragged(4, 20, 7)), CPU)
        made = [data.batch(torch.tensor(rows)) for rows in ([0, 1, 2], [17, 18, 19])]
        assert len({(X.shape, labels.ids.shape, labels.starts.shape) for X, labels in made}) == 1

    def test_rows_too_wide_to_write_out_do_not_fit(self):
        X, Y = ragged(0, 4, 10), abs(ragged(1, 4, 5))
        assert DeviceRows.fits(X, Y, 4, most=40)
        assert not DeviceRows.fits(X, Y, 5, most=40)


@pytest.mark.parametrize(
    ("width", "dense", "by_rows"), [(25, False, True), (24, False, False), (100, True, False)]
)
def test_steps_are_by_rows_where_a_batch_touches_few_of_the_features(width, dense, by_rows):
    """Six rows with two words each, all different."""
    X = sp.csr_matrix((np.ones(12, np.float32), np.arange(12) % width, np.arange(0, 13, 2)), shape=(6, width))
    given = X.toarray() if dense else X
    batches = Batches(given, sp.csr_matrix((6, 2)), TrainingSettings(batch_size=3), 0)
    assert batches.by_rows == by_rows
    assert dense or [rows.by_columns.by_rows for rows, _ in batches.epoch(0, 0)] == [by_rows, by_rows]


@pytest.mark.parametrize("head", ["chrr", "hrr", "fc"])
@pytest.mark.parametrize("loss", ["cosine", "bce", "softmax"])
def test_labels_that_only_fill_up_count_nothing(head, loss):
    if head == "fc" and loss == "cosine":
        pytest.skip("fc has no codes")
    X, Y = ragged(5, 8, 4), abs(ragged(6, 8, 9))
    rows = np.array([7, 0, 3, 3])
    codebook = make_codebook(NetworkSettings(head=head, dim=6, loss=loss), 9)
    made = LOSSES[loss]
    scorer = Scorer(codebook, 9, scaled=made.scaled, biased=made.biased)
    width = 9 if codebook is None else codebook.width
    output = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    _, padded = DeviceRows(X, Y, CPU).batch(torch.from_numpy(rows))
    torch.testing.assert_close(
        made.function(scorer, output, padded), made.function(scorer, output, label_sets(Y[rows]))
    )
