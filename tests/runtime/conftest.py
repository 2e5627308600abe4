from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import make_documents, make_model

from circlet.model import Model


@pytest.fixture(scope="session")
def made() -> Callable[..., Model]:
    """Make a model with random weights: the kind of its documents, and settings of all its parts."""
    return make_model


@pytest.fixture(scope="session")
def some() -> Callable[..., Any]:
    """Make documents of a kind: how many, and a seed."""
    return make_documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a small model of texts, and give its folder."""
    make_model("texts", named=True).save(tmp_path / "model")
    return tmp_path / "model"
