"""Other outputs, solved by hand and learning a small dataset; tables, claims and pictures from made-up numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.data import Split
from circlet.network import LabelSets, Network
from circlet.network.encoders import SparseRows
from circlet.settings import NetworkSettings
from circlet_paper import outputs
from circlet_paper.outputs import (
    HASHES,
    NETWORKS,
    Buckets,
    HadamardCodebook,
    HashedNetwork,
    LearnedVectors,
    LowRankNetwork,
    Measured,
    OutputCell,
    Settings,
    other_cells,
)
from circlet_paper.training_cells import FIXED, Recipe, TrainingCell, run_settings

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


class TestOutputCell:
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


def output_of(cell: TrainingCell) -> str:
    other = getattr(cell, "output", None)
    return other or ("independent" if cell.settings()["codebook"] == "independent" else "spectral")


def spectral_is_best(cell: TrainingCell, metric: str) -> float:
    level = {"spectral": 40, "independent": 30, "hadamard": 35, "mach": 20, "low-rank": 38}[output_of(cell)]
    return level + (0.01 * cell.settings()["dim"] if output_of(cell) == "independent" else 0)


class TestCells:
    def test_every_output_has_as_many_seeds_and_dimensions(self):
        planned = outputs.cells(Settings())
        assert len(planned) == 2 * 5 * 4 * 3
        assert {output_of(cell) for cell in planned} == set(outputs.OUTPUTS)
        assert {cell.settings()["dim"] for cell in planned} == {50, 100, 200, 400}

    def test_only_the_output_differs(self):
        for dim in (50, 400):
            same = [cell.settings() for cell in outputs.cells(Settings()) if cell.settings()["dim"] == dim]
            for key in ("hidden", "loss", "dropout", "batch_size", "optimizer", "lr"):
                assert len({str(settings[key]) for settings in same}) == 1


class TestClaims:
    def test_hold_where_the_numbers_do(self, made_up, verdicts):
        assert list(verdicts(outputs, made_up(outputs, spectral_is_best)).values()) == ["yes"] * 5

    def test_fail_where_the_numbers_do_not_hold(self, made_up, verdicts):
        result = made_up(outputs, lambda cell, metric: -spectral_is_best(cell, metric))
        assert list(verdicts(outputs, result).values()) == ["no"] * 5

    def test_one_seed_that_disagrees_is_no_lead(self, made_up, verdicts):
        def score(cell, metric):
            return 50.0 if output_of(cell) == "mach" and cell.seed == 1 else spectral_is_best(cell, metric)

        found = verdicts(outputs, made_up(outputs, score))
        assert found["Models with spectral codes tag better than MACH with as many outputs"] == "no"

    def test_seeds_are_paired(self, made_up):
        result = made_up(outputs, spectral_is_best, only=("delicious",))
        result["cells"] = [
            cell for cell in result["cells"] if "hadamard" not in cell["cell"] or cell["about"]["seed"] == 2
        ]
        gaps = Measured(result).gaps("delicious", "spectral", "hadamard", "P@5")
        assert gaps == {dim: [pytest.approx(5)] for dim in (50, 100, 200, 400)}

    def test_a_missing_dataset(self, made_up):
        result = made_up(outputs, spectral_is_best, only=("delicious",))
        tables = {table.title: table for table in outputs.tables(result)}
        assert len(tables["Delicious, %"].rows) == 20
        assert "not available" in tables["EURLex-4K, %"].note
        assert len(outputs.claims(result)) == 5


def test_page_and_picture(made_up, rendered):
    result = made_up(outputs, spectral_is_best)
    for cell in result["cells"]:
        if cell["about"].get("output") == "mach":
            cell["decided"] = [{"setting": "hashes", "value": 4 + 6 * (cell["about"]["seed"] % 2)}]
    page = rendered(result)
    assert "| MACH | 100 | 4, 10 |" in page
    assert "points ahead with 100, 200, 400, 800 outputs" in page
