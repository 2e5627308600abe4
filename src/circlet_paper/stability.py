"""How reliable is the similarity to a stored label? The paper's section 3.3: its mean and its variance.

The setting is the paper's: d = 400; k = 1…50 random vectors c and one random **p**; R = ⊕ p ⊗ c, decoded as
ĉ = R ⊗ p†; the similarities s_j = sim(ĉ, c_j) to the k stored vectors; their variance and mean, for HRR, HRR
with projection and CHRR.

What the paper leaves open, and what we chose:

- Repetitions: 20,000. Variance and mean are taken over all k × 20,000 similarities.
- The similarity of real vectors. The paper's Table 1 has the inner product, but its mean is 1 at every k (the sum
  of the stored vectors contains each of them once), while the means in the paper's figure fall to zero with k. The
  cosine, which the paper's loss uses too, behaves like that. Our figure and table show the cosine; the JSON also
  has the inner product, as ``dot_mean`` and ``dot_variance``.
- As in the capacity experiment, the vectors for k + 1 are those for k and one more, within a repetition.

Theory for CHRR. Component j of ĉ is the direction of S = Σ e^{iθ}, a sum of k unit phasors, so by symmetry the
mean cosine to a stored angle is E|S| / k. With the Bessel functions J (Kluyver 1905),

    E|S| = ∫ (1 − J₀(t)^k) / t² dt,        mean = E|S| / k  →  √π / (2 √k)  for large k.

For the variance, let r be the length of the sum of the other k − 1 phasors. Averaged over the direction of that
sum, the cosine of twice the angle is 1 − r² if r < 1, else 0. Its expectation is 2 ∫ J₂(t) J₀(t)^{k−1} / t dt, and
so

    d · variance = 1/2 + ∫ J₂(t) J₀(t)^{k−1} / t dt − mean²  →  1/2  for large k.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.algebra import circular, holographic
from circlet.report import Table
from circlet_paper import Claim, Result, Track
from circlet_paper.drawing import finished, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Mean and variance of the similarities to the stored labels"
METHODS = {"hrr": "HRR", "hrr-projected": "HRR (w/Proj)", "chrr": "CHRR"}
#: Number of repetitions computed at once: keeps the largest tensor, (chunk, max_k, dim), in the cache.
CHUNK = 20


@dataclass(frozen=True)
class Settings:
    """Size of the experiment; the defaults are the paper's."""

    dim: int = 400
    max_k: int = 50
    repetitions: int = 20_000
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Settings:
        """Fewer repetitions."""
        return cls(repetitions=400, seed=seed)


def run(settings: Settings, track: Track = iter) -> Result:
    """Measure the mean and variance of the similarities for every method and k."""
    generator = torch.Generator().manual_seed(settings.seed)
    moments: dict[tuple[str, str], list[Tensor]] = {}
    for start in track(range(0, settings.repetitions, CHUNK)):
        size = min(CHUNK, settings.repetitions - start)
        for key, similarities in _similarities(size, settings, generator).items():
            moments.setdefault(key, []).append(_moments(similarities))
    methods: dict[str, dict[str, list[float]]] = {method: {} for method in METHODS}
    for (method, prefix), chunks in moments.items():
        count, total, squares = torch.stack(chunks).sum(0)
        mean = total / count
        methods[method][f"{prefix}mean"] = _rounded(mean)
        methods[method][f"{prefix}variance"] = _rounded((squares / count - mean**2).clamp(min=0))
    theory_mean, theory_variance = chrr_theory(settings.max_k, settings.dim)
    return {
        "settings": asdict(settings),
        "unit": "entry k − 1 is for k stored vectors",
        "methods": methods,
        "theory": {"mean": _rounded(theory_mean), "variance": _rounded(theory_variance)},
    }


def _similarities(size: int, settings: Settings, generator: torch.Generator) -> dict[tuple[str, str], Tensor]:
    """Similarity of the memory of each k to each vector, of shape (size, max_k, max_k).

    A key is a method and a prefix: empty for the similarity in the figure, "dot_" for the inner product.
    """
    shape, dim = (size, settings.max_k + 1), settings.dim
    # float32 is not precise enough for variances of 1e-4 with means of 1.
    angles = circular.random(shape, dim, generator=generator, dtype=torch.float64)
    concept, labels = angles[:, :1], angles[:, 1:]
    memory = circular.unpack(circular.pack(circular.bind(concept, labels)).cumsum(-2))
    decoded = circular.unbind(memory, concept)
    found = {("chrr", ""): circular.pack(decoded) @ circular.pack(labels).mT / dim}

    plain = holographic.random(shape, dim, generator=generator, dtype=torch.float64)
    for method, vectors in (("hrr", plain), ("hrr-projected", holographic.project(plain))):
        concept, labels = vectors[:, :1], vectors[:, 1:]
        decoded = holographic.unbind(holographic.bind(concept, labels).cumsum(-2), concept)
        dot = decoded @ labels.mT
        found[method, "dot_"] = dot
        found[method, ""] = dot / decoded.norm(dim=-1, keepdim=True) / labels.norm(dim=-1)[:, None, :]
    return found


def _moments(similarities: Tensor) -> Tensor:
    """Count, sum and sum of squares over the stored vectors, for each k: (3, max_k)."""
    # Row k − 1 belongs to the memory of k vectors, and its first k columns to the vectors stored there.
    stored = torch.ones_like(similarities).tril()
    return torch.stack([(stored * similarities**power).sum((0, 2)) for power in (0, 1, 2)])


def chrr_theory(max_k: int, dim: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Exact mean and variance of CHRR's similarities for k = 1…max_k (see the module's docstring)."""
    from scipy.integrate import simpson  # slow to import
    from scipy.special import j0, jv

    end, step = 1000.0, 0.02
    t = np.arange(step, end, step)
    bessel0, bessel2 = j0(t), jv(2, t)
    # One phasor is its own sum. The sum of two bisects them, so its angle to each is uniform in (−π/2, π/2).
    mean = np.array([1.0, 2 / np.pi, *np.zeros(max_k)])[:max_k]
    double_angle = np.array([0.5, 0.0, *np.zeros(max_k)])[:max_k]
    power = bessel0**2
    for k in range(3, max_k + 1):
        # The grid leaves out t = 0, where the integrands tend to 0 and to k/4, and t > end, where 1/t² adds 1/end.
        double_angle[k - 1] = simpson(np.concatenate([[0.0], bessel2 * power / t]), dx=step)
        power = power * bessel0
        length = simpson(np.concatenate([[k / 4], (1 - power) / t**2]), dx=step) + 1 / end
        mean[k - 1] = length / k
    return mean, (0.5 + double_angle - mean**2) / dim


def tables(result: Result) -> list[Table]:
    """Tabulate the mean and the variance at a few k."""
    ks = [k for k in (1, 5, 10, 25, 50) if k <= result["settings"]["max_k"]]
    rows = [(name, result["methods"][method]) for method, name in METHODS.items()]
    rows.append(("CHRR, theory", result["theory"]))
    note = f"d = {result['settings']['dim']}, {result['settings']['repetitions']:,} repetitions."
    columns = ("", *(f"k = {k}" for k in ks))
    return [
        Table(
            "Variance of the similarities, × 10⁻⁴",
            columns,
            [(name, *(f"{1e4 * row['variance'][k - 1]:.2f}" for k in ks)) for name, row in rows],
            note,
        ),
        Table(
            "Mean of the similarities",
            columns,
            [(name, *(f"{row['mean'][k - 1]:.3f}" for k in ks)) for name, row in rows],
            note,
        ),
    ]


def claims(result: Result) -> list[Claim]:
    """Judge the sentences of section 3.3."""
    methods = result["methods"]
    # At k = 1 nothing interferes: every variance is zero, except for rounding.
    variance = {method: np.array(values["variance"])[1:] for method, values in methods.items()}
    mean = {method: np.array(values["mean"]) for method, values in methods.items()}
    dot = {method: np.array(methods[method]["dot_variance"]) for method in ("hrr", "hrr-projected")}
    lowest = (variance["chrr"] < variance["hrr"]) & (variance["chrr"] < variance["hrr-projected"])
    suppressed = variance["hrr-projected"] < variance["hrr"]
    ratio = mean["chrr"][-1] / mean["hrr-projected"][-1]
    last = len(mean["chrr"])
    exceptions = ", ".join(f"k = {k}" for k in np.flatnonzero(~lowest) + 2)
    return [
        Claim(
            "CHRR's variance is the lowest",
            _yes_if_all(lowest),
            f"at {lowest.sum()} of the {len(lowest)} k from 2 to {last}"
            + (f" (not at {exceptions})" if exceptions else "")
            + f"; at k = {last} it is {variance['chrr'][-1] / variance['hrr-projected'][-1]:.2f} "
            "of HRR (w/Proj)'s",
        ),
        Claim(
            "Projection lowers the variance of HRR",
            _yes_if_all(suppressed),
            f"at {suppressed.sum()} of the {len(suppressed)} k with the cosine; with the inner product at "
            f"{(dot['hrr-projected'] < dot['hrr']).sum()} of {last}",
        ),
        Claim(
            "The means are roughly alike, and fall toward zero with k",
            "yes" if 0.8 < ratio < 1.25 and mean["chrr"][-1] < 0.2 else "no",
            f"at k = {last}: HRR {mean['hrr'][-1]:.3f}, HRR (w/Proj) {mean['hrr-projected'][-1]:.3f}, "
            f"CHRR {mean['chrr'][-1]:.3f}",
        ),
    ]


def _yes_if_all(holds: npt.NDArray[np.bool_]) -> str:
    return "yes" if holds.all() else "partly" if holds.mean() > 0.5 else "no"


def draw(result: Result) -> Figure:
    """Draw the paper's two panels, with the theoretical curve of CHRR."""
    k = np.arange(1, result["settings"]["max_k"] + 1)
    colors = {"hrr": "#999999", "hrr-projected": "#d1701f", "chrr": "#1f5fbf"}
    figure, axes = panels(1, 2, (10, 3.8))
    for axis, quantity in zip(axes[0], ("variance", "mean"), strict=True):
        for method, name in METHODS.items():
            axis.plot(k, result["methods"][method][quantity], color=colors[method], label=name, lw=2)
        axis.plot(k, result["theory"][quantity], color="black", ls=":", lw=1.5, label="CHRR, theory")
        axis.set_xlabel("stored labels k")
        axis.set_ylabel(f"{quantity} of the similarities")
        axis.set_ylim(bottom=0)
    figure.axes[0].ticklabel_format(axis="y", scilimits=(0, 0))
    figure.axes[0].legend(frameon=False)
    return finished(figure)


def _rounded(values: Tensor | npt.NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
