from __future__ import annotations

from typing import Any

import pytest

from circlet import files
from circlet.errors import OutputError
from circlet.model import Model
from circlet.runtime import load
from circlet.runtime.compression import compress
from circlet.storage.card import model_card
from circlet.storage.contents import read
from circlet.storage.layout import CARD, read_config

CONFIG: dict[str, Any] = {
    "network": {"head": "chrr", "dim": 32, "hidden": [64, 16], "encoder": "features", "loss": "bce"},
    "n_features": 1234,
    "n_labels": 12345,
    "members": [{}],
    "texts": True,
    "store": "int8",
    "threshold": 0.25,
    "training": {
        "data": "mine",
        "format": "JSONL text",
        "documents": 1900,
        "held_out": 100,
        "threshold_for": "precision=0.9",
        "decided": [{"setting": "dim", "value": 32, "why": "a few more than labels", "tried": False}],
    },
}
HISTORY = [
    {"epoch": 1, "loss": 0.5, "nDCG@5": 0.5},
    {"epoch": 2, "loss": 0.4, "nDCG@5": 0.75, "kept": True},
    {"epoch": 3, "loss": 0.3, "nDCG@5": 0.625},
]


def changed(**training):
    values = {**CONFIG["training"], **training}
    return {**CONFIG, "training": {name: value for name, value in values.items() if value is not ...}}


def test_it_says_what_the_record_says():
    card = model_card(CONFIG, HISTORY, [f"label {i}" for i in range(10)])
    for line in (
        "# A tagger trained on mine",
        "| data | mine (JSONL text) |",
        "| documents | 2,000 |",
        "| labels | 12,345, such as label 0, label 2, label 4, label 6, label 8 |",
        "| reads | 1,234 features of texts (words or their parts) |",
        "| hidden layers | 64, 16, encoder features |",
        "| output | codes of 32 dimensions, head chrr, loss bce |",
        "| weights stored as | int8 |",
        "| nDCG@5 | 75.0 % |",
        "| dim | 32: a few more than labels |",
    ):
        assert line in card.splitlines(), line
    assert "Measured on 100 documents that it has not learned from." in card
    assert "a probability of at least 0.250: chosen for precision=0.9 there" in card
    assert "`pip install circlet` is enough" in card
    assert 'circlet.load("model")' in card
    assert "## Intended use, and limits" in card


def test_it_does_not_claim_what_nobody_measured():
    assert "Nothing was held out" in model_card(CONFIG, [{"epoch": 1, "loss": 0.5}], None)
    assert "at least 0.250" not in model_card(CONFIG, [], None)
    of_loss = [[{"epoch": 1, "validation_loss": loss}] for loss in (0.25, "?")]
    assert "| loss | 0.25 |" in model_card(CONFIG, of_loss[0], None)
    assert "Nothing was held out" in model_card(CONFIG, of_loss[1], None)
    assert "that it has learned from since" in model_card(changed(held_out=0), HISTORY, None)
    assert "Further training" not in model_card(CONFIG, HISTORY, None)
    further = model_card(changed(continued_on=["more", "a|b"], taught=3), HISTORY, None)
    assert "Further training came after that" in further
    assert "| then trained on | more, a\\|b |" in further
    assert "| labels learned from feedback | 3 |" in further
    older = model_card({**changed(data=..., format=..., decided=...), "texts": False}, [], None)
    assert "documents given in Python" in older
    assert "What was decided" not in older
    assert "features of rows" in older
    history = [{"epoch": 1, "member": member, "nDCG@5": member / 4} for member in (1, 2)]
    several = model_card({**CONFIG, "members": [{}, {}]}, history, None)
    for line in ("| networks | 2 |", "| nDCG@5, network 1 | 25.0 % |", "| nDCG@5, network 2 | 50.0 % |"):
        assert line in several


def test_a_network_that_reads_texts_needs_torch():
    card = model_card({**CONFIG, "network": {**CONFIG["network"], "encoder": "cnn"}}, HISTORY, None)
    assert "pip install 'circlet[train]'" in card
    assert 'circlet.CircletClassifier.load("model")' in card


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", "a\\|b"),
        ("`rm` *x* _y_", "\\`rm\\` \\*x\\* \\_y\\_"),
        ("<script>alert(1)</script>", "\\<script\\>alert(1)\\</script\\>"),
        ("[a](http://b)", "\\[a\\](http://b)"),
        ("one\n# two\r\n\tthree", "one \\# two three"),
        ("back\\slash &amp; $x$", "back\\\\slash \\&amp; \\$x\\$"),
        ("\x1b[31m\x00", "\\[31m"),
        ("\ud800", "?"),
        ("größer 日本", "größer 日本"),
        ("x" * 500, "x" * 200 + "…"),
        ("", "?"),
    ],
)
def test_odd_names_are_shown_as_they_are(name, shown):
    card, plain = (model_card(changed(data=each, decided=...), HISTORY, [each]) for each in (name, "x"))
    assert f"# A tagger trained on {shown}" in card.splitlines()
    assert f"| labels | 12,345, such as {shown} |" in card.splitlines()
    assert card.encode()
    assert len(card.splitlines()) == len(plain.splitlines())


class TestInItsFolder:
    def test_it_tells_of_the_model_and_then_of_the_next(self, folder, untrained):
        config, saved = read_config(folder), read(folder)
        card = (folder / CARD).read_text(encoding="utf-8")
        assert card == model_card(config, saved.history, saved.label_names)
        untrained(texts=True).save(folder)
        assert [path.name for path in folder.glob("MODEL_CARD*")] == [CARD]
        assert (folder / CARD).read_text(encoding="utf-8") != card

    def test_a_model_is_saved_though_its_card_is_not(self, folder, untrained, monkeypatch, caplog):
        real = files.write_text

        def full(path, text):
            if path.name == CARD:
                raise OutputError(f"cannot write {path}: No space left on device")
            real(path, text)

        monkeypatch.setattr(files, "write_text", full)
        untrained(seed=3).save(folder)
        assert Model.load(folder).network.settings.seed == 3
        assert "MODEL_CARD.md: No space left" in caplog.text

    def test_a_copy_says_how_its_weights_are_stored(self, folder, tmp_path):
        (folder / CARD).write_text("changed by its reader", encoding="utf-8")
        read(folder, whole=True)  # nobody else reads it
        compress(folder, tmp_path / "copy", "int8")
        assert "| weights stored as | int8 |" in (tmp_path / "copy" / CARD).read_text(encoding="utf-8")
        (folder / CARD).unlink()
        assert load(folder).model_.n_labels == read_config(folder)["n_labels"]
        compress(folder, tmp_path / "other", "bf16")
        assert (tmp_path / "other" / CARD).is_file()


def test_no_name_in_the_record_breaks_it():
    """Values that nobody checks may be anything that JSON has."""
    odds: tuple[Any, ...] = (None, 1, [], {}, "x", [["y"]], True)
    for odd in odds:
        network = dict.fromkeys(CONFIG["network"], odd)
        record = {"setting": odd, "value": odd, "why": odd, "tried": odd}
        training = {"data": odd, "continued_on": odd, "taught": odd, "threshold_for": odd, "decided": [record]}
        assert model_card({**changed(**training), "network": network}, HISTORY, None)
