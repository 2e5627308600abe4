from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.network import Network, NetworkSettings
from circlet.network.encoders import ColumnEntries, RowGradient, SparseLinear, SparseRows
from circlet.settings import TrainingSettings
from circlet.settings.run import OPTIMIZERS
from circlet.training import optimizers
from circlet.training.optimizers import ALGORITHMS, FusedAdadelta, RowOptimizer, make_optimizer, set_rate

CPU = torch.device("cpu")
KEPT = {"adamw": "exp_avg", "adam": "exp_avg", "adadelta": "square_avg", "sgd": "momentum_buffer"}
#: torch's classes, with the settings that ours have by default.
TORCHS = {
    "adamw": lambda weights, **given: torch.optim.AdamW(weights, fused=True, **given),
    "adam": lambda weights, **given: torch.optim.Adam(weights, fused=True, **given),
    "adadelta": torch.optim.Adadelta,
    "sgd": lambda weights, **given: torch.optim.SGD(weights, momentum=0.9, **given),
    "plain-sgd": torch.optim.SGD,
}


def of(weight: torch.nn.Parameter, algorithm: str, **options) -> RowOptimizer:
    return RowOptimizer({"params": [weight], "algorithm": algorithm, **options})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_makes_one_over_all_weights(name):
    network = Network(NetworkSettings(dim=6, hidden=(5,)), 4, 7, sparse=True)
    made = make_optimizer(network, TrainingSettings(optimizer=name, lr=0.5, weight_decay=0.1), CPU)
    (group,) = made.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.1)
    assert len(group["params"]) == len(list(network.parameters()))
    set_rate(made, 0.25)
    assert group["lr"] == 0.25


def test_a_rate_on_the_device_stays_where_it_is():
    rate = torch.tensor(0.5)
    made = torch.optim.Adadelta([torch.nn.Parameter(torch.ones(3))], lr=rate, capturable=True)
    kept = made.param_groups[0]["lr"]
    set_rate(made, 0.125)
    assert made.param_groups[0]["lr"] is kept
    assert kept.item() == 0.125


def test_weights_beside_the_first_layer_are_stepped_by_the_main_optimizer():
    network = Network(NetworkSettings(dim=6, hidden=(5,)), 4, 7, sparse=True)
    made = make_optimizer(network, TrainingSettings(first_layer="sgd", lr=0.5), CPU)
    others, first = made.param_groups
    assert first["params"] == [network.encoder.hidden[0].weight]
    assert len(others["params"]) + 1 == len(list(network.parameters()))
    assert first["lr"] == 0.5 * optimizers.FIRST_LAYER_FACTOR
    set_rate(made, 0.25)
    assert (others["lr"], first["lr"]) == (0.25, 0.25 * optimizers.FIRST_LAYER_FACTOR)
    # A custom encoder has no known first layer.
    network = Network(NetworkSettings(dim=6, hidden=(5,)), 4, 7, sparse=False, encoder=torch.nn.Linear(4, 5))
    (group,) = make_optimizer(network, TrainingSettings(first_layer="sgd"), CPU).param_groups
    assert len(group["params"]) == len(list(network.parameters()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_fused_adadelta_is_torchs(decay):
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((70, 33), (5,), ())]
    ends = []
    for kind in (FusedAdadelta, torch.optim.Adadelta):
        weights = [torch.nn.Parameter(tensor.clone().cuda()) for tensor in start]
        optimizer = kind(weights, lr=torch.tensor(0.7, device="cuda"), weight_decay=decay, capturable=True)
        noise = torch.Generator("cuda").manual_seed(1)
        for _ in range(5):
            for weight in weights:
                weight.grad = torch.randn(weight.shape, generator=noise, device="cuda")
            optimizer.step()
        ends.append(weights + [optimizer.state[w][key] for w in weights for key in ("square_avg", "acc_delta")])
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_whole_weights_are_stepped_as_torchs_classes_do(name, decay):
    if name == "plain-sgd" and decay:
        pytest.skip("has no weight decay")
    ends = []
    for make in (lambda weight, **given: of(weight, name, **given), lambda w, **given: TORCHS[name]([w], **given)):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))
        optimizer = make(weight, lr=0.1, weight_decay=decay)
        for step in range(4):
            optimizer.zero_grad(set_to_none=True)
            (weight.sin() * (step + 1)).sum().backward()
            optimizer.step()
        ends.append((weight.detach(), optimizer.state_dict()["state"].get(0, {})))
    (ours, our_state), (torchs, its_state) = ends
    assert torch.equal(ours, torchs)
    for key, value in our_state.items():
        assert torch.equal(value, its_state[key]), key


def test_torchs_compiler_is_not_imported():
    code = (
        "import sys, torch; from circlet.training.optimizers import RowOptimizer; "
        "w = torch.nn.Parameter(torch.ones(2)); "
        "optimizer = RowOptimizer({'params': [w], 'algorithm': 'adamw', 'lr': 0.1}); "
        "w.sum().backward(); optimizer.step(); assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def gradient(n: int, rows: list[int], values: torch.Tensor) -> RowGradient:
    """The gradient of these of n rows, as of a batch in which each of them is a document's only feature."""
    one_hot = sp.csr_matrix((np.ones(len(rows), np.float32), (range(len(rows)), rows)), shape=(len(rows), n))
    return RowGradient(ColumnEntries.of(one_hot, by_rows=True, exact=True), values)


class TestByRows:
    def layer(self, by_rows: bool, X: sp.csr_matrix, **given) -> tuple[torch.nn.Module, RowOptimizer]:
        """A first layer after five steps with the same batch."""
        network = Network(NetworkSettings(dim=6, hidden=(16,), dropout=0.0), X.shape[1], 7, sparse=True)
        optimizer = make_optimizer(network, TrainingSettings(lr=0.1, **given), CPU)
        layer = network.encoder.hidden[0]
        for _ in range(5):
            optimizer.zero_grad(set_to_none=True)
            layer(SparseRows.for_training(X, by_rows=by_rows)).square().sum().backward()
            assert (layer.weight.grad is None) == by_rows
            optimizer.step()
            assert not hasattr(layer.weight, "row_gradient")
        return layer, optimizer

    @pytest.mark.parametrize("decay", [0.0, 0.1])
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_rows_that_every_batch_touches_are_stepped_as_torch_does(self, name, decay):
        X = sp.csr_matrix(np.random.default_rng(0).random((5, 8), dtype=np.float32))
        ends = [self.layer(by_rows, X, optimizer=name, weight_decay=decay) for by_rows in (True, False)]
        (ours, our_state), (torchs, its_state) = ends
        assert torch.equal(ours.weight, torchs.weight)
        assert torch.equal(ours.bias, torchs.bias)
        ours_kept, its_kept = our_state.state[ours.weight], its_state.state[torchs.weight]
        assert ours_kept.keys() == its_kept.keys()
        assert all(torch.equal(ours_kept[key], its_kept[key]) for key in its_kept)

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_rows_that_none_touches_stay_as_they_are(self, name):
        X = sp.csr_matrix(np.array([[0, 1, 0, 2], [0, 0, 0, 1]], dtype=np.float32))
        layer, optimizer = self.layer(True, X, optimizer=name, weight_decay=0.1)
        start = Network(NetworkSettings(dim=6, hidden=(16,), dropout=0.0), 4, 7, sparse=True).encoder.hidden[0]
        changed = (layer.weight != start.weight).any(dim=1)
        assert changed.tolist() == [False, True, False, True]
        assert optimizer.state[layer.weight][KEPT[name]].any(dim=1).tolist() == [False, True, False, True]

    def steps(self, optimizer: RowOptimizer, weight: torch.nn.Parameter, *gradients) -> None:
        for rows, values in gradients:
            weight.row_gradient = gradient(len(weight), rows, torch.tensor(values))
            optimizer.step()

    def test_adamw_by_hand(self, monkeypatch):
        weight = torch.nn.Parameter(torch.tensor([[1.0], [2.0]]))
        options = {**ALGORITHMS["adamw"].options, "beta1": 0.5, "beta2": 0.75, "eps": 0.0}
        monkeypatch.setitem(ALGORITHMS, "adamw", ALGORITHMS["adamw"]._replace(options=options))
        optimizer = of(weight, "adamw", lr=0.1, weight_decay=0.5)
        self.steps(optimizer, weight, ([0], [[3.0]]), ([1], [[4.0]]), ([0], [[1.0]]))
        # Step 1: decay to 0.95, moments 1.5 and 2.25, corrected 3 and 9: less 0.1.
        # Step 3: decay to 0.8075, moments 1.25 and 1.9375, corrected for three steps.
        corrected = (1.25 / (1 - 0.5**3)) / math.sqrt(1.9375 / (1 - 0.75**3))
        # Row 1 is decayed and moved in step 2 only, whose bias correction is that of the second step.
        second = (2 / (1 - 0.5**2)) / math.sqrt(4 / (1 - 0.75**2))
        wanted = [[0.85 * 0.95 - 0.1 * corrected], [2 * 0.95 - 0.1 * second]]
        torch.testing.assert_close(weight.detach(), torch.tensor(wanted))
        assert optimizer.state[weight]["step"].item() == 3

    def test_sgd_by_hand(self, monkeypatch):
        weight = torch.nn.Parameter(torch.zeros(3, 1))
        options = {**ALGORITHMS["sgd"].options, "momentum": 0.5}
        monkeypatch.setitem(ALGORITHMS, "sgd", ALGORITHMS["sgd"]._replace(options=options))
        optimizer = of(weight, "sgd", lr=1.0)
        self.steps(optimizer, weight, ([0, 2], [[1.0], [4.0]]), ([2], [[1.0]]), ([0], [[0.0]]))
        # A row's momentum waits until the row is touched again.
        assert weight.detach().flatten().tolist() == [-1.5, 0.0, -4.0 - 3.0]

    def test_a_step_without_any_rows_leaves_the_weight_alone(self):
        weight = torch.nn.Parameter(torch.ones(3, 2))
        optimizer = of(weight, "adamw", lr=0.1)
        self.steps(optimizer, weight, ([1], [[1.0, 1.0]]))
        before = weight.detach().clone()
        weight.row_gradient = gradient(3, [], torch.zeros(0, 2))
        optimizer.step()
        assert torch.equal(weight, before)


class TestPlainSGD:
    def trained(self, X: sp.csr_matrix, units: torch.Tensor | None, **options) -> tuple[torch.Tensor, ...]:
        """The weight of a first layer before and after a step, and its whole gradient."""
        layer = SparseLinear(X.shape[1], 4, generator=torch.Generator().manual_seed(0))
        before = layer.weight.detach().clone()
        layer(SparseRows.for_training(X), units).square().sum().backward()
        whole, layer.weight.grad = layer.weight.grad, None
        layer(SparseRows.for_training(X, by_rows=True, exact=False), units).square().sum().backward()
        RowOptimizer({"params": [layer.weight], "algorithm": "plain-sgd", "lr": 0.25}, **options).step()
        assert not hasattr(layer.weight, "row_gradient")
        return before, layer.weight.detach(), whole

    # No or few rows are touched, or more than half of them, which are then all updated.
    @pytest.mark.parametrize("columns", [[], [1, 4], [0, 1, 2, 4, 5]])
    @pytest.mark.parametrize("units", [None, torch.tensor([0, 3])])
    # All at once, and in blocks of one or two rows.
    @pytest.mark.parametrize("block", [1 << 20, 4, 8])
    def test_a_step_is_torchs(self, columns, units, block):
        dense = np.zeros((3, 6), dtype=np.float32)
        dense[:, columns] = np.random.default_rng(0).random((3, len(columns)))
        before, after, whole = self.trained(sp.csr_matrix(dense), units, block=block)
        torch.testing.assert_close(after, before - 0.25 * whole)
        untouched = np.setdiff1d(range(6), columns)
        assert torch.equal(after[untouched], before[untouched])
