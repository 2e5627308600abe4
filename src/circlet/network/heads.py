"""The last layer, as a module that learns; `circlet.scoring.heads` says what each head computes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from circlet.errors import ParameterError
from circlet.network.encoders import Hidden, Linear, linear
from circlet.scoring import heads, tensors

__all__ = ["FullHead", "Head"]


class Head(nn.Module):
    """Maps `(batch, h)` to `(batch, width)`.

    Parameters
    ----------
    name : str
        One of `circlet.scoring.heads.HEADS`.
    inputs : int
        Width h of the last hidden layer.
    dim : int
        Dimension d of the labels' codes; for `fc`, the number of labels.
    generator : torch.Generator or None
        For the initial weights.
    initial : str
        See `circlet.settings.NetworkSettings`.
    """

    output: Linear

    def __init__(
        self, name: str, inputs: int, dim: int, *, generator: torch.Generator | None, initial: str = "he"
    ) -> None:
        super().__init__()
        self.name, self.inputs = name, inputs
        if inputs % len(self.row.parts):
            raise ParameterError(
                f"head {name} splits the last hidden layer: found width {inputs}; wanted a multiple of "
                f"{len(self.row.parts)}"
            )
        after, before = self.row.shape(inputs, dim)
        for part in self.row.parts:
            self.add_module(part, linear(before, after, generator=generator, initial=initial))

    @property
    def row(self) -> heads.Head:
        """Its row in the table."""
        return heads.HEADS[self.name]

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        """Map hidden vectors to codes."""
        layers = list(self.children())
        if len(layers) > 1 and isinstance(hidden, Hidden):
            values = hidden.values
            hidden = values.new_zeros(len(values), self.inputs).index_copy(1, hidden.units, values)
        return self.finished(self.row.layers(tensors, hidden, layers))

    def finished(self, outputs: Tensor) -> Tensor:
        """Make codes of what the last layer gives."""
        code: Tensor = self.row.code(tensors, outputs, outputs.shape[-1])
        return code.float()


class FullHead(Head):
    """Head `fc`: an output for each label."""

    def __init__(self, inputs: int, dim: int, *, generator: torch.Generator | None, initial: str = "he") -> None:
        super().__init__("fc", inputs, dim, generator=generator, initial=initial)
