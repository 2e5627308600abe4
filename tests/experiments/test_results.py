"""The results committed in experiments/results belong to an experiment and are what their JSON says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circlet import experiments

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
pytestmark = pytest.mark.skipif(
    not RESULTS.exists(), reason="not a source checkout: experiments/results is missing"
)


def committed() -> list[Path]:
    return sorted(RESULTS.glob("*.json"))


def test_every_experiment_has_a_result():
    assert {path.stem for path in committed()} == set(experiments.EXPERIMENTS)


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_result_is_complete(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    experiment = experiments.load(path.stem)
    assert result["experiment"] == path.stem
    assert result["provenance"]["command"].startswith(f"circlet reproduce {path.stem}")
    assert result["provenance"]["versions"]["torch"]
    # A full run, not a quick one: the settings are the module's defaults.
    defaults = json.loads(json.dumps(vars(experiment.Settings())))
    assert result["settings"] == defaults
    assert path.with_suffix(".png").exists()


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_page_is_rendered_from_the_json_alone(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    page = experiments.markdown(experiments.load(path.stem), result)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page
