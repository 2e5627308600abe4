"""Runs of a model that differ only in their seed, how two models compare, and what others have published.

Models are compared in pairs, document by document, instead of by counts of metrics that go together. A cell keeps
which of the first 20 labels of each test document were right, one bit each. The difference of two models in P@k is
then a mean over documents and seeds. A bootstrap says how sure it is: documents and the seeds of each model are
drawn with replacement, and the difference is computed again. Both models see the same documents, so what makes a
document hard for both cancels. Of s seeds, s − 1 are drawn: s draws would understate the variance of few seeds
(Rao and Wu 1988). The interval of single runs covers documents alone.
"""

from __future__ import annotations

import base64
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet_paper.cells import Cell, Result


@dataclass(frozen=True)
class Runs:
    """Runs of a model that differ only in their seed (or their split)."""

    cells: Sequence[Result]

    def values(self, metric: str) -> list[float]:
        """The metric in each run."""
        return [float(cell["metrics"][metric]) for cell in self.cells]

    def mean(self, metric: str) -> float:
        """Mean of the metric."""
        return statistics.fmean(self.values(metric))

    def sd(self, metric: str) -> float | None:
        """Sample standard deviation of the metric; None for a single run."""
        return statistics.stdev(self.values(metric)) if len(self.cells) > 1 else None

    def show(self, metric: str) -> str:
        """Mean and deviation of the metric, such as 75.2 ± 0.3."""
        return shown(self.mean(metric), self.sd(metric))

    def ahead(self, other: Runs, metrics: Iterable[str]) -> dict[str, float]:
        """By how many points the mean of each metric is ahead of another model's."""
        return {metric: self.mean(metric) - other.mean(metric) for metric in metrics}

    @property
    def parameters(self) -> int:
        """Number of learned parameters of one model."""
        return int(self.cells[0]["parameters"]["total"])


def runs(result: Result, cells: Sequence[Cell]) -> Runs | None:
    """The runs of these cells that a result has; None if it has none."""
    wanted = {cell.name for cell in cells}
    found = [cell for cell in result["cells"] if cell["cell"] in wanted]
    return Runs(found) if found else None


def verdict(holding: int, of: int) -> str:
    """Whether a claim holds: yes if in all comparisons, partly if in at least half of them, else no."""
    if not of:
        return "not measured"
    return "yes" if holding == of else "partly" if 2 * holding >= of else "no"


def shown(mean: float, sd: float | None) -> str:
    """Format a mean and its deviation, such as 75.2 ± 0.3."""
    return f"{mean:.1f}" if sd is None else f"{mean:.1f} ± {sd:.1f}"


def millions(count: int) -> str:
    """Format a number of parameters, such as 5.1 M."""
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count / 1e6:.3f} M"


#: The number of labels of each document whose outcome is kept.
DEPTH = 20
#: Samples of the bootstrap, and the share of them that an interval holds.
SAMPLES, LEVEL = 2000, 0.95
#: Samples are drawn for this many documents at a time, to bound memory.
_CHUNK = 4_000_000

Hits = npt.NDArray[np.bool_]


def right(truth: sp.csr_matrix, ranked: npt.NDArray[np.int64]) -> Hits:
    """Which of the first labels of each document are right, `(n, DEPTH)`; `ranked` may have −1 for no label."""
    top = ranked[:, :DEPTH]
    hits = np.zeros((len(ranked), DEPTH), dtype=np.bool_)
    rows = np.broadcast_to(np.arange(len(top))[:, None], top.shape)
    found = np.asarray(truth[rows.ravel(), np.maximum(top, 0).ravel()]).reshape(top.shape)
    hits[:, : top.shape[1]] = (found != 0) & (top >= 0)
    return hits


def pack_hits(hits: Hits) -> str:
    """Outcomes as text for JSON: bits, deflated, in base 64."""
    return base64.b64encode(zlib.compress(np.packbits(hits).tobytes(), 9)).decode("ascii")


def unpack_hits(packed: str) -> Hits:
    """What `pack_hits` packed."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.uint8)
    flat = np.unpackbits(bits)
    return flat[: len(flat) // DEPTH * DEPTH].reshape(-1, DEPTH).astype(np.bool_)


@dataclass(frozen=True)
class Difference:
    """By how many points of P@k one model is ahead of another, with an interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Which one is ahead, if the interval says so."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "not told apart"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def counted(gaps: Iterable[Mapping[int, Difference]]) -> tuple[int, int, int]:
    """In how many comparisons one model is ahead of another and in how many behind, and how many there are."""
    found = [gap.verdict for by_depth in gaps for gap in by_depth.values()]
    return found.count("ahead"), found.count("behind"), len(found)


def compare(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], depths: Sequence[int], seed: int = 0
) -> dict[int, Difference]:
    """By how much the runs of one model are ahead of those of another in P@k; empty without outcomes of both."""
    first, second = ([unpack_hits(cell["hits"]) for cell in cells if "hits" in cell] for cells in (ours, theirs))
    if not first or not second or len({len(hits) for hits in (*first, *second)}) != 1:
        return {}
    one, other = (np.stack([_precisions(hits, depths) for hits in runs]) for runs in (first, second))
    means = one.mean(axis=(0, 2), dtype=np.float64) - other.mean(axis=(0, 2), dtype=np.float64)
    low, high = np.percentile(_bootstrap(one, other, seed), [50 * (1 - LEVEL), 50 * (1 + LEVEL)], axis=0)
    return {k: Difference(float(means[i]), float(low[i]), float(high[i])) for i, k in enumerate(depths)}


def _precisions(hits: Hits, depths: Sequence[int]) -> npt.NDArray[np.float32]:
    """P@k of each document in percent, `(depths, documents)`."""
    return np.stack([hits[:, :k].mean(axis=1, dtype=np.float32) * 100 for k in depths])


def _bootstrap(
    ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], seed: int
) -> npt.NDArray[np.float64]:
    """Differences for documents and seeds that were drawn, `(SAMPLES, depths)`; see `compare`."""
    random, n = np.random.default_rng(seed), ours.shape[2]
    size, made = max(1, _CHUNK // n), []
    for start in range(0, SAMPLES, size):
        samples = min(size, SAMPLES - start)
        times = np.empty((samples, n), dtype=np.float32)
        for row, drawn in enumerate(random.integers(0, n, size=(samples, n))):
            times[row] = np.bincount(drawn, minlength=n)
        made.append(_drawn_mean(ours, times, random) - _drawn_mean(theirs, times, random))
    return np.concatenate(made)


def _drawn_mean(
    values: npt.NDArray[np.float32], times: npt.NDArray[np.float32], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Means over seeds that are drawn here, of values `(seeds, depths, documents)` of drawn documents."""
    seeds, depths, n = values.shape
    by_seed = (times @ values.reshape(-1, n).T).reshape(-1, seeds, depths) / n
    drawn = max(1, seeds - 1)
    shares = random.multinomial(drawn, np.full(seeds, 1 / seeds), size=len(times)) / drawn
    means: npt.NDArray[np.float64] = np.einsum("bs,bsk->bk", shares, by_seed)
    return means


# What the paper and the Extreme Classification Repository published, in percent.
PUBLISHED_METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
PUBLISHED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "delicious": {
        "FastXML": (69.6, 59.3, 32.3, 35.4),
        "PfastreXML": (67.1, 58.6, 34.6, 35.9),
        "FC": (70.8, 59.2, 34.1, 36.1),
        "CHRR": (71.2, 59.3, 34.3, 35.9),
    },
    "eurlex-4k": {
        "FastXML": (76.4, 52.0, 33.2, 42.0),
        "PfastreXML": (71.4, 50.4, 26.6, 39.0),
        "XML-CNN": (75.3, 49.2, 32.4, 39.5),
        "FC": (77.4, 47.9, 33.6, 37.3),
        "FC + XLNet": (73.3, 48.8, 33.0, 40.0),
        "CHRR": (75.2, 47.8, 28.7, 34.9),
        "CHRR + XLNet": (77.0, 50.0, 29.8, 37.6),
    },
    "wiki10-31k": {
        "FastXML": (83.0, 57.8, 9.8, 10.5),
        "PfastreXML": (83.6, 59.1, 19.0, 18.4),
        "XML-CNN": (81.4, 56.1, 9.4, 10.2),
        "FC": (80.5, 46.4, 10.5, 8.9),
        "FC + XLNet": (84.0, 58.9, 10.9, 11.5),
        "CHRR": (82.2, 58.8, 10.2, 10.9),
        "CHRR + XLNet": (86.8, 65.1, 11.9, 13.0),
    },
    "delicious-200k": {
        "FastXML": (43.1, 36.2, 6.5, 8.3),
        "PfastreXML": (41.7, 35.6, 3.2, 4.4),
        "FC": (35.1, 32.1, 5.3, 7.4),
        "CHRR": (43.2, 37.1, 6.6, 8.5),
    },
}
#: The Repository's numbers of 2020 for two methods that the paper prints under the wrong names.
CORRECTED: dict[str, dict[str, dict[str, float]]] = {
    "eurlex-4k": {
        "FastXML": {"P@1": 71.4, "P@3": 59.9, "P@5": 50.4},
        "PfastreXML": {"P@1": 75.5, "P@3": 62.7, "P@5": 52.5, "PSP@1": 43.9, "PSP@3": 45.7, "PSP@5": 47.0},
    }
}
#: What the Repository's table of 2020 has for the trees of `circlet_paper.baselines`.
REPOSITORY: dict[str, dict[str, dict[str, float]]] = {
    **CORRECTED,
    "delicious": {
        "FastXML": {"P@1": 69.6, "P@3": 64.1, "P@5": 59.3, "PSP@1": 32.3, "PSP@5": 35.4},
        "PfastreXML": {"P@1": 67.1, "P@3": 62.3, "P@5": 58.6, "PSP@1": 34.6, "PSP@5": 35.9},
    },
}
#: The paper's compression in percent: of the model's size, and of the output's dimensions.
COMPRESSION = {"delicious": (59, 19), "eurlex-4k": (61, 99), "wiki10-31k": (62, 99), "delicious-200k": (61, 80)}


def published(dataset: str, name: str) -> dict[str, float]:
    """A method's published numbers by metric; empty if the paper has none."""
    values = PUBLISHED.get(dataset, {}).get(name)
    return dict(zip(PUBLISHED_METRICS, values, strict=True)) if values else {}
