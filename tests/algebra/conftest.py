from __future__ import annotations

from types import ModuleType

import pytest

from circlet.algebra import circular, holographic


@pytest.fixture(params=[circular, holographic], ids=["circular", "holographic"])
def algebra(request: pytest.FixtureRequest) -> ModuleType:
    """Each algebra in turn: what both promise is tested on both."""
    return request.param
