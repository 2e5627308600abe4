from __future__ import annotations

import pytest

from circlet.errors import ParameterError
from circlet.settings import RunSettings
from circlet.settings.aim import Aim


@pytest.mark.parametrize(
    ("text", "expected"),
    [("f1", ("f1", None)), ("precision=0.9", ("precision", 0.9)), ("recall=1", ("recall", 1.0))],
)
def test_aims(text, expected):
    assert Aim.of(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "F1", "f1=0.5", "precision", "precision=", "precision=0", "recall=1.1", "recall=nan", "x=0.5", None, 1],
)
def test_others_are_refused(text):
    with pytest.raises(ParameterError, match=r"`threshold_for` \(--for\) must be f1, or precision or recall"):
        Aim.of(text)
    with pytest.raises(ParameterError, match=r"`threshold_for` \(--for\) must be f1"):
        RunSettings.of({"threshold_for": text})
