"""The last layer: from a hidden vector to the space where labels have codes.

A head's output is normalized, so that `Codebook.scores` gives similarities. `fc` is the exception: it is the
baseline with one output per label, and has no codes. `circlet.settings.network.HEADS` says which kind of codes
each head predicts.

| name | outputs | what they are |
|---|---|---|
| `chrr` | 2 d | pairs, each divided by its norm: phasors; atan2 is needed only for angles |
| `chrr-amplitude` | 2 d | pairs, divided by their joint norm; the length of each pair shows how certain it is |
| `chrr-half` | 2 d, each from half of the inputs | like `chrr` but with h × d weights, as many as `hrr` |
| `chrr-sin` | d | π sin(x) as angles |
| `chrr-tanh` | d | π tanh(x) as angles |
| `hrr` | d | a real vector, divided by its norm |
| `fc` | L | the labels' scores themselves |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from circlet.algebra import circular
from circlet.errors import ParameterError
from circlet.network.encoders import Hidden, linear

__all__ = ["HEADS", "Head"]

#: Keeps the gradient of a pair at (0, 0) finite. Its square is still a normal float32, far below any pair's norm.
TINY = 1e-12


class Head(nn.Module, ABC):
    """Maps `(batch, h)` to `(batch, width)`.

    Parameters
    ----------
    inputs : int
        Width h of the last hidden layer.
    dim : int
        Dimension d of the labels' codes; for `fc`, the number of labels.
    generator : torch.Generator or None
        For the initial weights.
    initial : str
        See `circlet.settings.NetworkSettings`.
    """

    outputs_per_dim = 1

    def __init__(
        self, inputs: int, dim: int, *, generator: torch.Generator | None, initial: str = "he"
    ) -> None:
        super().__init__()
        self.output = linear(inputs, self.outputs_per_dim * dim, generator=generator, initial=initial)

    @abstractmethod
    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        """Map hidden vectors to codes."""


class CircularHead(Head):
    """`chrr`."""

    outputs_per_dim = 2

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        return _phasors(*self.output(hidden).chunk(2, dim=-1))


class AmplitudeHead(Head):
    """`chrr-amplitude`: the joint norm is that of d phasors, but each pair has its own length."""

    outputs_per_dim = 2

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        pairs = self.output(hidden).float()
        return torch.nn.functional.normalize(pairs, dim=-1) * math.sqrt(pairs.shape[-1] / 2)


class HalfCircularHead(Head):
    """`chrr-half`: the first half of the hidden units gives the cosines, the second the sines."""

    def __init__(
        self, inputs: int, dim: int, *, generator: torch.Generator | None, initial: str = "he"
    ) -> None:
        if inputs % 2:
            raise ParameterError(
                f"head chrr-half splits the last hidden layer in two: its width {inputs} is odd; make it even"
            )
        super().__init__(inputs // 2, dim, generator=generator, initial=initial)
        self.second = linear(inputs // 2, dim, generator=generator, initial=initial)

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        first, second = self._full(hidden).chunk(2, dim=-1)
        return _phasors(self.output(first), self.second(second))

    def _full(self, hidden: Tensor | Hidden) -> Tensor:
        if not isinstance(hidden, Hidden):
            return hidden
        values, width = hidden.values, self.output.in_features + self.second.in_features
        return values.new_zeros(len(values), width).index_copy(1, hidden.units, values)


class SineHead(Head):
    """`chrr-sin`."""

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        return circular.pack(math.pi * torch.sin(self.output(hidden)).float())


class TanhHead(Head):
    """`chrr-tanh`."""

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        return circular.pack(math.pi * torch.tanh(self.output(hidden)).float())


class RealHead(Head):
    """`hrr`."""

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        return torch.nn.functional.normalize(self.output(hidden).float(), dim=-1)


class FullHead(Head):
    """`fc`."""

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        scores: Tensor = self.output(hidden).float()
        return scores


HEADS: dict[str, type[Head]] = {
    "chrr": CircularHead,
    "chrr-amplitude": AmplitudeHead,
    "chrr-half": HalfCircularHead,
    "chrr-sin": SineHead,
    "chrr-tanh": TanhHead,
    "hrr": RealHead,
    "fc": FullHead,
}


def _phasors(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.float(), y.float()  # norms of half-precision pairs would underflow
    scale = torch.rsqrt(x * x + y * y + TINY)
    return torch.cat([x * scale, y * scale], dim=-1)
