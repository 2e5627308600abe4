"""The results in experiments/results belong to an experiment, and their pages match their JSON files."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import circlet_paper
from circlet_paper.cells import collect, path_of, read

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
SIMULATIONS = [n for n in circlet_paper.EXPERIMENTS if circlet_paper.is_simulation(circlet_paper.load(n))]
STUDIES = [n for n in circlet_paper.EXPERIMENTS if circlet_paper.is_study(circlet_paper.load(n))]
committed = pytest.mark.skipif(
    not RESULTS.exists(), reason="not a source checkout: experiments/results is missing"
)


def planned(name: str):
    """A study's module, its full settings, and its cells."""
    study = circlet_paper.load(name)
    assert circlet_paper.is_study(study)
    return study, study.Settings(), study.cells(study.Settings())


@pytest.mark.parametrize("name", circlet_paper.EXPERIMENTS)
def test_module_is_well_formed(name):
    experiment = circlet_paper.load(name)
    assert experiment.TITLE
    assert "What the paper leaves open" in experiment.__doc__
    assert dataclasses.is_dataclass(experiment.Settings())
    assert experiment.Settings.quick() != experiment.Settings()
    for function in ("tables", "claims", "draw"):
        assert getattr(experiment, function).__doc__
    assert circlet_paper.is_study(experiment) != circlet_paper.is_simulation(experiment)


@pytest.mark.parametrize("name", STUDIES)
def test_quick_cells_never_replace_full_ones(name):
    study, settings, cells = planned(name)
    quick = {cell.name for cell in study.cells(study.Settings.quick())}
    assert not quick & {cell.name for cell in cells}
    assert all(cell.startswith("quick-") for cell in quick)
    assert settings.seeds >= 3


@committed
def test_every_json_belongs_to_a_simulation():
    assert {path.stem for path in RESULTS.glob("*.json")} == set(SIMULATIONS)


@committed
@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulation_is_complete(name):
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["experiment"] == name
    assert result["provenance"]["command"].startswith(f"circlet reproduce {name}")
    assert result["provenance"]["versions"]["torch"]
    # A full run, not a quick one: the settings are the module's defaults.
    defaults = json.loads(json.dumps(vars(circlet_paper.load(name).Settings())))
    assert result["settings"] == defaults
    assert path.with_suffix(".png").exists()


@committed
@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulation_is_rendered_from_the_json_alone(name):
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    page = circlet_paper.markdown(circlet_paper.load(name), result)
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == page


@committed
def test_every_cell_belongs_to_a_study():
    known = {path_of(cell, RESULTS): cell for name in STUDIES for cell in planned(name)[2]}
    for path in (RESULTS / "cells").rglob("*.json"):
        assert path in known, f"{path} is not a cell of any experiment"
        stored = read(known[path], RESULTS)
        assert stored is not None, f"{path} was measured with settings other than its experiment's"
        assert stored["cell"] == known[path].name
        assert stored["provenance"]["command"].startswith("circlet reproduce ")
        assert stored["provenance"]["versions"]["torch"]


@committed
@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_with_available_data_is_measured(name):
    missing = {cell.name for cell in planned(name)[2] if not path_of(cell, RESULTS).exists()}
    absent = {cell for cell in missing if cell.startswith(("wiki10-31k/", "delicious-200k/"))}
    # EURLex-4K has no texts from which dense features could be made.
    absent |= {cell for cell in missing if re.match("eurlex-4k/.*-(dense|both)-", cell)}
    assert missing == absent


@committed
@pytest.mark.parametrize("name", STUDIES)
def test_study_is_rendered_from_its_cells_alone(name):
    study, settings, cells = planned(name)
    result = collect(name, settings, cells, RESULTS)
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == circlet_paper.markdown(study, result)
    assert (RESULTS / f"{name}.png").exists()
