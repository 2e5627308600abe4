"""Runs of a model that differ only in their seed, and how their numbers and verdicts are written."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
