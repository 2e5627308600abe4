"""Words of a configuration become settings, and wrong ones an error that names them."""

from __future__ import annotations

import pytest

from circlet.annif.parameters import DEFAULTS, number, settings_of
from circlet.errors import ParameterError
from circlet.settings import RunSettings


def test_words_are_read_as_what_a_setting_wants():
    words = {
        "preset": "accurate", "seed": "3", "epochs": "7", "members": "2", "hidden": "512,256", "dropout": "0.25",
        "lr": "1e-3", "join": "no", "char_ngrams": "none", "min_df": "2", "head": "chrr", "validation": "0.1",
    }  # fmt: skip
    settings = settings_of({**DEFAULTS, **words, "name": "a project", "language": "en", "vocab": "yso"})
    assert settings.preset == "accurate"
    assert settings.network.seed == 3
    assert (settings.training.epochs, settings.members) == (7, 2)
    assert settings.network.hidden == (512, 256)
    assert settings.network.head == "chrr"
    assert (settings.network.dropout, settings.training.lr) == (0.25, 0.001)
    assert settings.training.join is False
    assert (settings.text.char_ngrams, settings.text.min_df, settings.validation) == (None, 2, 0.1)
    assert "dim" in settings.undecided
    assert not {"epochs", "char_ngrams"} & settings.undecided


def test_every_setting_can_be_given_as_its_own_default_in_words():
    settings = RunSettings()
    assert settings_of(DEFAULTS) == RunSettings.from_preset("default", {})  # as those of `circlet train`
    shown = {
        name: "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in settings.flat().items()
    }
    found = settings_of({"preset": "default", "seed": 0, **shown, "scaling": "l2"})
    assert found.flat() == {**settings.flat(), "scaling": "l2"}


def test_wrong_words_are_named():
    for name, value, wanted in (
        ("epochs", "many", "epochs: found 'many'; wanted an integer"),
        ("epochs", "-1", "epochs"),
        ("dropout", "half", "dropout: found 'half'; wanted a number"),
        ("hidden", "512 256", "wanted integers separated by commas"),
        ("join", "maybe", "join: found 'maybe'; wanted true or false"),
        ("preset", "best", "preset"),
        ("seed", "x", "seed: found 'x'"),
        ("loss", "hinge", "loss"),
    ):
        with pytest.raises(ParameterError, match=wanted):
            settings_of({**DEFAULTS, name: value})
    assert number({"limit": "10"}, "limit") == 10
    assert number({"favor_rare": "0.5"}, "favor_rare", float) == 0.5
    with pytest.raises(ParameterError, match="favor_rare: found 'much'; wanted a number"):
        number({"favor_rare": "much"}, "favor_rare", float)
