"""The network as a whole: encoder, head and loss, made from settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from circlet.codebooks.base import Codebook, HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ParameterError
from circlet.network.encoders import Encoder
from circlet.network.heads import HEADS, make_head
from circlet.network.losses import LOSSES, log_odds, make_loss

__all__ = ["CODEBOOKS", "Network", "NetworkSettings"]

CODEBOOKS: dict[str, Callable[..., Codebook]] = {
    "spectral": SpectralCodebook,
    "independent": IndependentCodebook,
    "four-phase": partial(IndependentCodebook, phases=4),
    "two-phase": partial(IndependentCodebook, phases=2),
    "holographic": HolographicCodebook,
}
#: Tables of codes up to this many numbers are kept where every step scores all labels.
TABLE_LIMIT = 1 << 27


@dataclass(frozen=True)
class NetworkSettings:
    """What a network is, before it has seen data.

    Parameters
    ----------
    head : str
        One of `circlet.network.heads.HEADS`.
    dim : int
        Dimension of the labels' codes; `fc` has none.
    hidden : tuple of int
        Widths of the hidden layers.
    codebook : str
        "spectral", "independent", or independent of few angles, "four-phase" or "two-phase", for circular heads;
        `hrr` has its own. "auto" chooses spectral.
    slots : int or None
        Length M of a spectral codebook: labels to come need room. None leaves a twentieth.
    loss : str
        One of `circlet.network.losses.LOSSES`.
    dropout : float
        Share of hidden units dropped in training.
    seed : int
        Initial weights, codes, dropout and the order of the rows follow from it.
    """

    head: str = "chrr-amplitude"
    dim: int = 800
    hidden: tuple[int, ...] = (1024,)
    codebook: str = "auto"
    slots: int | None = None
    loss: str = "bce"
    dropout: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        layers = self.hidden if isinstance(self.hidden, (tuple, list, np.ndarray)) else ()
        checks = [
            ("head", isinstance(self.head, str) and self.head in HEADS, f"one of {', '.join(HEADS)}"),
            ("loss", isinstance(self.loss, str) and self.loss in LOSSES, f"one of {', '.join(LOSSES)}"),
            ("codebook", self.codebook in ("auto", *CODEBOOKS), f"auto or one of {', '.join(CODEBOOKS)}"),
            ("slots", self.slots is None or _whole(self.slots, 1), "None or a whole number >= 1"),
            ("dim", _whole(self.dim, 1), "a whole number >= 1"),
            ("seed", _whole(self.seed, 0), "a whole number >= 0"),
            (
                "hidden",
                len(layers) > 0 and all(_whole(width, 1) for width in layers),
                "one or more whole numbers >= 1",
            ),
            ("dropout", _real(self.dropout) and 0 <= self.dropout < 1, "at least 0 and below 1"),
        ]
        for name, holds, wanted in checks:
            if not holds:
                raise ParameterError(f"`{name}` must be {wanted}, got {getattr(self, name)!r}")
        # numpy's numbers, from somebody's grid, would not go into JSON.
        plain = {"hidden": tuple(int(width) for width in layers), "dropout": float(self.dropout)}
        for name, value in {**plain, "dim": int(self.dim), "seed": int(self.seed)}.items():
            object.__setattr__(self, name, value)
        if self.slots is not None:
            object.__setattr__(self, "slots", int(self.slots))
        codes = HEADS[self.head].codes
        if codes is None and self.loss == "cosine":
            raise ParameterError("loss cosine compares codes, and head fc has none: choose bce or softmax for fc")
        fitting: dict[str | None, tuple[str, ...]] = {
            "circular": ("auto", "spectral", "independent", "four-phase", "two-phase"),
            "real": ("auto", "holographic"),
            None: ("auto",),
        }
        choice = fitting.get(codes, ("auto",))
        if self.codebook not in choice:
            raise ParameterError(
                f"codebook {self.codebook} does not fit head {self.head}: choose {' or '.join(choice)}"
            )
        if self.slots is not None and (codes != "circular" or self.codebook not in ("auto", "spectral")):
            raise ParameterError("`slots` are a spectral codebook's: choose codebook spectral and a circular head")

    def make_codebook(self, n_labels: int, state: dict[str, Any] | None = None) -> Codebook | None:
        """The codebook for so many labels, or the one with this state; None for `fc`."""
        codes = HEADS[self.head].codes
        if codes is None:
            return None
        name = self.codebook
        if name == "auto":
            name = "spectral" if codes == "circular" else "holographic"
        given: dict[str, Any] = {"n_labels": n_labels, "dim": self.dim, "seed": self.seed}
        if self.slots is not None:
            given["length"] = self.slots
        book = CODEBOOKS[name](**state or given)
        if self.loss != "cosine" and not isinstance(book, SpectralCodebook):
            book.cache = n_labels * book.width <= TABLE_LIMIT
        return book

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}


class Network(nn.Module):
    """Documents to the scores of all labels.

    Parameters
    ----------
    settings : NetworkSettings
    n_features, n_labels : int
    sparse : bool
        Whether batches are `SparseRows` or dense tensors.
    encoder : nn.Module, optional
        Maps a batch to `(batch, settings.hidden[-1])`, in place of the library's own.
    codebook : dict, optional
        The state of a codebook that has grown, to be taken up.
    blank : bool
        Leave room for weights that will be loaded, instead of drawing initial ones.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        n_features: int,
        n_labels: int,
        *,
        sparse: bool,
        encoder: nn.Module | None = None,
        codebook: dict[str, Any] | None = None,
        blank: bool = False,
    ) -> None:
        super().__init__()
        self.settings = settings
        initial = None if blank else torch.Generator().manual_seed(settings.seed % (1 << 63))
        self.noise = torch.Generator()
        if encoder is None:
            encoder = Encoder(
                n_features,
                settings.hidden,
                sparse=sparse,
                dropout=settings.dropout,
                generator=initial,
                noise=self.noise,
            )
        self.encoder = encoder
        self.codebook = settings.make_codebook(n_labels, codebook)
        dim = n_labels if self.codebook is None else settings.dim
        self.head = make_head(settings.head, settings.hidden[-1], dim, generator=initial)
        self.loss = make_loss(settings.loss, self.codebook, n_labels)

    def forward(self, batch: Any) -> Tensor:
        """The head's output for a batch of documents."""
        output: Tensor = self.head(self.encoder(batch))
        return output

    def logits(self, batch: Any) -> Tensor:
        """Scores of all labels, `(batch, n_labels)`."""
        return self.loss.logits(self(batch))

    def start_from(self, counts: Tensor, n: int) -> None:
        """Begin with what label frequencies alone say: `counts` of each label in n documents."""
        if self.codebook is not None or self.settings.loss != "bce":
            self.loss.start_from(counts, n)
        else:  # the head itself has a bias per label
            with torch.no_grad():
                self.head.output.bias.copy_(log_odds(counts, n))

    def grow(self, n_labels: int) -> None:
        """Take more labels in; no weight changes its shape, and the scores of the old labels stay as they are."""
        self.loss.grow(n_labels)

    def seed_noise(self, *parts: int) -> None:
        """Let dropout's randomness follow from these numbers, on the device the network is on."""
        from circlet.network.encoders import Dropout

        device = next(self.parameters()).device
        if self.noise.device != device:
            self.noise = torch.Generator(device)
            for module in self.modules():
                if isinstance(module, Dropout):
                    module.generator = self.noise
        self.noise.manual_seed(int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1)

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of parameters: of the encoder, the head, the loss, and all."""
        counts = {
            part: sum(p.numel() for p in getattr(self, part).parameters()) for part in ("encoder", "head", "loss")
        }
        return {**counts, "total": sum(counts.values())}


def _real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)
