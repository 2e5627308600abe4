"""Optimisers by name, in the fastest form that the device has."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from circlet.network import Network
    from circlet.training import TrainingSettings

__all__ = ["OPTIMIZERS", "FusedAdadelta", "make_optimizer", "set_rate"]

OPTIMIZERS = ("adamw", "adam", "adadelta", "sgd")


class FusedAdadelta(torch.optim.Adadelta):
    """Adadelta on a GPU in one pass over the weights.

    torch's own goes over them in a dozen kernels, each as many bytes as all the rest of a step together. The
    arithmetic and the state are torch's.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step; a closure is not supported."""
        assert closure is None
        from circlet._fused import adadelta  # Triton, which is there where CUDA is

        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if not state:
                        state["step"] = torch.zeros((), device=parameter.device)
                        state["square_avg"] = torch.zeros_like(parameter)
                        state["acc_delta"] = torch.zeros_like(parameter)
                    adadelta(parameter, parameter.grad, state["square_avg"], state["acc_delta"], group)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the steps to come have this learning rate."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def make_optimizer(network: Network, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimiser that the settings name, over all weights of a network."""
    parameters, decay = list(network.parameters()), settings.weight_decay
    on_gpu = device.type == "cuda"
    # A recorded step reads the rate from the device.
    rate: float | Tensor = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    match settings.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True, capturable=on_gpu)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=True, capturable=on_gpu)
        case "adadelta":
            kind = FusedAdadelta if on_gpu and find_spec("triton") else torch.optim.Adadelta
            return kind(parameters, lr=rate, weight_decay=decay, capturable=on_gpu)
        case _:
            return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay, fused=on_gpu)
