"""The paper's experiments, one module each: `circlet reproduce NAME` runs one.

A module's docstring states the paper's setting, what the paper leaves open and what we chose. The module has
`TITLE`, `Settings` (a frozen dataclass; `Settings.quick()` is a smaller version), and functions that take a
JSON-ready result, so that tables and pictures can be made again from a committed one:

    tables(result) -> list[Table]    claims(result) -> list[Claim]    draw(result) -> matplotlib Figure

There are two kinds. A simulation has `run(settings, track) -> result`, stored as one JSON file. A study uses real
data and has `cells(settings)`: its cells are measured one by one and stored in one JSON file each, and its result
is the stored cells (see `circlet_paper.cells` and, for cells that train,
`circlet_paper.training_cells`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from circlet import files
from circlet.errors import ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from circlet_paper.cells import Cell

#: The experiments by name, and what each shows: the help text of its command.
EXPERIMENTS = {
    "capacity": "How many labels one vector holds: the paper's heat maps of retrieval accuracy.",
    "stability": "Mean and variance of the similarities to the stored labels, compared with theory.",
    "theory": "Bounds on similarities, and formulas for retrieval and capacity, checked by simulation.",
    "authors": "The protocol of the authors' scripts, row by row beside the published table.",
    "table": "The paper's main table: FC, HRR, CHRR and our recipes, with published numbers.",
    "baselines": "The paper's tree methods, FastXML and PfastreXML, beside CHRR, HRR and FC.",
    "convergence": "CHRR against HRR when both have been trained to the end, as a function of steps.",
    "dimension": "The paper's figure of P@k and PSP@k over the codes' dimension, for HRR and CHRR.",
    "ablation": "How a network should output angles: CHRR, CHRR-Half, CHRR-sin and CHRR-tanh.",
    "codebooks": "Which codes labels should have: spectral, independent, four-phase or two-phase.",
    "outputs": "How labels should share few outputs: codes of small dimension, hashing, learned vectors.",
    "manylabels": "HRR and CHRR at large k, on synthetic sets in the shapes of the paper's largest.",
    "encoders": "XML-CNN, LSTM and transformer with an output per label, and with circular codes.",
    "features": "Bags of words, dense pre-trained features, and both together.",
}

#: The encoders of texts by name, and their places: what `pyproject.toml` offers as entry points.
ENCODERS = {
    "cnn": "circlet_paper.readers:Convolutional",
    "lstm": "circlet_paper.readers:Recurrent",
    "transformer": "circlet_paper.readers:Transformer",
}

Result = dict[str, Any]
#: Wraps the steps of a run to show its progress, as `rich.progress.track` does.
Track = Callable[[Sequence[int]], Iterable[int]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether our numbers agree, and the numbers."""

    text: str
    holds: str
    evidence: str


class Experiment(Protocol):
    """What the module of every experiment provides."""

    TITLE: str
    Settings: Any

    def tables(self, result: Result) -> list[Table]:
        """Summarize the result."""

    def claims(self, result: Result) -> list[Claim]:
        """Judge the claims by the result."""

    def draw(self, result: Result) -> Figure:
        """Draw the result."""


class Simulation(Experiment, Protocol):
    """An experiment that needs no data."""

    def run(self, settings: Any, track: Track = ...) -> Result:
        """Measure."""


class Study(Experiment, Protocol):
    """An experiment on real data."""

    def cells(self, settings: Any) -> Sequence[Cell]:
        """The cells to measure, those of one dataset next to each other."""


def is_study(experiment: Experiment) -> TypeGuard[Study]:
    """Whether an experiment is measured cell by cell."""
    return hasattr(experiment, "cells")


def is_simulation(experiment: Experiment) -> TypeGuard[Simulation]:
    """Whether an experiment is measured as a whole."""
    return hasattr(experiment, "run")


def load(name: str) -> Experiment:
    """Import an experiment by name."""
    if name not in EXPERIMENTS:
        raise ParameterError(f"no experiment is named {name!r}; the names are {', '.join(EXPERIMENTS)}")
    module: Any = import_module(f"{__name__}.{name}")
    experiment: Experiment = module
    return experiment


def save(name: str, result: Result, folder: Path) -> None:
    """Write a simulation's result to `folder` as JSON, with the page and the picture made from it."""
    files.write_json(files.followed(folder / f"{name}.json"), result)
    render(name, result, folder / name)


def render(name: str, result: Result, stem: Path) -> None:
    """Write the page and the picture of a result to `stem` with the suffixes .md and .png."""
    experiment = load(name)
    files.write_text(files.followed(stem.with_suffix(".md")), markdown(experiment, result))
    with files.output(stem.with_suffix(".png")) as file:
        # Without matplotlib's version in the metadata, the same numbers give the same file.
        experiment.draw(result).savefig(file, dpi=110, format="png", metadata={"Software": None})


def markdown(experiment: Experiment, result: Result) -> str:
    """Render a result as a Markdown page: tables, then claims and whether they hold."""
    verdicts = Table(
        "Claims, judged by these numbers",
        ("Claim", "Holds?", "What we measured"),
        [(claim.text, claim.holds, claim.evidence) for claim in experiment.claims(result)],
    )
    tables = [*experiment.tables(result), *([verdicts] if verdicts.rows else [])]
    footer = _study_footer(result) if is_study(experiment) else _footer(result)
    return "\n".join([f"# {experiment.TITLE}", "", *(table.markdown() for table in tables), footer, ""])


def _study_footer(result: Result) -> str:
    from circlet_paper.cells import footer  # slow to import

    return footer(result)


def _footer(result: Result) -> str:
    origin, seed = result["provenance"], result["settings"]["seed"]
    machine, versions = origin["machine"], origin["versions"]
    return (
        f"`{origin['command']}`, seed {seed}, {origin['seconds']} s with {machine['threads']} threads on "
        f"{machine['processor']}, torch {versions['torch']}."
    )
