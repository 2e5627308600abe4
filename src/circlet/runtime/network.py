"""A network that was trained: from scaled rows to a head's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from circlet.errors import DataError
from circlet.features.entries import Entries
from circlet.folder.members import Member
from circlet.folder.precision import Stored
from circlet.runtime.heads import HEADS
from circlet.runtime.weights import FeatureWeights, Floats, Linear

__all__ = ["LARGEST", "Network"]

#: Outputs, scales and biases are below this, so that no score of any label overflows: the best would be unknown.
LARGEST = 1e15


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
        def layer(kind: type[Any], name: str) -> Any:
            return kind(*(weights[f"{member.prefix}{name}.{part}"] for part in ("weight", "bias")))

        self.first: FeatureWeights | Linear = layer(FeatureWeights if sparse else Linear, "encoder.layers.0")
        others = range(1, len(member.settings.hidden))
        self.others: list[Linear] = [layer(Linear, f"encoder.layers.{3 * i}") for i in others]
        self.head = HEADS[member.settings.head]
        parts = ("output", "second") if member.settings.head == "chrr-half" else ("output",)
        self.head_layers: dict[str, Linear] = {part: layer(Linear, f"head.{part}") for part in parts}

    def __call__(self, rows: Entries | Floats) -> Floats:
        """The head's output for scaled rows, `(n, width)`."""
        hidden: Floats = self.first(rows)  # type: ignore[arg-type]
        np.maximum(hidden, 0, out=hidden)
        for layer in self.others:
            hidden = layer(hidden)
            np.maximum(hidden, 0, out=hidden)
        output = self.head(hidden, self.head_layers)
        if not np.abs(output).max(initial=0) < LARGEST:  # which is not less if it is NaN
            raise DataError(
                "found an output too large to be scored: the document has numbers too large for this model, "
                "or the model is damaged (circlet info MODEL --verify says whether it is)"
            )
        return output
