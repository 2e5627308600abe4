"""Optimizers by name, in the fastest form for the device.

**Updates by rows.** If a batch touches few of many features, the first layer's weight gets a
`circlet.network.encoders.RowGradient` instead of a full gradient. On a CPU, the optimizers then update only the
rows that it names, as torch would update a weight that has only these rows. This differs from updating the whole
weight in two ways. Between two batches that have a feature, its row stands still, while a full update would still
move it by momentum and shrink its moments. And weight decay acts on a row only when it is touched. Adam's bias
correction counts all steps. A row that every batch touches is updated exactly as in full updates.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from circlet import kernels
from circlet.network import Network
from circlet.network.encoders import Encoder, RowGradient
from circlet.settings import TrainingSettings

__all__ = [
    "FirstLayerSGD",
    "FusedAdadelta",
    "RowAdadelta",
    "RowAdam",
    "RowAdamW",
    "RowSGD",
    "Together",
    "make_optimizer",
    "set_rate",
]

#: The first layer's rate, if it is trained by SGD, as a multiple of the rate of the other layers. Networks whose
#: output is normalized learn equally well with a tenth of it: their gradient shrinks as the weights grow.
FIRST_LAYER_FACTOR = 5000.0
#: Numbers of a row gradient at a time. A whole one of 5,000 rows of 2,048 is too large for any cache, and each
#: step would get fresh memory for it, which takes the system longer than the arithmetic.
BLOCK = 1 << 20


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


class _ByRows(torch.optim.Optimizer):
    """Lets one of torch's optimizers use a `RowGradient`; its state is torch's."""

    #: torch's optimizer.
    plain: ClassVar[Any]
    #: The names of its state tensors that have the weight's shape.
    kept: ClassVar[tuple[str, ...]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step; a closure is not supported."""
        assert closure is None
        self.plain.step(self)
        for group in self.param_groups:
            for weight in group["params"]:
                # Removed, because the next step must not use it again.
                gradient: RowGradient | None = weight.__dict__.pop("row_gradient", None)
                if gradient is not None:
                    self._step_rows(group, weight, gradient)

    def _step_rows(self, group: dict[str, Any], weight: Tensor, gradient: RowGradient) -> None:
        state = self.state[weight]
        if not state:
            state |= {name: _zeros(weight.shape) for name in self.kept}
            if self.plain is not torch.optim.SGD:
                state["step"] = torch.zeros(())
        # The number of steps, which is the same for every block.
        before = {name: value.clone() for name, value in state.items() if name not in self.kept}
        for part in _blocks(gradient):
            touched = gradient.rows[part]
            rows = nn.Parameter(weight[touched])
            rows.grad = gradient.values(part)
            if gradient.units is not None:
                rows.grad = torch.zeros_like(rows).index_copy_(1, gradient.units, rows.grad)
            alone = self.plain([rows])
            alone.param_groups[0] |= {**group, "params": [rows]}
            # Moments are copied there and back.
            own = {name: state[name][touched] for name in self.kept}
            alone.state[rows] = {**{name: value.clone() for name, value in before.items()}, **own}
            alone.step()
            weight.index_copy_(0, touched, rows)
            for name, value in alone.state[rows].items():
                if name in self.kept:
                    state[name].index_copy_(0, touched, value)
                else:
                    state[name] = value


class RowAdamW(_ByRows, torch.optim.AdamW):
    """AdamW that updates a weight by rows if its gradient is a `RowGradient`."""

    plain, kept = torch.optim.AdamW, ("exp_avg", "exp_avg_sq")


class RowAdam(_ByRows, torch.optim.Adam):
    """Adam that updates a weight by rows if its gradient is a `RowGradient`."""

    plain, kept = torch.optim.Adam, ("exp_avg", "exp_avg_sq")


class RowAdadelta(_ByRows, torch.optim.Adadelta):
    """Adadelta that updates a weight by rows if its gradient is a `RowGradient`."""

    plain, kept = torch.optim.Adadelta, ("square_avg", "acc_delta")


class RowSGD(_ByRows, torch.optim.SGD):
    """SGD that updates a weight by rows if its gradient is a `RowGradient`."""

    plain, kept = torch.optim.SGD, ("momentum_buffer",)


class FirstLayerSGD(torch.optim.SGD):
    """SGD without momentum, which thus needs no state and touches only the weights that a batch used."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step; a closure is not supported."""
        assert closure is None
        super().step()
        for group in self.param_groups:
            for weight in group["params"]:
                gradient: RowGradient | None = weight.__dict__.pop("row_gradient", None)
                if gradient is not None:
                    _descend(weight, gradient, group["lr"])


def _blocks(gradient: RowGradient) -> Iterator[slice]:
    """The touched rows, a few at a time."""
    size = max(1, BLOCK // gradient.gradient.shape[1])
    return (slice(start, start + size) for start in range(0, len(gradient.rows), size))


def _descend(weight: Tensor, gradient: RowGradient, rate: float) -> None:
    rows, units = gradient.rows, gradient.units
    every = len(rows) == len(weight)
    for part in _blocks(gradient):
        values = gradient.values(part)
        if units is None and every:
            weight[part].add_(values, alpha=-rate)
        elif units is None:
            weight.index_add_(0, rows[part], values, alpha=-rate)
        else:
            own = weight[part] if every else weight.index_select(0, rows[part])
            # index_add_ along columns does the same, and takes seven times as long.
            own.scatter_add_(1, units.expand(len(own), -1), values.mul_(-rate))
            if not every:
                weight.index_copy_(0, rows[part], own)


_ON_CPU: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (RowAdamW, {"fused": True}),
    "adam": (RowAdam, {"fused": True}),
    "adadelta": (RowAdadelta, {}),
    "sgd": (RowSGD, {"momentum": 0.9}),
}


def _zeros(shape: torch.Size) -> Tensor:
    """Zeros whose pages take no memory until they are written, such as rows of features that no document has."""
    # NumPy's zeros do the same, but in pages of megabytes, each of which soon has a row that is touched.
    return torch.frombuffer(mmap.mmap(-1, 4 * shape.numel()), dtype=torch.float32).view(shape)


class Together(torch.optim.Optimizer):
    """Several optimizers that step as one, each over its own weights."""

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


def set_rate(optimizer: torch.optim.Optimizer, rate: float | Tensor) -> None:
    """Set the learning rate of the next steps; groups with a `factor` have a multiple of it."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(own) if isinstance(own, Tensor) else group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_optimizer(network: Network, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer that the settings name, over all weights of a network."""
    first = first_weight(network) if settings.first_layer == "sgd" else None
    others = [parameter for parameter in network.parameters() if parameter is not first]
    main = _make(others, settings, device)
    if first is None:
        return main
    rate = FIRST_LAYER_FACTOR * settings.lr
    group = {"params": [first], "factor": FIRST_LAYER_FACTOR}
    if device.type == "cuda":
        return Together([main, torch.optim.SGD([group], lr=torch.tensor(rate, device=device), fused=True)])
    return Together([main, FirstLayerSGD([group], lr=rate)])


def first_weight(network: Network) -> nn.Parameter | None:
    """The weight that multiplies the features; None in a custom encoder, whose layers are unknown."""
    if not isinstance(network.encoder, Encoder):
        return None
    weight = network.encoder.layers[0].weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _make(
    parameters: list[nn.Parameter], settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:
    decay, on_gpu = settings.weight_decay, device.type == "cuda"
    # A recorded step reads the rate from the device.
    rate: float | Tensor = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    if not on_gpu:
        kind, options = _ON_CPU[settings.optimizer]
        return kind(parameters, lr=rate, weight_decay=decay, **options)
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
