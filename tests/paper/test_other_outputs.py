"""Other outputs: solved by hand, and learning a small dataset."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.data.dataset import Split
from circlet.network import Network
from circlet.network.batch import LabelSets, SparseRows
from circlet.settings import NetworkSettings
from circlet_paper.other_outputs import (
    HASHES,
    NETWORKS,
    Buckets,
    HadamardCodebook,
    HashedNetwork,
    LearnedVectors,
    LowRankNetwork,
    OutputCell,
    other_cells,
)
from circlet_paper.training_cells import FIXED, Recipe, Settings, run_settings

pytestmark = pytest.mark.usefixtures("one_thread")
GIVEN = {"dim": 20, "hidden": (32,), "dropout": 0.0, "epochs": 20, "batch_size": 16, "lr": 0.02}


def sets(*labels: list[int], weights: list[float] | None = None) -> LabelSets:
    counts = torch.tensor([len(own) for own in labels])
    return LabelSets(
        torch.tensor([label for own in labels for label in own]),
        counts.cumsum(0) - counts,
        torch.repeat_interleave(torch.arange(len(labels)), counts),
        None if weights is None else torch.tensor(weights),
    )


class TestHadamard:
    def test_rows_of_the_whole_matrix_are_orthogonal(self):
        book = HadamardCodebook(64, 32)
        assert (book.size, book.width) == (64, 64)
        codes = book.codes(torch.arange(64))
        torch.testing.assert_close(codes.abs(), torch.full((64, 64), math.sqrt(0.5)))
        torch.testing.assert_close(book.scores(codes), torch.eye(64))

    def test_more_labels_than_outputs_have_different_codes(self):
        codes = HadamardCodebook(500, 16).codes(torch.arange(500))
        assert codes.shape == (500, 32)
        assert len(torch.unique(codes, dim=0)) == 500

    def test_the_seed_determines_the_codes(self):
        first, same, other = (HadamardCodebook(50, 8, seed).codes(torch.arange(50)) for seed in (3, 3, 4))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)


class TestBuckets:
    @pytest.fixture
    def buckets(self) -> Buckets:
        """Two hash functions of two buckets for three labels."""
        made = Buckets(3, 4, 2, torch.Generator().manual_seed(0))
        made.table = torch.tensor([[0, 0, 1], [2, 3, 3]])
        return made

    def test_scores_are_mean_probabilities(self, buckets):
        probabilities = torch.tensor([[0.5, 0.2, 0.9, 0.4]])
        found = buckets.logits(probabilities.logit())
        torch.testing.assert_close(found, torch.tensor([[0.7, 0.45, 0.3]]))

    def test_a_bucket_is_true_once_however_many_labels_are_in_it(self, buckets):
        assert buckets.targets(sets([0, 1], [2], []), 4).tolist() == [[1, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]]

    def test_padding_does_not_count(self, buckets):
        assert buckets.targets(sets([0, 2], weights=[1.0, 0.0]), 4).tolist() == [[1, 0, 1, 0]]

    def test_shares(self, buckets):
        # Labels in half, half and none of 8 documents; both of the first two are missing in a quarter.
        found = buckets.shares(torch.tensor([4, 4, 0]), 8, 4)
        torch.testing.assert_close(found, torch.tensor([0.75, 0, 0.5, 0.5], dtype=torch.float64))

    def test_every_hash_function_has_its_own_outputs(self):
        table = Buckets(1000, 40, 4, torch.Generator().manual_seed(0)).table
        for number, own in enumerate(table):
            assert (own.min(), own.max()) == (10 * number, 10 * number + 9)

    def test_the_loss_is_over_buckets(self):
        network = HashedNetwork(NetworkSettings(dim=2, hidden=(3,)), 5, 3, sparse=True, hashes=2)
        network.scorer.table = torch.tensor([[0, 0, 1], [2, 3, 3]])
        probabilities = torch.tensor([[0.5, 0.2, 0.9, 0.4]])
        loss = network.loss(probabilities.logit(), sets([1]))
        # Label 1 is in buckets 0 and 3.
        assert float(loss) == pytest.approx(-math.log(0.5 * 0.8 * 0.1 * 0.4), rel=1e-5)


class TestLearnedVectors:
    def test_scores_by_hand(self):
        scorer = LearnedVectors(2, 2, torch.Generator().manual_seed(0))
        with torch.no_grad():
            scorer.vectors.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
            scorer.bias.copy_(torch.tensor([0.5, 0.0]))
        assert scorer.logits(torch.tensor([[1.0, 3.0]])).tolist() == [[7.5, -3.0]]

    def test_gradient(self):
        """The gradient of a label's vector is (probability − truth) times the output, summed over rows."""
        network = LowRankNetwork(NetworkSettings(dim=2, hidden=(3,)), 5, 3, sparse=True)
        output = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
        network.loss(output, sets([0, 2], [1])).backward()
        truth = torch.tensor([[1.0, 0, 1], [0, 1, 0]])
        error = (network.scorer.logits(output).sigmoid() - truth).detach() / 2
        torch.testing.assert_close(network.scorer.vectors.grad, error.mT @ output)
        torch.testing.assert_close(network.scorer.bias.grad, error.sum(0))

    def test_parameters_grow_with_the_labels(self):
        few, many = (
            LowRankNetwork(NetworkSettings(dim=2, hidden=(3,)), 5, n, sparse=True).parameter_counts()
            for n in (3, 10)
        )
        assert many["total"] - few["total"] == 7 * (4 + 1)


def test_encoders_start_from_the_same_weights():
    settings = NetworkSettings(dim=4, hidden=(6,), seed=2)
    ours = Network(settings, 7, 9, sparse=True)
    for makes in NETWORKS.values():
        other = makes[0](settings, 7, 9, sparse=True)
        assert torch.equal(other.encoder.hidden[0].weight, ours.encoder.hidden[0].weight)
        rows = SparseRows.of(sp.csr_matrix(np.eye(7, dtype=np.float32)))
        assert other(rows).shape == (7, 8)
        assert other.logits(rows).shape == (7, 9)


class TestCell:
    @pytest.mark.parametrize("output", NETWORKS)
    def test_learns(self, output):
        """Each feature means one label: after a few epochs the labels of a row rank first."""
        random = np.random.default_rng(0)
        Y = sp.csr_matrix((random.random((200, 12)) < 0.15).astype(np.float32))
        split = Split(Y.copy(), Y)
        cell = OutputCell("delicious", FIXED, GIVEN, output=output)
        model = cell.fit(split, run_settings(FIXED, GIVEN), torch.device("cpu"), None)
        some = np.flatnonzero(np.diff(Y.indptr) > 0)
        ids, _ = model.top_k(Y[some], 1)
        assert np.mean([ids[i, 0] in Y[row].indices for i, row in enumerate(some)]) > 0.95
        assert (model.training["documents"], model.training["held_out"]) == (190, 10)
        chosen = [each["value"] for each in model.training.get("decided", ())]
        assert len(chosen) == (output == "mach")
        assert set(chosen) <= set(HASHES)

    def test_names_and_settings(self):
        planned = Recipe("", FIXED, {"dim": 50}).cells("wordnet", Settings(seeds=1))
        (mach,), (hadamard,) = (other_cells(planned, output) for output in ("mach", "hadamard"))
        assert mach.name == "wordnet/fixed-mach-d50-h1024-seed0"
        assert hadamard.name == "wordnet/fixed-hadamard-d50-h1024-seed0"
        assert mach.about()["hashes"] == list(HASHES)
        assert "hashes" not in hadamard.about()
        assert hadamard.settings() == planned[0].settings()
