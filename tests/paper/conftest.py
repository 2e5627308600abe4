"""Results made of made-up numbers, for the tests of tables, claims and pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import circlet_paper
from circlet_paper.runs import pack_hits
from circlet_paper.training_cells import DEPTHS, Settings, TrainingCell

METRICS = [f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS]


def _hits(precision: Callable[[int], float], n: int = 400) -> npt.NDArray[np.bool_]:
    """Outcomes of n documents with these P@k in percent: at every rank, the first documents are right."""
    hits = np.zeros((n, max(DEPTHS)), dtype=np.bool_)
    shown, before = 0.0, 0
    for k in DEPTHS:
        share = (k * precision(k) - shown) / (100 * (k - before))
        hits[: round(n * min(max(share, 0), 1)), before:k] = True
        shown, before = k * precision(k), k
    return hits


def _made_up(study: Any, score: Callable[[TrainingCell, str], float], *, only: Any = None) -> dict[str, Any]:
    """A result in which each cell has the numbers of `score`, a little higher for each seed."""
    settings = Settings()
    stored = [
        {
            "cell": cell.name,
            "about": cell.about(),
            "metrics": {metric: score(cell, metric) + 0.1 * cell.seed for metric in METRICS},
            "hits": pack_hits(_hits(lambda k, cell=cell: score(cell, f"P@{k}"))),
            "history": {"loss": [2.0, 1.0], "nDCG@5": [0.1, score(cell, "P@5") / 100]},
            "best_epoch": 2,
            "shapes": {"train": 1000},
            "parameters": {"encoder": 10**6, "head": 2 * 10**5, "loss": 0, "total": 1_200_000},
            "seconds": 1.0,
            "provenance": {
                "command": "circlet reproduce",
                "versions": {"torch": "2"},
                "machine": {"processor": "one", "threads": 1, "gpu": None},
            },
        }
        for cell in study.cells(settings)
        if only is None or cell.dataset in only
    ]
    return {"experiment": study.__name__.rsplit(".", 1)[1], "settings": asdict(settings), "cells": stored}


@pytest.fixture(scope="session")
def made_up() -> Callable[..., dict[str, Any]]:
    """Make a result of a study in which each cell has the numbers of a function."""
    return _made_up


@pytest.fixture(scope="session")
def verdicts() -> Callable[..., dict[str, str]]:
    """Give whether each claim of a study holds in a result."""

    def judge(study: Any, result: dict[str, Any]) -> dict[str, str]:
        return {claim.text: claim.holds for claim in study.claims(result)}

    return judge


@pytest.fixture
def rendered(tmp_path) -> Callable[[dict[str, Any]], str]:
    """Write the page and the picture of a result, and of one without numbers; give the page."""

    def render(result: dict[str, Any]) -> str:
        name = result["experiment"]
        circlet_paper.render(name, result, tmp_path / name)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        circlet_paper.render(name, {**result, "cells": []}, tmp_path / "empty")
        assert "Nothing has been measured yet" in Path(tmp_path / "empty.md").read_text(encoding="utf-8")
        return Path(tmp_path / f"{name}.md").read_text(encoding="utf-8")

    return render
