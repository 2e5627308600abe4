from __future__ import annotations

from types import SimpleNamespace

import pytest

from circlet.errors import ParameterError
from circlet.settings.checked import check


def test_the_first_field_that_does_not_hold_is_named():
    given = SimpleNamespace(width=0, depth="two", name="x")
    with pytest.raises(ParameterError, match=r"^`depth` must be an integer, got 'two'$"):
        check(given, name=(True, "a name"), depth=(False, "an integer"), width=(False, "above 0"))


def test_nothing_happens_if_all_hold():
    check(SimpleNamespace(width=1), width=(True, "above 0"))
