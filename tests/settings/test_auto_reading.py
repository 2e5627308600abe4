from __future__ import annotations

import pytest

from circlet.settings import EFFORTS, Facts, RunSettings
from circlet.settings.auto import DECIDABLE
from circlet.settings.auto_reading import READING_RULES
from circlet.settings.network import ENCODERS


def decided(documents: int, encoder: str = "cnn", preset: str = "default", **given) -> RunSettings:
    facts = Facts(documents, 500, texts=True, sparse=True, typical=given.pop("typical", 100.0))
    return RunSettings.from_preset(preset, {"encoder": encoder, **given}).decided(facts)[0]


def test_they_decide_what_can_be_decided():
    assert set(READING_RULES) < set(DECIDABLE)


@pytest.mark.parametrize("encoder", ENCODERS[1:])
@pytest.mark.parametrize("preset", EFFORTS)
@pytest.mark.parametrize("documents", [4, 30, 3000, 60_000, 10**6])
def test_nothing_is_left_to_features(encoder, preset, documents):
    settings = decided(documents, encoder, preset, typical=1.0)
    assert not settings.undecided
    assert settings.training.first_layer == "same"
    assert settings.training.lr == 3e-3
    assert (settings.text.char_ngrams, settings.text.word_ngrams) == (None, (1, 1))
    assert 1 <= settings.training.epochs <= 120


def test_more_documents_need_less():
    few, many = decided(5000), decided(500_000)
    assert few.training.epochs > many.training.epochs
    assert few.network.dropout > many.network.dropout
    assert few.network.hidden < many.network.hidden
    assert (decided(100).text.min_df, few.text.min_df) == (1, 2)


def test_what_is_given_stands():
    settings = decided(5000, epochs=2, min_df=5, hidden=(64,))
    assert (settings.training.epochs, settings.text.min_df, settings.network.hidden) == (2, 5, (64,))
