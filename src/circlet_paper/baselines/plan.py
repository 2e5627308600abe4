"""What is measured, and the runs of a result with what was published about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from circlet_paper import training_cells
from circlet_paper.authors import HEADS
from circlet_paper.baselines.tree_cells import MODELS, TreeCell
from circlet_paper.baselines.trees import TreeSettings
from circlet_paper.cells import Result
from circlet_paper.paired import Difference, compare
from circlet_paper.published import CORRECTED, REPOSITORY, published
from circlet_paper.recipes import CIRCLET
from circlet_paper.runs import Runs, runs
from circlet_paper.training_cells import Recipe, TrainingCell, title_of

FAST, PFASTRE = MODELS.values()
OURS = CIRCLET.title
#: Datasets with a split each, None for a dataset's own, and the networks that were measured there.
PLACES: dict[tuple[str, int | None], tuple[str, ...]] = {
    ("delicious", None): (OURS,),
    ("delicious", 1): tuple(HEADS),
    ("eurlex-4k", None): (*HEADS, OURS),
}
#: The largest numbers of seeds.
SEEDS = {"trees": 1, OURS: 3}
#: Trees of a quick run.
FEW = 4
#: Points within which a measured number counts as the published one.
NEAR = 1.5
COMPARED = (1, 3, 5)
Place = tuple[str, "int | None"]


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; five seeds, as in `circlet_paper.authors`, for its networks."""

    seeds: int = 5

    @classmethod
    def quick(cls) -> Settings:
        """One seed, few rows and few trees."""
        return cls(seeds=1, rows=1000, epochs=2, shrink=8)


def _trees(place: Place, model: str, settings: training_cells.Settings) -> list[TreeCell]:
    dataset, split = place
    grown = TreeSettings() if settings.rows is None else TreeSettings(trees=FEW)
    return [
        TreeCell(dataset, model, grown, seed, settings.rows, split)
        for seed in range(min(settings.seeds, SEEDS["trees"]))
    ]


def _networks(place: Place, title: str, settings: training_cells.Settings) -> list[TrainingCell]:
    dataset, split = place
    if title == OURS:
        return CIRCLET.cells(dataset, replace(settings, seeds=min(settings.seeds, SEEDS[OURS])), split)
    return Recipe(title, "authors", HEADS[title]).cells(dataset, settings, split)


def _planned(
    settings: training_cells.Settings,
) -> Iterator[tuple[Place, str, Sequence[TreeCell | TrainingCell]]]:
    """Everything that is measured, model by model."""
    for place, networks in PLACES.items():
        for model, title in MODELS.items():
            yield place, title, _trees(place, model, settings)
        for title in networks:
            yield place, title, _networks(place, title, settings)


def cells(settings: training_cells.Settings) -> list[TreeCell | TrainingCell]:
    """Both forests everywhere, and the networks that they are compared with."""
    return [cell for *_, these in _planned(settings) for cell in these]


def name_of(place: Place) -> str:
    """A place as printed in tables."""
    dataset, split = place
    other = ", split 1" if split else ", Mulan's split" if (dataset, 1) in PLACES else ""
    return title_of(dataset) + other


class Measured:
    """The runs of a result by place, then by title."""

    def __init__(self, result: Result) -> None:
        self.settings = Settings(**result["settings"])
        self.at: dict[Place, dict[str, Runs]] = {place: {} for place in PLACES}
        for place, title, these in _planned(self.settings):
            if found := runs(result, these):
                self.at[place][title] = found

    def gaps(self, one: str, other: str) -> dict[Place, dict[int, Difference]]:
        """By how much one is ahead of another in P@k, where both kept outcomes for each document."""
        return {
            place: gaps
            for place, these in self.at.items()
            if one in these and other in these
            if (gaps := compare(these[one].cells, these[other].cells, COMPARED))
        }


def beside_published(measured: Measured) -> Iterator[tuple[Place, str, Runs, dict[str, dict[str, float]]]]:
    """Every forest, with the published rows for it by source."""
    for (dataset, split), found in measured.at.items():
        for title in MODELS.values():
            if these := found.get(title):
                sources = {"the Repository": REPOSITORY[dataset][title]}
                if dataset in CORRECTED:
                    sources["the paper"] = published(dataset, title)
                yield (dataset, split), title, these, sources


def traced_by(these: Runs, known: dict[str, float]) -> str:
    """Whether a published row is traced: yes, or the numbers that are off."""
    off = [f"{m} {these.mean(m) - known[m]:+.1f}" for m in known if not is_near(these, known, m)]
    return "yes" if not off else f"{len(known) - len(off)} of {len(known)} numbers; {', '.join(off)}"


def is_near(these: Runs, known: dict[str, float], metric: str) -> bool:
    """Whether ours is near a published number."""
    return abs(these.mean(metric) - known[metric]) <= NEAR


def size_of(these: Runs) -> int:
    """Size of a model in bytes: that of a forest, or 4 for each parameter of a network."""
    cell = these.cells[0]
    return int(cell["bytes"]) if "bytes" in cell else 4 * these.parameters
