"""The settings of a network, and the names that they can have."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from circlet.checks import is_integer, is_real
from circlet.errors import ParameterError
from circlet.settings.checked import check

__all__ = ["ACTIVATIONS", "CODEBOOKS", "COSINES", "HEADS", "INITIAL", "LEAK", "LOSSES", "Learned", "NetworkSettings"]

#: The kind of codes that each head of `circlet.network.heads` predicts; `fc` has an output per label and no codes.
HEADS: dict[str, str | None] = {
    "chrr": "circular",
    "chrr-amplitude": "circular",
    "chrr-half": "circular",
    "chrr-sin": "circular",
    "chrr-tanh": "circular",
    "hrr": "real",
    "fc": None,
}
#: The kind of codes in each codebook of `circlet.codebooks`. "auto" chooses the first of the kind.
CODEBOOKS: dict[str, str] = {
    "spectral": "circular",
    "independent": "circular",
    "four-phase": "circular",
    "two-phase": "circular",
    "holographic": "real",
}


class Learned(NamedTuple):
    """What turns similarities into scores, and is learned with a loss."""

    #: A factor.
    scale: bool
    #: An offset for each label.
    bias: bool


#: The losses of `circlet.network.losses`, and what is learned with them if labels have codes.
LOSSES: dict[str, Learned] = {
    "cosine": Learned(scale=False, bias=False),
    "absolute-cosine": Learned(scale=False, bias=False),
    "bce": Learned(scale=True, bias=True),
    "mean-bce": Learned(scale=True, bias=True),
    "softmax": Learned(scale=True, bias=False),
}
#: The losses that compare codes and look only at a document's own labels.
COSINES = ("cosine", "absolute-cosine")
ACTIVATIONS = ("relu", "leaky-relu")
#: What `leaky-relu` multiplies negative numbers by, as torch does.
LEAK = 0.01
#: Where the initial weights of layers come from: He's rule for ReLU, or what torch's layers start with.
INITIAL = ("he", "torch")


@dataclass(frozen=True)
class NetworkSettings:
    """What defines a network before it has seen data.

    Parameters
    ----------
    head : str
        One of `HEADS`.
    dim : int
        Dimension of the labels' codes; `fc` has none.
    hidden : tuple of int
        Widths of the hidden layers.
    codebook : str
        One of `CODEBOOKS` that fits the head, or "auto": spectral for circular codes, holographic for real ones.
    slots : int or None
        Length M of a spectral codebook, which limits how many labels it can ever hold. None leaves 5% room for
        new labels.
    loss : str
        One of `LOSSES`. With absolute-cosine, labels are ranked by the absolute value of their similarity.
    activation : str
        What follows each hidden layer, one of `ACTIVATIONS`.
    initial : str
        One of `INITIAL`.
    dropout : float
        Share of hidden units dropped in training.
    seed : int
        Determines initial weights, codes, dropout and the order of the rows.
    """

    head: str = "chrr-amplitude"
    dim: int = 800
    hidden: tuple[int, ...] = (1024,)
    codebook: str = "auto"
    slots: int | None = None
    loss: str = "bce"
    activation: str = "relu"
    initial: str = "he"
    dropout: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        layers = self.hidden if isinstance(self.hidden, (tuple, list, np.ndarray)) else ()
        check(
            self,
            head=(_among(self.head, HEADS), f"one of {', '.join(HEADS)}"),
            loss=(_among(self.loss, LOSSES), f"one of {', '.join(LOSSES)}"),
            activation=(_among(self.activation, ACTIVATIONS), f"one of {', '.join(ACTIVATIONS)}"),
            initial=(_among(self.initial, INITIAL), f"one of {', '.join(INITIAL)}"),
            codebook=(_among(self.codebook, ("auto", *CODEBOOKS)), f"auto or one of {', '.join(CODEBOOKS)}"),
            slots=(self.slots is None or is_integer(self.slots, 1), "None or an integer >= 1"),
            dim=(is_integer(self.dim, 1), "an integer >= 1"),
            seed=(is_integer(self.seed, 0), "an integer >= 0"),
            hidden=(
                len(layers) > 0 and all(is_integer(width, 1) for width in layers),
                "one or more integers >= 1",
            ),
            dropout=(is_real(self.dropout) and 0 <= self.dropout < 1, "at least 0 and below 1"),
        )
        # JSON can't hold NumPy's numbers, which a search grid may pass.
        plain = {"hidden": tuple(int(width) for width in layers), "dropout": float(self.dropout)}
        slots = None if self.slots is None else int(self.slots)
        for name, value in {**plain, "dim": int(self.dim), "seed": int(self.seed), "slots": slots}.items():
            object.__setattr__(self, name, value)
        self._check_combination()

    def _check_combination(self) -> None:
        if self.codes is None and self.loss in COSINES:
            raise ParameterError(
                f"loss {self.loss} compares codes, and head fc has none: choose bce, mean-bce or softmax for fc"
            )
        fitting = ["auto", *(name for name, codes in CODEBOOKS.items() if codes == self.codes)]
        if self.codebook not in fitting:
            raise ParameterError(
                f"codebook {self.codebook} does not fit head {self.head}: choose {' or '.join(fitting)}"
            )
        if self.slots is not None and self.codebook_name != "spectral":
            raise ParameterError(
                "only a spectral codebook has `slots`: choose codebook spectral with a circular head, or leave "
                "`slots` out"
            )

    @property
    def learned(self) -> Learned:
        """What is learned besides the weights of the layers; `fc` has all of it in its last layer."""
        return LOSSES[self.loss] if self.codes is not None else Learned(scale=False, bias=False)

    @property
    def absolute(self) -> bool:
        """Whether labels are ranked by the absolute value of their similarity."""
        return self.loss == "absolute-cosine"

    @property
    def leak(self) -> float:
        """What the activation multiplies negative numbers by."""
        return LEAK if self.activation == "leaky-relu" else 0.0

    @property
    def codes(self) -> str | None:
        """The kind of codes that the head predicts; None for `fc`."""
        return HEADS[self.head]

    @property
    def codebook_name(self) -> str | None:
        """The codebook to use, with "auto" resolved; None for `fc`."""
        if self.codebook != "auto":
            return self.codebook
        return next((name for name, codes in CODEBOOKS.items() if codes == self.codes), None)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}


def _among(value: Any, names: Any) -> bool:
    return isinstance(value, str) and value in names
