"""Optimizers by name, in the fastest form for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from circlet import kernels
from circlet.network import Network
from circlet.network.encoders import Encoder
from circlet.settings import TrainingSettings
from circlet.training.row_optimizer import RowOptimizer

__all__ = ["FusedAdadelta", "Optimizer", "Together", "make_optimizer", "set_rate"]

Optimizer = torch.optim.Optimizer | RowOptimizer
#: The first layer's rate, if it is trained by SGD, as a multiple of the rate of the other layers. Networks whose
#: output is normalized learn equally well with a tenth of it: their gradient shrinks as the weights grow.
FIRST_LAYER_FACTOR = 5000.0


class FusedAdadelta(torch.optim.Adadelta):
    """Adadelta on a GPU in one pass over the weights.

    torch's own version runs a dozen kernels, each of which moves as many bytes as the rest of a step.
    The arithmetic and the state are torch's.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step; a closure is not supported."""
        assert closure is None
        from circlet.kernels.triton import adadelta  # needs Triton, which comes with CUDA

        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if not state:
                        state["step"] = torch.zeros((), device=parameter.device)
                        state["square_avg"] = torch.zeros_like(parameter)
                        state["acc_delta"] = torch.zeros_like(parameter)
                    adadelta(parameter, parameter.grad, state["square_avg"], state["acc_delta"], group)


class Together(torch.optim.Optimizer):
    """Several optimizers of a GPU that step as one, each over its own weights."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        super().__init__(
            [weight for part in parts for group in part.param_groups for weight in group["params"]], {}
        )
        self.param_groups = [group for part in parts for group in part.param_groups]
        self._share()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step; a closure is not supported."""
        assert closure is None
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Give the parts the state and the groups of the whole."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.state, part.param_groups = self.state, [next(groups) for _ in part.param_groups]


def set_rate(optimizer: Optimizer, rate: float | Tensor) -> None:
    """Set the learning rate of the next steps; groups with a `factor` have a multiple of it."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(own) if isinstance(own, Tensor) else group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_optimizer(network: Network, settings: TrainingSettings, device: torch.device) -> Optimizer:
    """The optimizer that the settings name, over all weights of a network."""
    first = first_weight(network) if settings.first_layer == "sgd" else None
    others = [parameter for parameter in network.parameters() if parameter is not first]
    rate = FIRST_LAYER_FACTOR * settings.lr
    if device.type != "cuda":
        main = {"algorithm": settings.optimizer, "lr": settings.lr, "weight_decay": settings.weight_decay}
        descent = {"algorithm": "plain-sgd", "lr": rate, "factor": FIRST_LAYER_FACTOR, "params": [first]}
        return RowOptimizer({**main, "params": others}, *([] if first is None else [descent]))
    if first is None:
        return _on_gpu(others, settings, device)
    group = {"params": [first], "factor": FIRST_LAYER_FACTOR}
    descent_on_gpu = torch.optim.SGD([group], lr=torch.tensor(rate, device=device), fused=True)
    return Together([_on_gpu(others, settings, device), descent_on_gpu])


def first_weight(network: Network) -> nn.Parameter | None:
    """The weight that multiplies the features; None in a custom encoder, whose layers are unknown."""
    if not isinstance(network.encoder, Encoder):
        return None
    weight = network.encoder.layers[0].weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _on_gpu(
    parameters: list[nn.Parameter], settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:
    # A recorded step reads the rate from the device.
    rate, decay = torch.tensor(settings.lr, device=device), settings.weight_decay
    match settings.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True, capturable=True)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=True, capturable=True)
        case "adadelta":
            fused = FusedAdadelta if kernels.run_on(device) else torch.optim.Adadelta
            return fused(parameters, lr=rate, weight_decay=decay, capturable=True)
        case _:
            return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay, fused=True)
