"""Outputs that others would use where labels are many and outputs few: Hadamard codes, hashing, learned vectors.

Each has 2 d outputs after circlet's own encoder, and is trained by circlet's own loop; only what is between the
last hidden layer and the scores of the labels differs. With the same seed, encoders start from the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from circlet.codebooks import Codebook
from circlet.data import Split
from circlet.features import Scaling
from circlet.hashing import permuted
from circlet.model import Model
from circlet.network import Ensemble, FullHead, LabelSets, Network, Scorer
from circlet.settings import NetworkSettings, RunSettings
from circlet.training import train
from circlet_paper.cells import Result
from circlet_paper.training_cells import TrainingCell

if TYPE_CHECKING:
    from circlet.training import Reporter

#: Numbers of hash functions that are tried: few with many buckets each, or many with few.
HASHES = (4, 10, 20)


class HadamardCodebook(Codebook):
    """2 d columns of a Hadamard matrix whose size is the next power of two that has a row for every label.

    The rows are orthogonal as a whole, and nearly so in a random choice of columns. The first columns would give
    many labels the same code. Labels get their rows in random order, for the reason that spectral codes permute
    their slots.
    """

    @property
    def width(self) -> int:
        return 2 * self.dim

    @property
    def scale(self) -> float:
        return 1 / self.dim

    @property
    def size(self) -> int:
        """Number of rows and columns of the whole matrix."""
        return 1 << (max(self.n_labels, self.width) - 1).bit_length()

    def _generate(self, ids: Tensor) -> Tensor:
        rows = permuted(ids, self.size, self.seed, stream=1)
        columns = permuted(torch.arange(self.width, device=ids.device), self.size, self.seed, stream=2)
        # Sylvester's matrix: the sign is the parity of the bits that the row and the column have in common.
        shared = rows[:, None] & columns
        for shift in (16, 8, 4, 2, 1):
            shared ^= shared >> shift
        # A code has the norm √d, as d phasors have, which is what the head's output is scaled to.
        codes: Tensor = (1 - 2 * (shared & 1)).float() * math.sqrt(0.5)
        return codes


class HadamardNetwork(Network):
    """Fixed rows of a Hadamard matrix as output weights, with a learned scale and biases (Hoffer et al., 2018)."""

    def __init__(self, settings: NetworkSettings, n_features: int, n_labels: int, *, sparse: bool) -> None:
        super().__init__(settings, n_features, n_labels, sparse=sparse)
        book = HadamardCodebook(n_labels, settings.dim, settings.seed, cache=True)
        self.scorer = Scorer(book, n_labels, scaled=True, biased=True)


class PlainNetwork(Network):
    """A network whose 2 d outputs are not normalized, with a scorer that has no codebook."""

    def __init__(
        self, settings: NetworkSettings, n_features: int, n_labels: int, *, sparse: bool, scorer: Scorer
    ) -> None:
        super().__init__(settings, n_features, n_labels, sparse=sparse)
        self.head = FullHead(settings.hidden[-1], 2 * settings.dim, generator=_generator(settings, 1))
        self.scorer = scorer

    def start_from(self, counts: Tensor, n: int) -> None:
        self.scorer.start_from(counts, n)


class LearnedVectors(Scorer):
    """Scores are inner products with a learned vector for every label, plus a learned bias."""

    def __init__(self, n_labels: int, width: int, generator: torch.Generator) -> None:
        super().__init__(None, n_labels, scaled=False, biased=False)
        self.vectors = nn.Parameter(torch.randn(n_labels, width, generator=generator) * (1 / math.sqrt(width)))
        self.bias = nn.Parameter(torch.zeros(n_labels))

    def logits(self, output: Tensor) -> Tensor:
        assert self.bias is not None
        return torch.addmm(self.bias, output, self.vectors.mT)


class LowRankNetwork(PlainNetwork):
    """A full output layer of rank 2 d: its table of labels × 2 d numbers is learned."""

    def __init__(self, settings: NetworkSettings, n_features: int, n_labels: int, *, sparse: bool) -> None:
        scorer = LearnedVectors(n_labels, 2 * settings.dim, _generator(settings, 2))
        super().__init__(settings, n_features, n_labels, sparse=sparse, scorer=scorer)


class Buckets(Scorer):
    """Scores are the mean probability of a label's buckets, one for each hash function.

    `table`, `(hashes, n_labels)`, has the outputs that are the buckets of each label.
    """

    table: Tensor

    def __init__(self, n_labels: int, outputs: int, hashes: int, generator: torch.Generator) -> None:
        super().__init__(None, n_labels, scaled=False, biased=False)
        each = outputs // hashes
        drawn = torch.randint(each, (hashes, n_labels), generator=generator)
        self.register_buffer("table", drawn + each * torch.arange(hashes)[:, None], persistent=False)

    def logits(self, output: Tensor) -> Tensor:
        probabilities = output.sigmoid()
        total = probabilities[:, self.table[0]]
        for buckets in self.table[1:]:
            total = total + probabilities[:, buckets]
        return total / len(self.table)

    def targets(self, labels: LabelSets, width: int) -> Tensor:
        """1 where any label of a document is in a bucket, `(batch, width)`."""
        places = labels.documents * width + self.table[:, labels.ids]
        weights = torch.ones_like(places, dtype=torch.float32)
        if labels.weights is not None:
            weights = weights * labels.weights
        found = weights.new_zeros(len(labels) * width).scatter_add_(0, places.flatten(), weights.flatten())
        return found.clamp_(max=1).view(len(labels), width)

    def shares(self, counts: Tensor, n: int, width: int) -> Tensor:
        """The share of n documents in each bucket, as if labels occurred independently."""
        without = torch.log1p(-(counts.double() / n).clamp(max=1 - 1e-6)).to(self.table.device)
        logs = without.new_zeros(width).scatter_add_(0, self.table.flatten(), without.repeat(len(self.table)))
        return -torch.expm1(logs)


class HashedNetwork(PlainNetwork):
    """MACH: labels are hashed into buckets several times, and the network learns these (Medini et al., 2019)."""

    def __init__(
        self, settings: NetworkSettings, n_features: int, n_labels: int, *, sparse: bool, hashes: int
    ) -> None:
        scorer = Buckets(n_labels, 2 * settings.dim, hashes, _generator(settings, 2))
        super().__init__(settings, n_features, n_labels, sparse=sparse, scorer=scorer)

    def loss(self, output: Tensor, labels: LabelSets) -> Tensor:
        assert isinstance(self.scorer, Buckets)
        targets = self.scorer.targets(labels, output.shape[1])
        total = torch.nn.functional.binary_cross_entropy_with_logits(output, targets, reduction="sum")
        return total / max(len(labels), 1)

    def start_from(self, counts: Tensor, n: int) -> None:
        assert isinstance(self.scorer, Buckets)
        bias = self.head.output.bias
        expected = n * self.scorer.shares(counts, n, len(bias))
        with torch.no_grad():
            bias.copy_(((expected + 0.5) / (n - expected + 0.5)).log())


def _generator(settings: NetworkSettings, stream: int) -> torch.Generator:
    state = np.random.SeedSequence([settings.seed, stream]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)


#: The networks of each output; of several, the one that is best on held-out rows counts.
NETWORKS: dict[str, Sequence[Callable[..., Network]]] = {
    "hadamard": (HadamardNetwork,),
    "mach": tuple(partial(HashedNetwork, hashes=hashes) for hashes in HASHES),
    "low-rank": (LowRankNetwork,),
}


@dataclass(frozen=True)
class OutputCell(TrainingCell):
    """Train a model with another output; `output` is one of `NETWORKS`."""

    output: str = "hadamard"

    @property
    def name(self) -> str:
        before, _, seed = super().name.rpartition("-seed")
        return f"{before.replace(self.settings()['head'], self.output)}-seed{seed}"

    def about(self) -> Result:
        tried = {"hashes": list(HASHES)} if self.output == "mach" else {}
        return {**super().about(), "output": self.output, **tried}

    def fit(self, split: Split, settings: RunSettings, device: torch.device, reporter: Reporter | None) -> Model:
        """Train as `circlet.model.fit` does: on all rows but those that choose the best epoch."""
        held_out = settings.held_out(split.n)
        assert held_out is not None, "an experiment has enough rows to hold some out"
        validation, split = split.take(held_out), split.take(np.delete(np.arange(split.n), held_out))
        scaling = Scaling(settings.scaling).fit(split.X)
        rows, others = scaling.transform(split.X), scaling.transform(validation.X)
        models = []
        for make in NETWORKS[self.output]:
            about: dict[str, Any] = {"n_features": int(rows.shape[1]), "sparse": bool(sp.issparse(rows))}
            network = make(settings.network, about["n_features"], split.Y.shape[1], sparse=about["sparse"])
            about |= {"training": asdict(settings.training) | {"documents": split.n, "held_out": validation.n}}
            counts = np.bincount(split.Y.indices, minlength=split.Y.shape[1])
            model = Model(Ensemble([network]), scaling, label_counts=counts, **about)
            model.history = train(
                network,
                rows,
                split.Y,
                settings.training,
                validation=(others, validation.Y),
                device=device,
                reporter=reporter,
            )
            models.append(model)
        best = max(models, key=lambda model: max(each[settings.training.metric] for each in model.history))
        if len(models) > 1:
            best.training["decided"] = [{"setting": "hashes", "value": HASHES[models.index(best)]}]
        return best


def other_cells(cells: Sequence[TrainingCell], output: str) -> list[OutputCell]:
    """The same cells with another output."""
    return [OutputCell(**vars(cell), output=output) for cell in cells]
