"""How should labels share few outputs? Spectral and independent codes of small d, and what others would use.

A model with circular codes of dimension d has 2 d outputs. `circlet_paper.codebooks` measures how many
labels codes of small d hold; here models learn with them. They are compared with three other outputs of 2 d
numbers: rows of a Hadamard matrix (Hoffer, Hubara and Soudry, 2018), MACH, which hashes labels into buckets
(Medini et al., 2019), and a learned vector for every label, which makes the number of parameters grow with the
number of labels.

What the paper leaves open, and what we chose (it has no experiment like this one):

- All models have circlet's own encoder, sizes, loss and training; only the output differs.
- Hadamard codes are random columns of the matrix, and labels get random rows: there are more labels than outputs,
  and the first columns would give many labels the same code. The output is normalized, with a learned scale and a
  learned bias per label, as Hoffer et al. do and as circlet does.
- MACH: R hash functions with 2 d / R buckets each, binary cross-entropy over buckets, and labels scored by the
  mean probability of their buckets. R = 4, 10 and 20 are trained; the best on held-out rows counts.
- Learned vectors: a full output layer of rank 2 d, with the same loss over labels and a bias per label.
- Models with the same seed have the same held-out rows, order of rows and first weights of the encoder, so outputs
  are compared seed by seed. One is ahead of another where it is ahead with every seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
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
from circlet.report import Cell, Table
from circlet.settings import NetworkSettings, RunSettings
from circlet.training import train
from circlet_paper import Claim, training_cells
from circlet_paper.cells import Result
from circlet_paper.drawing import finished, panels
from circlet_paper.runs import Runs, millions, runs, verdict
from circlet_paper.training_cells import DEPTHS, FIXED, Recipe, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    def size(self) -> int:
        """Number of rows and columns of the whole matrix."""
        return 1 << (max(self.n_labels, self.width) - 1).bit_length()

    def _generate(self, ops: Any, ids: Any) -> Any:
        rows = permuted(ids, self.size, self.seed, stream=1)
        columns = permuted(ops.arange(0, self.width, ids), self.size, self.seed, stream=2)
        # Sylvester's matrix: the sign is the parity of the bits that the row and the column have in common.
        shared = rows[:, None] & columns
        for shift in (16, 8, 4, 2, 1):
            shared ^= shared >> shift
        # A code has the norm √d, as d phasors have, which is what the head's output is scaled to.
        return ops.single(1 - 2 * (shared & 1)) * math.sqrt(0.5)


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


TITLE = "How labels should share few outputs"
DATASETS = ("delicious", "eurlex-4k")
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
#: P@5 varies less from seed to seed than P@1 does.
SHOWN = "P@5"
#: Titles of the outputs in tables and pictures.
OUTPUTS = {
    "spectral": "spectral codes",
    "independent": "independent codes",
    "hadamard": "Hadamard codes",
    "mach": "MACH",
    "low-rank": "learned vectors",
}


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; the defaults are the full size.

    Parameters
    ----------
    seeds, rows, epochs, shrink
        See `circlet_paper.training_cells.Settings`.
    dims : tuple of int
        Dimensions d; there are 2 d outputs.
    """

    dims: tuple[int, ...] = (50, 100, 200, 400)

    @classmethod
    def quick(cls) -> Settings:
        """Few rows and only two dimensions."""
        return cls(**vars(training_cells.Settings.quick()), dims=(50, 200))


def cells(settings: Settings) -> list[TrainingCell]:
    """Every output with every dimension, on each dataset."""
    dims = getattr(settings, "dims", Settings.dims)
    return [
        cell
        for dataset in DATASETS
        for output in OUTPUTS
        for dim in dims
        for cell in _cells(settings, dataset, output, dim)
    ]


def _cells(settings: training_cells.Settings, dataset: str, output: str, dim: int) -> list[TrainingCell]:
    given = {"dim": dim, **({"codebook": output} if output == "independent" else {})}
    planned = Recipe(OUTPUTS[output], FIXED, given).cells(dataset, settings)
    return planned if output in ("spectral", "independent") else [*other_cells(planned, output)]


class Measured:
    """The runs of a result, by dataset, output and dimension."""

    def __init__(self, result: Result) -> None:
        self.settings = Settings.of(result)
        self.runs: dict[tuple[str, str, int], Runs] = {}
        for dataset in DATASETS:
            for output in OUTPUTS:
                for dim in self.settings.dims:
                    if found := runs(result, _cells(self.settings, dataset, output, dim)):
                        self.runs[dataset, output, dim] = found
        self.datasets = [name for name in DATASETS if any(key[0] == name for key in self.runs)]

    def of(self, dataset: str, output: str) -> dict[int, Runs]:
        """The runs of an output, by dimension."""
        return {
            dim: found for (name, other, dim), found in self.runs.items() if (name, other) == (dataset, output)
        }

    def gaps(self, dataset: str, one: str, other: str, metric: str) -> dict[int, list[float]]:
        """By how many points one output is ahead of another: for each dimension, one number per common seed."""
        ours, theirs, found = self.of(dataset, one), self.of(dataset, other), {}
        for dim in ours:
            if dim in theirs:
                values = [
                    {cell["about"]["seed"]: float(cell["metrics"][metric]) for cell in these.cells}
                    for these in (ours[dim], theirs[dim])
                ]
                common = [seed for seed in values[0] if seed in values[1]]
                if common:
                    found[dim] = [values[0][seed] - values[1][seed] for seed in common]
        return found


def tables(result: Result) -> list[Table]:
    """P@k and PSP@k for each dataset, with a row for each output and number of outputs."""
    measured, made = Measured(result), []
    for dataset in DATASETS:
        rows: list[tuple[Cell, ...]] = []
        for output, title in OUTPUTS.items():
            for dim, these in measured.of(dataset, output).items():
                shown = (these.show(metric) for metric in METRICS)
                rows.append((title, 2 * dim, _hashes(these), millions(these.parameters), *shown))
        note = (
            f"Mean ± standard deviation of {measured.settings.seeds} seeds. R: MACH's numbers of hash functions, "
            "chosen on held-out rows with each seed."
            if rows
            else "Not measured: the dataset was not available."
        )
        columns = ("", "Outputs", "R", "Parameters", *METRICS)
        made.append(Table(f"{title_of(dataset)}, %", columns, rows, note + measured.settings.note))
    return made


def _hashes(these: Runs) -> str | None:
    """The numbers of hash functions that MACH's runs chose; None for other outputs."""
    chosen = [each["value"] for cell in these.cells for each in cell.get("decided", ())]
    return ", ".join(map(str, sorted(set(chosen)))) or None


def claims(result: Result) -> list[Claim]:
    """Judge what this library would claim about small outputs; the paper says nothing about them."""
    measured = Measured(result)
    others = {
        "independent": "Models with spectral codes tag better than with independent codes of the same d",
        "hadamard": "Models with spectral codes tag better than with as many columns of a Hadamard matrix",
        "mach": "Models with spectral codes tag better than MACH with as many outputs",
        "low-rank": "Models with spectral codes tag better than with as many outputs and learned label vectors",
    }
    made = [claim for other, text in others.items() if (claim := _judge_ahead(measured, other, text))]
    return [*made[:1], *_judge_fewer(measured), *made[1:]]


def _compared(measured: Measured, other: str) -> Iterator[tuple[str, dict[int, list[float]]]]:
    """The gaps of spectral codes to another output in P@5, for each dataset that has some."""
    for dataset in measured.datasets:
        if gaps := measured.gaps(dataset, "spectral", other, SHOWN):
            yield dataset, gaps


def _judge_ahead(measured: Measured, other: str, text: str) -> Claim | None:
    gaps = dict(_compared(measured, other))
    every = [values for these in gaps.values() for values in these.values()]
    if not every:
        return None
    ahead, behind = (sum(all(sign * gap > 0 for gap in gaps) for gaps in every) for sign in (1, -1))
    outputs = ", ".join(str(2 * dim) for dim in sorted({dim for these in gaps.values() for dim in these}))
    evidence = (
        f"{SHOWN}, compared seed by seed: ahead with every seed in {ahead} of {len(every)} comparisons, behind "
        f"with every seed in {behind}; points ahead with {outputs} outputs: {_listed(gaps)}"
    )
    if other == "low-rank":
        evidence += f"; parameters: {_sizes(measured)}"
    return Claim(text, verdict(ahead, len(every)), evidence)


def _judge_fewer(measured: Measured) -> list[Claim]:
    """Judge whether it matters more which codes labels have when d is small."""
    gaps = {name: these for name, these in _compared(measured, "independent") if len(these) > 1}
    if not gaps:
        return []
    means = [[statistics.fmean(these[dim]) for dim in (min(these), max(these))] for these in gaps.values()]
    grows = [fewest > max(most, 0) for fewest, most in means]
    return [
        Claim(
            "The fewer outputs, the further spectral codes are ahead of independent ones",
            verdict(sum(grows), len(grows)),
            f"mean gap in {SHOWN} with the fewest and with the most outputs: "
            + "; ".join(
                f"{title_of(name)} {statistics.fmean(these[min(these)]):+.1f} and "
                f"{statistics.fmean(these[max(these)]):+.1f}"
                for name, these in gaps.items()
            ),
        )
    ]


def _listed(gaps: dict[str, dict[int, list[float]]]) -> str:
    return "; ".join(
        f"{title_of(name)} " + ", ".join(f"{statistics.fmean(values):+.1f}" for values in these.values())
        for name, these in gaps.items()
    )


def _sizes(measured: Measured) -> str:
    """How many parameters models with the most outputs have."""
    found = []
    for dataset in measured.datasets:
        ours, theirs = (measured.of(dataset, output) for output in ("spectral", "low-rank"))
        if common := [dim for dim in ours if dim in theirs]:
            most = common[-1]
            both = (millions(these[most].parameters) for these in (ours, theirs))
            found.append(f"{title_of(dataset)}, {2 * most} outputs: {' against '.join(both)}")
    return "; ".join(found)


#: Color, marker and line style: one color for spectral codes, gray for the others.
STYLES = {
    "spectral": ("#0072B2", "o", "-"),
    "independent": ("#4d4d4d", "s", "-"),
    "hadamard": ("#4d4d4d", "^", "--"),
    "mach": ("#8c8c8c", "v", ":"),
    "low-rank": ("#8c8c8c", "D", "-."),
}


def draw(result: Result) -> Figure:
    """Draw a panel for each dataset: P@5 over the number of outputs."""
    measured = Measured(result)
    figure, axes = panels(1, len(measured.datasets), (4.6 * max(len(measured.datasets), 1), 3.9))
    for axis, dataset in zip(axes[0], measured.datasets, strict=False):
        _draw_panel(axis, measured, dataset)
    return finished(figure)


def _draw_panel(axis: Axes, measured: Measured, dataset: str) -> None:
    ends: dict[str, tuple[float, float]] = {}
    for output, (color, marker, line) in STYLES.items():
        if these := measured.of(dataset, output):
            x = [2 * dim for dim in these]
            means = [found.mean(SHOWN) for found in these.values()]
            bars = [found.sd(SHOWN) or 0.0 for found in these.values()]
            front = 3 if output == "spectral" else 2
            axis.errorbar(
                x, means, bars, color=color, marker=marker, ls=line, ms=5, lw=1.6, capsize=2, zorder=front
            )
            ends[output] = x[-1], means[-1]
    axis.set_xscale("log", base=2)
    ticks = [2 * dim for dim in measured.settings.dims]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xlim(ticks[0] / 1.2, ticks[-1] * 3.2)  # room for the labels
    axis.minorticks_off()
    _label(axis, ends)
    axis.set_title(title_of(dataset))
    axis.set_xlabel("outputs, 2 d")
    axis.set_ylabel(f"{SHOWN}, %")


def _label(axis: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Write the title of each line at its end, the lower ones below the higher ones without overlap."""
    low, high = axis.get_ylim()
    least, place = (high - low) / 15, float("inf")
    for output, (x, y) in sorted(ends.items(), key=lambda item: -item[1][1]):
        place = min(y, place - least)
        axis.text(x * 1.12, place, OUTPUTS[output], color=STYLES[output][0], fontsize=8, va="center")
