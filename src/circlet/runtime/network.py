"""A network that was trained: from scaled rows to a head's output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circlet.features.rows import Entries
from circlet.folder.members import Member, hidden_layers, output_layers
from circlet.folder.tensors import Stored
from circlet.runtime.heads import HEADS
from circlet.runtime.weights import FeatureWeights, Floats, Linear

__all__ = ["Network"]


class Network:
    """The layers of a network.

    Parameters
    ----------
    member : Member
    weights : mapping of str to Stored
        Of this network and maybe of others; `circlet.folder.members.check_shapes` has seen them.
    sparse : bool
        Whether its rows are `Entries` or dense.
    """

    def __init__(self, member: Member, weights: Mapping[str, Stored], *, sparse: bool) -> None:
        first, *others = hidden_layers(member.settings)
        kind = FeatureWeights if sparse else Linear
        self.first: FeatureWeights | Linear = kind(*member.layer(weights, first))
        self.others = [Linear(*member.layer(weights, name)) for name in others]
        self.head_name, self.leak = member.settings.head, np.float32(member.settings.leak)
        self.head = HEADS[self.head_name]
        self.head_layers = {name: Linear(*member.layer(weights, name)) for name in output_layers(member.settings)}

    def __call__(self, rows: Entries | Floats) -> Floats:
        """The head's output for scaled rows, `(n, width)`."""
        return self.head(self.hidden(rows), self.head_layers)

    def vectors(self, rows: Entries | Floats) -> Floats:
        """What tells documents apart: the head's output, or the last hidden layer if that is a score per label."""
        return self.hidden(rows) if self.head_name == "fc" else self(rows)

    @property
    def width(self) -> int:
        """How many numbers such a vector has."""
        layers = list(self.head_layers.values())
        if self.head_name == "fc":
            return int(layers[0].weight.shape[0])
        outputs = sum(layer.weight.shape[1] for layer in layers)
        return int(outputs * (2 if self.head_name in ("chrr-sin", "chrr-tanh") else 1))

    def hidden(self, rows: Entries | Floats) -> Floats:
        """The last hidden layer for scaled rows, `(n, h)`."""
        hidden: Floats = self.first(rows)  # type: ignore[arg-type]
        self._activate(hidden)
        for layer in self.others:
            hidden = layer(hidden)
            self._activate(hidden)
        return hidden

    def _activate(self, hidden: Floats) -> None:
        """(Leaky) ReLU, in place."""
        np.maximum(hidden, hidden * self.leak if self.leak else 0, out=hidden)
