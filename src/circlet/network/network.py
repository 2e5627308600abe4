"""The whole network, made from settings: an encoder, a head (the last layer) and a scorer.

What head and scorer compute stands in `circlet.scoring`; here they learn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from circlet.codebooks import CODEBOOKS, Codebook
from circlet.encoders import TextEncoder
from circlet.errors import ParameterError, check_fits, within_memory
from circlet.network.batch import LabelSets
from circlet.network.encoders import Dropout, Encoder, Hidden, Linear, linear
from circlet.network.losses import LOSSES
from circlet.scoring import heads, scorers, tensors
from circlet.settings import NetworkSettings
from circlet.settings.network import COSINES

__all__ = ["TABLE_LIMIT", "FullHead", "Head", "Network", "Scorer", "make_codebook"]


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
        """The head in the table."""
        return heads.HEADS[self.name]

    def forward(self, hidden: Tensor | Hidden) -> Tensor:
        """Map hidden vectors to codes."""
        layers: Any = list(self.children())
        if len(layers) > 1 and isinstance(hidden, Hidden):
            values = hidden.values
            hidden = values.new_zeros(len(values), self.inputs).index_copy(1, hidden.units, values)
        code: Tensor = self.row.output(tensors, hidden, layers, sum(layer.out_features for layer in layers))
        return code.float()

    def finished(self, outputs: Tensor) -> Tensor:
        """Make codes of what the last layer gives."""
        code: Tensor = self.row.code(tensors, outputs, outputs.shape[-1])
        return code.float()


class FullHead(Head):
    """Head `fc`: an output for each label."""

    def __init__(self, inputs: int, dim: int, *, generator: torch.Generator | None, initial: str = "he") -> None:
        super().__init__("fc", inputs, dim, generator=generator, initial=initial)


class Scorer(nn.Module, scorers.Scorer):
    """Scores labels with a learned scale and learned biases; the base class says what a score is.

    Similarities lie between −1 and 1. If all labels compete in the loss, a scale and, for binary cross-entropy, a
    bias per label turn them into logits. Head `fc` has no codebook, and biases of its own.

    Parameters
    ----------
    codebook : Codebook or None
    n_labels : int
    scaled : bool
        Whether there is a scale.
    biased : bool
        Whether there is a bias per label.
    absolute : bool
        Whether similarities lose their sign.
    """

    codebook: Codebook | None

    def __init__(
        self, codebook: Codebook | None, n_labels: int, *, scaled: bool, biased: bool, absolute: bool = False
    ) -> None:
        super().__init__()
        self.codebook, self.n_labels, self.absolute = codebook, n_labels, absolute
        self.log_scale: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if codebook is not None and scaled:
            # Similarities of unrelated codes have deviation 1/√(2d), so at first this gives logits of about 1.
            self.log_scale = nn.Parameter(torch.tensor(math.log(math.sqrt(2 * codebook.dim))))
        if codebook is not None and biased:
            # If the codebook has a capacity, labels that may be added later already have their biases.
            self.bias = nn.Parameter(torch.zeros(codebook.capacity or n_labels))

    @property
    def scale(self) -> Any:
        """What similarities are multiplied by."""
        return 1.0 if self.log_scale is None else self.log_scale.exp()

    top_k = torch.no_grad()(scorers.Scorer.top_k)

    def _biases(self, offsets: Tensor | None) -> Tensor | None:
        bias = None if self.bias is None else self.bias[: self.n_labels].float()
        return offsets if bias is None else bias if offsets is None else bias + offsets

    def start_from(self, counts: Tensor, n: int) -> None:
        """Initialize biases from label frequencies: `counts` has how many of n documents have each label."""
        # For each label that is true, thousands are false: learning that from zero biases takes epochs.
        if self.bias is not None:
            with torch.no_grad():
                self.bias.fill_(math.log(0.5 / (n + 0.5)))
                self.bias[: len(counts)] = log_odds(counts, n)

    def grow(self, n_labels: int) -> None:
        """Add labels; no weight changes its shape, and the scores of the old labels stay the same."""
        if self.codebook is None:
            raise ParameterError("head fc has one output per label and can't take new labels: choose another head")
        if self.bias is not None and n_labels > len(self.bias):
            raise ParameterError(
                f"loss bce has a bias for {len(self.bias)} labels and can't take {n_labels}: "
                "train a new model, or choose loss cosine or softmax"
            )
        self.codebook.grow(n_labels)
        self.n_labels = n_labels


#: Code tables of up to this many numbers are kept if every step scores all labels.
TABLE_LIMIT = 1 << 27


def make_codebook(
    settings: NetworkSettings, n_labels: int, state: dict[str, Any] | None = None
) -> Codebook | None:
    """The codebook for this many labels, or the saved one with this state; None for `fc`."""
    if settings.codebook_name is None:
        return None
    given: dict[str, Any] = {"n_labels": n_labels, "dim": settings.dim, "seed": settings.seed}
    if settings.slots is not None:
        given["length"] = settings.slots
    book = CODEBOOKS[settings.codebook_name](**state or given)
    if settings.loss not in COSINES and book.needs_table:
        book.cache = n_labels * book.width <= TABLE_LIMIT
    return book


class Network(nn.Module):
    """From documents to the scores of all labels.

    Parameters
    ----------
    settings : NetworkSettings
        What defines it, besides the sizes of the data.
    n_features : int
        Number of features; for an encoder of texts alone, `width` of its vectors.
    n_labels : int
        Number of labels.
    sparse : bool
        Whether batches are `SparseRows` or tensors.
    encoder : TextEncoder or nn.Module, optional
        The encoder of texts that the settings name, which has learned its words; or a module that maps a batch to
        `(batch, settings.hidden[-1])`, and replaces the hidden layers.
    codebook : dict, optional
        The state of a saved codebook, which may have grown.
    blank : bool
        Leave weights uninitialized because they will be loaded.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        n_features: int,
        n_labels: int,
        *,
        sparse: bool,
        encoder: TextEncoder | nn.Module | None = None,
        codebook: dict[str, Any] | None = None,
        blank: bool = False,
    ) -> None:
        super().__init__()
        self.settings = settings
        layers = " and ".join(f"{width:,}" for width in settings.hidden)
        what = f"{n_features:,} features, hidden layers of {layers}, dim {settings.dim:,} and {n_labels:,} labels"
        with within_memory(f"a network of {what}"):
            #: Whether a module replaces the hidden layers that the settings describe.
            self.custom = isinstance(encoder, nn.Module)
            #: The encoder of texts, if there is one.
            self.texts = encoder if isinstance(encoder, TextEncoder) else None
            if not self.custom:
                check_fits(4 * _least_weights(settings, n_features, n_labels, self.texts))
            initial = None if blank else torch.Generator().manual_seed(settings.seed % (1 << 63))
            self.noise = torch.Generator()
            if not isinstance(encoder, nn.Module):
                reader = None
                if self.texts is not None and self.texts.learns:
                    reader = self.texts.module(settings, generator=initial, noise=self.noise)
                encoder = Encoder(
                    n_features,
                    settings.hidden,
                    sparse=sparse,
                    dropout=settings.dropout,
                    generator=initial,
                    noise=self.noise,
                    leak=settings.leak,
                    initial=settings.initial,
                    reader=reader,
                    beside=self.texts.width if self.texts is not None and settings.takes_features else 0,
                )
            self.encoder = encoder
            book = make_codebook(settings, n_labels, codebook)
            dim = n_labels if book is None else settings.dim
            self.head = Head(settings.head, settings.hidden[-1], dim, generator=initial, initial=settings.initial)
            loss = LOSSES[settings.loss]
            self.scorer = Scorer(
                book, n_labels, scaled=loss.scaled, biased=loss.biased, absolute=settings.absolute
            )

    def forward(self, batch: Any) -> Tensor:
        """The head's output for a batch of documents."""
        output: Tensor = self.head(self.encoder(batch))
        return output

    def logits(self, batch: Any) -> Tensor:
        """Scores of all labels, `(batch, n_labels)`."""
        scores: Tensor = self.scorer.logits(self(batch))
        return scores

    def loss(self, output: Tensor, labels: LabelSets) -> Tensor:
        """Mean loss of a batch's documents, from the head's output for them."""
        return LOSSES[self.settings.loss].function(self.scorer, output, labels)

    def start_from(self, counts: Tensor, n: int) -> None:
        """Initialize biases from label frequencies: `counts` has how many of n documents have each label."""
        if self.codebook is None and self.settings.loss == "bce":  # the head itself has a bias per label
            with torch.no_grad():
                self.head.output.bias.copy_(log_odds(counts, n))
        self.scorer.start_from(counts, n)

    def grow(self, n_labels: int) -> None:
        """Add labels; no weight changes its shape, and the scores of the old labels stay the same."""
        self.scorer.grow(n_labels)

    def seed_noise(self, *parts: int) -> None:
        """Seed dropout with these numbers, on the network's device."""
        if self.noise.device != self.device:
            self.noise = torch.Generator(self.device)
            for module in self.modules():
                if isinstance(module, Dropout):
                    module.generator = self.noise
        self.noise.manual_seed(int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1)

    def drop_by_batch(self, by_batch: bool) -> None:
        """Whether dropout in training drops the same units for all documents of a batch."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.by_batch = by_batch

    def drop_as_part(self, start: int, n: int) -> None:
        """Let dropout know that the next rows begin at `start` of a batch of n, which several processes share."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.part = start, n

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def codebook(self) -> Codebook | None:
        """Where the labels' codes come from; None for `fc`."""
        return self.scorer.codebook

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorer.n_labels

    def weights(self) -> dict[str, Tensor]:
        """All weights, under their names in files."""
        return {self._stored(name): tensor for name, tensor in self.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights that `weights` returned."""
        self.load_state_dict({name: weights[self._stored(name)] for name in self.state_dict()})

    def _stored(self, name: str) -> str:
        """What a tensor is called in files, as `circlet.storage.network_spec` says."""
        part, _, own = name.partition(".")
        return name if part == "encoder" and self.custom else own

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of parameters: of the encoder, the head, the loss (the scorer's scale and bias), and in all."""
        parts = {"encoder": self.encoder, "head": self.head, "loss": self.scorer}
        counts = {name: sum(each.numel() for each in part.parameters()) for name, part in parts.items()}
        return {**counts, "total": sum(counts.values())}


def log_odds(counts: Tensor, n: int) -> Tensor:
    """Smoothed log-odds of labels that occur in `counts` of n documents."""
    return ((counts + 0.5) / (n - counts + 0.5)).log()


def _least_weights(settings: NetworkSettings, n_features: int, n_labels: int, texts: TextEncoder | None) -> int:
    """How many weights the layers of a network have, or a few less."""
    outputs = n_labels if settings.codes is None else settings.dim
    widths = (n_features, *settings.hidden, outputs)
    own = sum(map(math.prod, texts.shapes().values())) if texts is not None else 0
    return own + sum(before * after for before, after in pairwise(widths))
