"""The paper's experiments, one module each: `circlet reproduce NAME` runs one.

A module's docstring states the paper's setting, what the paper leaves open and what we chose. It has
`Settings` (a frozen dataclass; `Settings.quick()` is a version that takes seconds), and four functions that
meet in a JSON-ready dictionary, so that tables and pictures can be made again from a committed result:

    run(settings, track) -> result        tables(result) -> list[Table]
    claims(result) -> list[Claim]         draw(result) -> matplotlib Figure
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from circlet import files
from circlet.errors import ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Name of each experiment and what it shows.
EXPERIMENTS = {
    "capacity": "How many labels one vector holds: retrieval accuracy over dimension and number of labels.",
    "stability": "Mean and variance of the similarities to the stored labels.",
}

Result = dict[str, Any]
#: Wraps the steps of a run, as `rich.progress.track` does, to show how far it is.
Track = Callable[[Sequence[int]], Iterable[int]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether our numbers agree, and the numbers."""

    text: str
    holds: str
    evidence: str


class Experiment(Protocol):
    """What a module of this package provides."""

    TITLE: str
    Settings: Any

    def run(self, settings: Any, track: Track = ...) -> Result:
        """Measure."""

    def tables(self, result: Result) -> list[Table]:
        """Sum the result up for a person."""

    def claims(self, result: Result) -> list[Claim]:
        """Judge the paper's claims by the result."""

    def draw(self, result: Result) -> Figure:
        """Draw the result."""


def load(name: str) -> Experiment:
    """Import an experiment by its name."""
    if name not in EXPERIMENTS:
        raise ParameterError(f"no experiment is called {name!r}; there are {', '.join(EXPERIMENTS)}")
    module: Any = import_module(f"{__name__}.{name}")
    experiment: Experiment = module
    return experiment


def save(name: str, result: Result, folder: Path) -> None:
    """Write a result to `folder` as JSON, and the page and the picture made from it."""
    experiment, stem = load(name), folder / name
    files.write_json(stem.with_suffix(".json"), result)
    files.write_text(stem.with_suffix(".md"), markdown(experiment, result))
    with files.replacing(stem.with_suffix(".png")) as temporary:
        # Without the version of matplotlib in its metadata, the same numbers give the same file.
        experiment.draw(result).savefig(temporary, dpi=110, format="png", metadata={"Software": None})


def markdown(experiment: Experiment, result: Result) -> str:
    """Render a result as a Markdown page: tables, then the paper's claims, each judged."""
    verdicts = Table(
        "The paper's claims in these numbers",
        ("Claim", "Holds?", "What we measured"),
        [(claim.text, claim.holds, claim.evidence) for claim in experiment.claims(result)],
    )
    origin, seed = result["provenance"], result["settings"]["seed"]
    machine, versions = origin["machine"], origin["versions"]
    footer = (
        f"`{origin['command']}`, seed {seed}, {origin['seconds']} s with {machine['threads']} threads on "
        f"{machine['processor']}, torch {versions['torch']}."
    )
    tables = [*experiment.tables(result), verdicts]
    return "\n".join([f"# {experiment.TITLE}", "", *(table.markdown() for table in tables), footer, ""])
