from __future__ import annotations

import pytest

from circlet.errors import ParameterError
from circlet.settings import PRESETS, RunSettings
from circlet.settings.presets import resolve


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_run(name):
    run = RunSettings.from_preset(name, {})
    assert {key: run.flat()[key] for key in PRESETS[name]} == PRESETS[name]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (None, {"head": "chrr", "hidden": (768, 768), "loss": "cosine", "codebook": "independent"}),
        ("chrr-half", {"head": "chrr-half", "hidden": (768, 768), "loss": "cosine", "codebook": "independent"}),
        ("hrr", {"head": "hrr", "hidden": (768, 768), "loss": "cosine"}),
        ("fc", {"head": "fc", "hidden": (2048, 2048), "loss": "bce"}),
    ],
)
def test_the_papers_settings_follow_its_heads(head, expected):
    found = resolve("paper", {"head": head})
    assert {name: found.get(name) for name in expected} == expected
    assert ("codebook" in found) == ("codebook" in expected)
    RunSettings.of(found)  # they fit together


def test_what_is_given_wins():
    assert resolve("paper", {"epochs": 2, "dim": 8, "dropout": None}) == {
        **resolve("paper", {}),
        "epochs": 2,
        "dim": 8,
    }
    assert resolve("paper", {"codebook": "spectral"})["codebook"] == "spectral"


def test_presets_are_not_changed():
    before = {name: dict(settings) for name, settings in PRESETS.items()}
    resolve("paper", {"head": "fc"})["lr"] = 2
    assert before == PRESETS


def test_an_unknown_name():
    with pytest.raises(
        ParameterError, match="`preset` must be one of fast, default, accurate, paper, authors, got 'Paper'"
    ):
        resolve("Paper", {})
