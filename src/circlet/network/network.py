"""A network, made from settings: an encoder, a head (the last layer) and a scorer; and an ensemble of networks.

What head and scorer compute stands in `circlet.scoring`; here they learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from circlet.checks import check_ranking
from circlet.codebooks import CODEBOOKS, Codebook
from circlet.encoders import RowPairs, TextEncoder, TextRows
from circlet.errors import ParameterError, check_fits, within_memory
from circlet.network.encoders import Dropout, Encoder, Hidden, LabelSets, Linear, as_batch, linear
from circlet.network.losses import LOSSES
from circlet.scoring import heads, scorers, tensors
from circlet.scoring.arrays import MEMORY, checked
from circlet.scoring.ranking import Gain
from circlet.settings import NetworkSettings
from circlet.settings.network import COSINES
from circlet.storage.network_spec import member_prefix

__all__ = [
    "TABLE_LIMIT",
    "Ensemble",
    "FullHead",
    "Head",
    "Network",
    "Scorer",
    "make_codebook",
    "outputs_of",
    "score_blocks",
    "top_k",
]

#: The slope and intercept of scores that are log-odds already.
PLAIN = (1.0, 0.0)
#: Documents at a time, and texts that an encoder reads, each of which takes far more memory.
BATCH, TEXTS = 1024, 128


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
        """Turn the outputs of the last layer into codes."""
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
        """The factor of similarities."""
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
    """Make the codebook for so many labels, or the saved one with this state; None for `fc`."""
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
        Everything but the sizes of the data.
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
            for dropout in self._dropouts():
                dropout.generator = self.noise
        self.noise.manual_seed(int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) >> 1)

    def drop_by_batch(self, by_batch: bool) -> None:
        """Let dropout drop the same units for all documents of a batch, or units of each document."""
        for dropout in self._dropouts():
            dropout.by_batch = by_batch

    def drop_as_part(self, start: int, n: int) -> None:
        """Tell dropout that the next rows begin at `start` of a batch of n, which several processes share."""
        for dropout in self._dropouts():
            dropout.part = start, n

    def _dropouts(self) -> Iterator[Dropout]:
        return (module for module in self.modules() if isinstance(module, Dropout))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def codebook(self) -> Codebook | None:
        """The codebook; None for `fc`."""
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
        """The name of a tensor in files, as `circlet.storage.network_spec` has it."""
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


class Ensemble(scorers.Ensemble):
    """Networks that score the same labels.

    Parameters
    ----------
    networks : sequence of Network
        At least one. Their settings differ only in the seed.
    calibrations : sequence of (slope, intercept), optional
        The logistic curve from each network's scores to probabilities. By default scores are log-odds.
    """

    def __init__(
        self, networks: Sequence[Network], calibrations: Sequence[tuple[float, float]] | None = None
    ) -> None:
        self.networks = list(networks)
        super().__init__(
            [network.scorer for network in self.networks], list(calibrations or [PLAIN] * len(networks))
        )

    def __call__(self, batch: Any) -> list[Tensor]:
        """The output of each network for a batch."""
        return [network(batch).float() for network in self.networks]

    top_k = torch.no_grad()(scorers.Ensemble.top_k)

    def eval(self) -> Ensemble:
        """Switch dropout off."""
        for network in self.networks:
            network.eval()
        return self

    def to(self, device: torch.device) -> Ensemble:
        """Move all networks to a device."""
        for network in self.networks:
            network.to(device)
        return self

    def grow(self, n_labels: int) -> None:
        """Add labels to all networks; see `Network.grow`."""
        for network in self.networks:
            network.grow(n_labels)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.networks[0].device

    def weights(self) -> dict[str, Tensor]:
        """All weights, under their names in files."""
        numbered = enumerate(self.networks)
        return {member_prefix(i) + name: tensor for i, each in numbered for name, tensor in each.weights().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights that `weights` returned."""
        for i, network in enumerate(self.networks):
            prefix = member_prefix(i)
            own = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
            network.load_weights(own)

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of parameters of all networks together; see `Network.parameter_counts`."""
        counts = [network.parameter_counts() for network in self.networks]
        return {part: sum(each[part] for each in counts) for part in counts[0]}


def top_k(
    ensemble: Ensemble,
    X: Any,
    k: int,
    *,
    memory: int | None = None,
    allowed: Any = None,
    threshold: float | None = None,
    gain: Gain | None = None,
    batch: int = BATCH,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Ids and scores of the k best labels of every row, `(n, min(k, n_labels))`.

    Parameters
    ----------
    ensemble : Ensemble
    X : csr_matrix, ndarray or ScaledRows of shape (n, n_features), RowPairs or TextRows
        Scaled features, rows of an encoder of texts, or both.
    k : int
    memory, allowed, threshold
        See `circlet.scoring.ranking.top_k`; `allowed` is an array.
    gain : Gain, optional
        Rank labels by their gain instead of their score.
    batch : int
        Rows at a time.
    """
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed)).to(ensemble.device)
    check_ranking(ensemble.n_labels, memory, mask, threshold)
    found = []
    for outputs in outputs_of(ensemble, X, batch):
        for each in outputs:  # a ranking would leave NaN out
            checked(each.cpu().numpy())
        found.append(ensemble.top_k(outputs, k, gain=gain, memory=memory, allowed=mask, threshold=threshold))
    if not found:
        empty = (0, min(k, ensemble.n_labels))
        return np.zeros(empty, dtype=np.int64), np.zeros(empty, dtype=np.float32)
    ids, scores = zip(*found, strict=True)
    return torch.cat(ids).cpu().numpy(), torch.cat(scores).cpu().numpy()


def score_blocks(ensemble: Ensemble, X: Any, batch: int = BATCH) -> Iterator[npt.NDArray[np.float32]]:
    """Scores of all labels, `(some rows, n_labels)` at a time; there is at least one block."""
    if not X.shape[0]:
        yield np.zeros((0, ensemble.n_labels), dtype=np.float32)
    for outputs in outputs_of(ensemble, X, min(batch, max(1, MEMORY // (12 * ensemble.n_labels)))):
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = ensemble.logits(outputs).cpu().numpy()
        yield scores


def outputs_of(ensemble: Ensemble, X: Any, size: int = BATCH) -> Iterator[list[Tensor]]:
    """The outputs of each network for rows, so many at a time."""
    ensemble.eval()
    size = min(size, TEXTS) if isinstance(X, (RowPairs, TextRows)) else size
    for start in range(0, X.shape[0], size):
        # Not inference_mode, because codes that are cached here may be used in training later.
        with torch.no_grad():
            outputs = ensemble(as_batch(X[start : start + size]).to(ensemble.device))
        yield outputs
