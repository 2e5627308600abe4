from __future__ import annotations

import pytest
import torch

from circlet.network import Network, NetworkSettings
from circlet.settings import TrainingSettings
from circlet.settings.training import OPTIMIZERS
from circlet.training import optimizers
from circlet.training.optimizers import FusedAdadelta, make_optimizer, set_rate

CPU = torch.device("cpu")


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


class TestFirstLayer:
    def test_the_others_are_stepped_by_the_main_optimizer(self):
        network = Network(NetworkSettings(dim=6, hidden=(5,)), 4, 7, sparse=True)
        made = make_optimizer(network, TrainingSettings(first_layer="sgd", lr=0.5), CPU)
        others, first = made.param_groups
        assert first["params"] == [network.encoder.hidden[0].weight]
        assert len(others["params"]) + 1 == len(list(network.parameters()))
        assert first["lr"] == 0.5 * optimizers.FIRST_LAYER_FACTOR
        set_rate(made, 0.25)
        assert (others["lr"], first["lr"]) == (0.25, 0.25 * optimizers.FIRST_LAYER_FACTOR)

    def test_a_custom_encoder_has_no_known_first_layer(self):
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
