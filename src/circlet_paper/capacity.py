"""How many labels does one vector hold? The paper's section 3.2 and its heat maps.

The setting is the paper's. A database has N = 1,000 random vectors. One of them is the concept vector **p**
and k others are the labels. The memory R = ⊕ p ⊗ c is built and decoded as R ⊗ p†, and all N vectors are ranked by
their similarity to that. The accuracy of a cell is the percentage of the k labels among the top k. The grid is
d = 1…1024 by k = 1…50.

What the paper leaves open, and what we chose:

- Repetitions: 5 per cell of the grid, each with its own database; their mean and standard deviation are kept. A
  curve of five repetitions falls and rises again, so how many labels a vector holds is measured with 400, and ends
  before the first k at which fewer than 95 % are retrieved.
- Whether **p** may be one of the k labels: here it is not.
- The similarity of real vectors: the inner product of Table 1. With projection all norms are 1, so the cosine
  would give the same ranking.
- Within a repetition, the labels for k + 1 are those for k and one more, so that one running sum gives every
  superposition. Each cell is distributed as in the paper; cells of one row are correlated.

Plain HRR, which the paper's figure leaves out, is measured too. Beside what vectors hold stands what the normal
approximation of `circlet_paper.theory_formulas` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.algebra import circular, holographic
from circlet.report import Table
from circlet_paper import Claim, Result, Track
from circlet_paper.theory_formulas import Scores, angle_scores, retrieved, sum_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How many labels one vector holds"
METHODS = {"hrr": "HRR", "hrr-projected": "HRR (w/Proj)", "chrr": "CHRR"}
#: A vector "holds" k labels if this percentage of them is retrieved, and of any fewer labels, too.
HELD_AT = 95.0
TABLE_DIMS = (64, 128, 256, 512, 1024)
#: Repetitions at a time where there are many, and samples of the bootstrap.
PART, SAMPLES = 50, 1000


@dataclass(frozen=True)
class Settings:
    """Size of the grid; the defaults are the paper's."""

    dims: tuple[int, ...] = tuple(range(1, 1025))
    max_k: int = 50
    n_vectors: int = 1000
    repetitions: int = 5
    seed: int = 0
    precise: int = 400

    @classmethod
    def quick(cls, seed: int = 0) -> Settings:
        """Every 32nd dimension."""
        return cls(dims=(1, *range(32, 1025, 32)), seed=seed, precise=PART)


def run(settings: Settings, track: Track = iter) -> Result:
    """Measure the retrieval accuracy of every method in every cell of the grid."""
    hits = {method: {} for method in METHODS}  # type: dict[str, dict[int, Tensor]]
    # The largest first, so that a progress bar overestimates the time left rather than underestimating it.
    for dim in track(sorted(settings.dims, reverse=True)):
        for method in METHODS:
            hits[method][dim] = _hits(method, dim, settings)
    k = torch.arange(1, settings.max_k + 1)
    accuracy = {
        method: torch.stack([hits[method][dim] for dim in settings.dims]) * (100 / k) for method in METHODS
    }
    return {
        "settings": asdict(settings),
        "unit": "percentage of the k labels among the top k; rows are dims, columns are k = 1, 2, …",
        "methods": {
            method: {
                "mean": _rounded(values.mean(1)),
                "std": _rounded(values.std(1)) if settings.repetitions > 1 else None,
            }
            for method, values in accuracy.items()
        },
        "held": {
            method: {str(dim): _measure_held(method, dim, settings) for dim in TABLE_DIMS if dim in settings.dims}
            for method in METHODS
        },
    }


def _measure_held(method: str, dim: int, settings: Settings) -> Result:
    """Measure how many labels a vector holds, with a standard error from a bootstrap over repetitions."""
    part = replace(settings, repetitions=PART)
    hits = torch.cat([_hits(method, dim, part, i) for i in range(1, 1 + settings.precise // PART)])
    accuracy = hits.double().numpy() * (100 / np.arange(1, settings.max_k + 1))
    random, n = np.random.default_rng(settings.seed), len(accuracy)
    drawn = [_before_first_failure(accuracy[random.integers(0, n, n)].mean(0)) for _ in range(SAMPLES)]
    mean = accuracy.mean(0)
    return {
        "mean": np.round(mean, 2).tolist(),
        "k": _before_first_failure(mean),
        "error": round(float(np.std(drawn)), 2),
    }


def _before_first_failure(accuracy: npt.NDArray[np.float64]) -> int:
    """The last k before accuracy, of shape (max_k,), first falls below `HELD_AT`."""
    fails = accuracy < HELD_AT
    return int(fails.argmax()) if fails.any() else len(accuracy)


def _hits(method: str, dim: int, settings: Settings, part: int = 0) -> Tensor:
    """Count the labels retrieved, of shape (repetitions, max_k): column k − 1 is for k stored labels."""
    # Seeded by dimension, not by order, so that a smaller grid gives the same numbers in its cells.
    names = [settings.seed, dim, part] if part else [settings.seed, dim]
    seed = np.random.SeedSequence(names).generate_state(1, np.uint64)[0]
    generator = torch.Generator().manual_seed(int(seed) >> 1)
    repetitions, n, max_k = settings.repetitions, settings.n_vectors, settings.max_k
    # A random order of the database: the first vector is p, the next ones are the labels.
    order = torch.rand(repetitions, n, generator=generator).argsort(-1)[:, : max_k + 1]
    scores = SCORERS[method](dim, n, order, generator)

    stored_from = torch.full((repetitions, n), max_k + 1)
    stored_from.scatter_(1, order[:, 1:], torch.arange(1, max_k + 1).expand(repetitions, -1))
    k = torch.arange(1, max_k + 1)
    top = scores.topk(max_k, dim=-1).indices
    is_label = stored_from.gather(1, top.flatten(1)).view_as(top) <= k[:, None]
    return (is_label & (k <= k[:, None])).sum(-1)


def _chrr_scores(dim: int, n: int, order: Tensor, generator: torch.Generator) -> Tensor:
    database = circular.random((len(order), n), dim, generator=generator)
    concept, labels = _chosen(database, order)
    # superpose() for every k at once: the angle of the running sum of phasors.
    memory = circular.unpack(circular.pack(circular.bind(concept, labels)).cumsum(-2))
    decoded = circular.unbind(memory, concept)
    return circular.pack(decoded) @ circular.pack(database).mT / dim


def _hrr_scores(dim: int, n: int, order: Tensor, generator: torch.Generator) -> Tensor:
    return _real_scores(holographic.random((len(order), n), dim, generator=generator), order)


def _projected_hrr_scores(dim: int, n: int, order: Tensor, generator: torch.Generator) -> Tensor:
    database = holographic.random((len(order), n), dim, generator=generator)
    return _real_scores(holographic.project(database), order)


def _real_scores(database: Tensor, order: Tensor) -> Tensor:
    concept, labels = _chosen(database, order)
    memory = holographic.bind(concept, labels).cumsum(-2)
    return holographic.unbind(memory, concept) @ database.mT


def _chosen(database: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    chosen = database.gather(1, order[..., None].expand(-1, -1, database.shape[-1]))
    return chosen[:, :1], chosen[:, 1:]


#: (dim, n, order, generator) -> similarity of the memory of each k to each vector: (repetitions, max_k, n).
SCORERS: dict[str, Callable[[int, int, Tensor, torch.Generator], Tensor]] = {
    "hrr": _hrr_scores,
    "hrr-projected": _projected_hrr_scores,
    "chrr": _chrr_scores,
}


def held(result: Result, method: str, dim: int) -> int:
    """Return how many labels a vector holds."""
    return int(result["held"][method][str(dim)]["k"])


def approximated(method: str, dim: int, n_vectors: int, max_k: int) -> int:
    """How many labels a vector should hold if similarities were normal."""

    def scores(k: int) -> Scores:
        # A real vector of d numbers compares like d / 2 phasors that keep their amplitudes.
        return angle_scores(k, dim) if method == "chrr" else sum_scores(k, dim // 2)

    share = (100 * retrieved(scores(k), k, n_vectors) for k in range(1, max_k + 1))
    return _before_first_failure(np.fromiter(share, np.float64, max_k))


def tables(result: Result) -> list[Table]:
    """Tabulate how many labels are held at each of a few dimensions."""
    settings = result["settings"]
    max_k, n_vectors = settings["max_k"], settings["n_vectors"]
    dims = [dim for dim in TABLE_DIMS if dim in settings["dims"]]

    def measured(method: str, dim: int) -> str:
        found = result["held"][method][str(dim)]
        return f"≥ {max_k}" if found["k"] == max_k else f"{found['k']} ± {found['error']:.1f}"

    def expected(method: str, dim: int) -> str:
        k = approximated(method, dim, n_vectors, max_k)
        return f"≥ {max_k}" if k == max_k else str(k)

    return [
        Table(
            f"Labels held: the largest k up to which at least {HELD_AT:.0f} % of the k labels are among the top k",
            ("", *(f"d = {dim}" for dim in dims)),
            [
                *((name, *(measured(method, dim) for dim in dims)) for method, name in METHODS.items()),
                ("HRR (w/Proj), normal approximation", *(expected("hrr-projected", dim) for dim in dims)),
                ("CHRR, normal approximation", *(expected("chrr", dim) for dim in dims)),
            ],
            note=f"Of N = {n_vectors:,} vectors; k up to {max_k}; mean of {settings['precise']} repetitions, with "
            "a standard error from a bootstrap over these.",
        )
    ]


def claims(result: Result) -> list[Claim]:
    """Judge the two claims of section 3.2, and compare at the same number of network outputs."""
    mean = {method: np.array(values["mean"]) for method, values in result["methods"].items()}
    gap = mean["chrr"] - mean["hrr-projected"]
    # With too few dimensions nothing is retrieved, and with enough of them everything is: compare in between.
    between = (mean["chrr"] > 20) & (mean["chrr"] < 99.5)
    share = 100 * (gap[between] > 0).mean()
    return [
        Claim(
            "CHRR has better retrieval accuracies than HRR (w/Proj)",
            "yes" if share > 95 else "partly" if share > 50 else "no",
            f"higher in {share:.1f} % of the cells where CHRR's accuracy is between 20 % and 99.5 %; "
            f"mean gap there {gap[between].mean():.1f} points",
        ),
        _judge_growth(np.array(result["settings"]["dims"]), gap),
        *_judge_at_equal_outputs(result),
    ]


def _judge_growth(dims: npt.NDArray[np.int64], gap: npt.NDArray[np.float64]) -> Claim:
    """Judge whether the gap grows with k, on average over the dimensions and at each of them."""
    ks = np.linspace(0, gap.shape[1], 6).round().astype(int)[1:]
    average = gap.mean(0)[ks - 1]
    # A single row is noisy: take the mean of the rows within 16 dimensions.
    peaks = {dim: int(gap[np.abs(dims - dim) <= 16].mean(0).argmax()) + 1 for dim in TABLE_DIMS if dim in dims}
    grows = bool((np.diff(average) > 0).all())
    everywhere = all(peak == gap.shape[1] for peak in peaks.values())
    return Claim(
        "The larger k, the bigger the difference",
        "no" if not grows else "yes" if everywhere else "partly",
        "averaged over all d, the gap is "
        + ", ".join(f"{points:.1f} points at k = {k}" for k, points in zip(ks, average, strict=True))
        + "; at one d it is largest at "
        + ", ".join(f"k = {peak} (d = {dim})" for dim, peak in peaks.items())
        + " and shrinks beyond, where both fail",
    )


def _judge_at_equal_outputs(result: Result) -> list[Claim]:
    """Compare CHRR with HRR of twice the dimension, since a network outputs 2d numbers for d angles."""
    pairs = [(d, 2 * d) for d in (128, 256) if {d, 2 * d} <= set(result["settings"]["dims"])]
    if not pairs:
        return []
    found = [(held(result, "chrr", d), held(result, "hrr-projected", double)) for d, double in pairs]
    return [
        Claim(
            "(not in the paper) CHRR also holds more than HRR (w/Proj) of dimension 2d, "
            "the number of outputs a network needs for d angles",
            "yes" if all(circular > real for circular, real in found) else "no",
            "; ".join(
                f"CHRR d = {d} holds {circular}, HRR (w/Proj) d = {double} holds {real}"
                for (d, double), (circular, real) in zip(pairs, found, strict=True)
            ),
        )
    ]


def draw(result: Result) -> Figure:
    """Draw a heat map for each method, and the difference between CHRR and HRR with projection."""
    from matplotlib.figure import Figure  # an extra
    from scipy.ndimage import uniform_filter  # slow to import

    dims, ks = np.array(result["settings"]["dims"]), np.arange(1, result["settings"]["max_k"] + 1)
    mean = {method: np.array(values["mean"]).T for method, values in result["methods"].items()}
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    # Each cell extends halfway to the next measured dimension, so that a coarse grid fills the panel too.
    edges = np.concatenate([[dims[0] - 0.5], (dims[1:] + dims[:-1]) / 2, [dims[-1] + 0.5]])
    grid = (edges, np.append(ks, ks[-1] + 1) - 0.5)

    titles = {**METHODS, "hrr": "plain HRR (not in the paper)"}
    for axis, method in zip(axes, METHODS, strict=False):
        heat = axis.pcolormesh(*grid, mean[method], cmap="inferno", vmin=0, vmax=100, rasterized=True)
        axis.set_title(titles[method])
        if len(dims) > 1:
            # A cell is the mean of few repetitions: the line is readable only if it is smoothed.
            smooth = uniform_filter(mean[method], size=(3, 1 + len(dims) // 64), mode="nearest")
            line = axis.contour(dims, ks, smooth, levels=[HELD_AT], colors="black", linewidths=1)
            axis.clabel(line, fmt=f"{HELD_AT:.0f} %%", fontsize=8)
    figure.colorbar(heat, ax=axes[2], label="% of the k labels in the top k")

    gap = mean["chrr"] - mean["hrr-projected"]
    difference = axes[3].pcolormesh(*grid, gap, cmap="RdBu_r", vmin=-40, vmax=40, rasterized=True)
    axes[3].set_title(f"{METHODS['chrr']} − {METHODS['hrr-projected']}")
    figure.colorbar(difference, ax=axes[3], label="percentage points")
    for axis in axes:
        axis.set_xlabel("dimension d")
    axes[0].set_ylabel("stored labels k")
    return figure


def _rounded(values: Tensor) -> list[list[float]]:
    # Write integers without a fraction: most cells are 0 or 100, so the file is half as large.
    return [
        [int(value) if value == int(value) else value for value in row]
        for row in np.round(values.double().numpy(), 1).tolist()
    ]
