"""Optimizers by name, in the fastest form for the device.

GPUs use torch's fused optimizers. CPUs use `RowOptimizer`: torch's arithmetic, on whole weights or only on the
rows that a batch touched.

**Updates by rows.** If a batch touches few of many features, the first layer's weight gets a
`circlet.network.encoders.RowGradient` instead of a full gradient. Then only the rows in it are updated, as torch
would update a weight with only these rows. This differs from updating the whole weight in two ways. A feature's
row does not change between two batches with the feature, while full updates would move it by momentum and shrink
its moments. And weight decay acts on a row only when the row is touched. Adam's bias correction counts all steps.
A row that every batch touches is updated exactly as in full updates.

**Why torch's classes are not used.** Creating an optimizer imports torch's compiler, which takes about a second.
The functions that these classes call do not.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adadelta import adadelta
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from circlet import kernels
from circlet.network import Network
from circlet.network.encoders import Encoder, RowGradient
from circlet.settings import TrainingSettings

#: The first layer's learning rate under SGD, as a multiple of the rate of the other layers. Networks with
#: normalized output learn equally well with a tenth of it, since their gradient shrinks as the weights grow.
FIRST_LAYER_FACTOR = 5000.0
#: Key of the step count in the state of a weight.
COUNT = "step"

State = dict[str, Tensor]
Group = dict[str, Any]


class Algorithm(NamedTuple):
    """An update rule for weights."""

    #: torch's function, of lists of weights, gradients and state.
    function: Callable[..., None]
    #: Names of its arguments for the state, and of the state's tensors: the number of steps, and moments of the
    #: weight's shape.
    state: dict[str, str]
    options: dict[str, Any]  # besides learning rate and weight decay

    @property
    def moments(self) -> list[str]:
        """Names of the moments."""
        return [name for name in self.state.values() if name != COUNT]

    def update(self, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Update weight and state."""
        lists = {argument: [state[name]] for argument, name in self.state.items()}
        rates = {"lr": group["lr"], "weight_decay": group["weight_decay"]}
        self.function([weight], [gradient], **lists, **rates, **self.options, maximize=False)


def _plain_sgd(weights: list[Tensor], gradients: list[Tensor], *, lr: Any, **_: Any) -> None:
    weights[0].add_(gradients[0], alpha=-lr)


_ADAM: tuple[Any, Any] = (
    {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "state_steps": COUNT},
    {"max_exp_avg_sqs": [], "amsgrad": False, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "fused": True},
)
#: "plain-sgd" has neither momentum nor weight decay, so it needs no state and can skip dropped units.
ALGORITHMS = {
    "adamw": Algorithm(adamw, *_ADAM),
    "adam": Algorithm(adam, *_ADAM),
    "adadelta": Algorithm(
        adadelta,
        {"square_avgs": "square_avg", "acc_deltas": "acc_delta", "state_steps": COUNT},
        {"rho": 0.9, "eps": 1e-6, "foreach": False},
    ),
    "sgd": Algorithm(
        sgd,
        {"momentum_buffer_list": "momentum_buffer"},
        {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "foreach": False},
    ),
    "plain-sgd": Algorithm(_plain_sgd, {}, {}),
}


class RowOptimizer:
    """Updates weights by their gradients, or by their `RowGradient`.

    Implements the part of `torch.optim.Optimizer` that training uses. Each group has `params`, `algorithm` (a key
    of `ALGORITHMS`), `lr` and, if needed, `weight_decay`.

    Of a row gradient, `block` numbers are computed at a time. A whole one, such as 5,000 rows of 2,048, exceeds
    the cache, and allocating memory for it at each step takes longer than the arithmetic.
    """

    def __init__(self, *groups: Group, block: int = 1 << 20) -> None:
        self.block = block
        self.param_groups: list[Group] = [{"weight_decay": 0.0, **group} for group in groups]
        self.state: dict[nn.Parameter, State] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        assert set_to_none
        for weight in self._weights():
            weight.grad = None
            RowGradient.taken_from(weight)

    @torch.no_grad()
    def step(self) -> None:
        """Take a step."""
        for group in self.param_groups:
            algorithm = ALGORITHMS[group["algorithm"]]
            for weight in group["params"]:
                # Removed from the weight, because the next step must not use it again.
                by_rows = RowGradient.taken_from(weight)
                if by_rows is None and weight.grad is None:
                    continue
                state = self.state.setdefault(weight, {})
                if not state:
                    for name in algorithm.state.values():
                        state[name] = torch.zeros(()) if name == COUNT else _zeros(weight.shape)
                if weight.grad is not None:
                    algorithm.update(weight, weight.grad, state, group)
                if by_rows is not None:
                    (_update_rows if algorithm.moments else _descend)(weight, by_rows, state, group, self.block)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each weight, by the weight's number."""
        numbered = enumerate(self._weights())
        return {"state": {i: self.state[weight] for i, weight in numbered if self.state.get(weight)}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        weights = list(self._weights())
        self.state = {weights[i]: dict(state) for i, state in state_dict["state"].items()}

    def _weights(self) -> Iterator[nn.Parameter]:
        return (weight for group in self.param_groups for weight in group["params"])


def _update_rows(weight: Tensor, gradient: RowGradient, state: State, group: Group, block: int) -> None:
    algorithm = ALGORITHMS[group["algorithm"]]
    count = state.get(COUNT)
    before = None if count is None else count.clone()
    for part in _blocks(gradient, block):
        touched, values = gradient.rows[part], gradient.values(part)
        if gradient.units is not None:
            values = values.new_zeros(len(values), weight.shape[1]).index_copy_(1, gradient.units, values)
        # Rows and moments are copied out and written back. All blocks have the same step count.
        rows, own = weight[touched], {name: state[name][touched] for name in algorithm.moments}
        if before is not None:
            own[COUNT] = before.clone()
        algorithm.update(rows, values, own, group)
        weight.index_copy_(0, touched, rows)
        for name in algorithm.moments:
            state[name].index_copy_(0, touched, own[name])
        if count is not None:
            count.copy_(own[COUNT])


def _descend(weight: Tensor, gradient: RowGradient, state: State, group: Group, block: int) -> None:
    """Apply plain SGD to the touched rows, and only to the units that dropout kept."""
    rows, units, rate = gradient.rows, gradient.units, group["lr"]
    every = len(rows) == len(weight)
    for part in _blocks(gradient, block):
        values = gradient.values(part)
        if units is None and every:
            weight[part].add_(values, alpha=-rate)
        elif units is None:
            weight.index_add_(0, rows[part], values, alpha=-rate)
        else:
            own = weight[part] if every else weight.index_select(0, rows[part])
            # index_add_ along columns does the same but takes seven times as long.
            own.scatter_add_(1, units.expand(len(own), -1), values.mul_(-rate))
            if not every:
                weight.index_copy_(0, rows[part], own)


def _blocks(gradient: RowGradient, block: int) -> Iterator[slice]:
    """Yield slices of the touched rows, a few at a time."""
    size = max(1, block // gradient.gradient.shape[1])
    return (slice(start, start + size) for start in range(0, len(gradient.rows), size))


def _zeros(shape: torch.Size) -> Tensor:
    """Allocate zeros whose pages take no memory until written, such as rows of features that no document has."""
    # NumPy's zeros do the same, but with pages of megabytes, and soon each page has a touched row.
    return torch.frombuffer(mmap.mmap(-1, 4 * shape.numel()), dtype=torch.float32).view(shape)


Optimizer = torch.optim.Optimizer | RowOptimizer


class FusedAdadelta(torch.optim.Adadelta):
    """Adadelta on a GPU in one pass over the weights.

    torch's version runs a dozen kernels, and each moves as many bytes as the rest of a step.
    Arithmetic and state are the same as torch's.
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
    """Combines several GPU optimizers, each for its own weights, into one."""

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
        """Restore the state from `state_dict`."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Share state and groups with the parts."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.state, part.param_groups = self.state, [next(groups) for _ in part.param_groups]


def set_rate(optimizer: Optimizer, rate: float | Tensor) -> None:
    """Set the learning rate of the next steps, multiplied by a group's `factor`, if any."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(own) if isinstance(own, Tensor) else group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_optimizer(network: Network, settings: TrainingSettings, device: torch.device) -> Optimizer:
    """Make the optimizer in the settings for all weights of a network."""
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
    """Return the weight that multiplies the features; None for a custom encoder, whose layers are unknown."""
    if not isinstance(network.encoder, Encoder):
        return None
    weight = network.encoder.hidden[0].weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _on_gpu(
    parameters: list[nn.Parameter], settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:
    # A tensor, because a recorded step reads the rate from the device.
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
