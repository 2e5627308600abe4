"""What is decided from the data where the encoder reads texts, by rules in place of those for features.

The hidden layer is that of XML-CNN (Liu et al. 2017). Rate and dropout rest on a few short trials on held-out rows
of pydocs that are not kept: at 0.003 and 0.006, the CNN learned more than at 0.001, and with XML-CNN's dropout of
0.5 less than with 0.2. More documents need fewer epochs by the same power as with features. No trial has chosen
the rest.
"""

from __future__ import annotations

import math
from typing import Any

from circlet.settings.auto import ALL_EPOCHS, MANY_DOCUMENTS, VERY_MANY, Effort, Facts, Rule, batch_size

__all__ = ["READING_RULES"]

#: Up to this many texts, words of a single text are kept. Among more of them, they stand for all unknown words.
FEW_TEXTS = 200
#: Such an encoder starts with words that mean nothing: it takes this many times the steps of a preset.
MORE_STEPS = 3


def _always(value: Any, why: str) -> Rule:
    return lambda facts, effort: (value, why)


def _min_df(facts: Facts, effort: Effort) -> tuple[int, str]:
    if facts.documents > FEW_TEXTS:
        return 2, "words of a single text show what an unknown word means"
    return 1, "all words"


def _hidden(facts: Facts, effort: Effort) -> tuple[tuple[int, ...], str]:
    if facts.documents > MANY_DOCUMENTS:
        return (1024,), "many documents can teach more"
    return (512,), "as in XML-CNN"


def _dropout(facts: Facts, effort: Effort) -> tuple[float, str]:
    if facts.documents > VERY_MANY:
        return 0.1, "very many documents need little of it"
    if facts.documents > MANY_DOCUMENTS:
        return 0.2, "more documents need less of it"
    return 0.3, "more of it makes learning slow"


def _epochs(facts: Facts, effort: Effort) -> tuple[int, str]:
    n, most = facts.documents, min(40, 2 * effort.epochs + 6)
    if n > ALL_EPOCHS:
        return max(
            effort.fewest, round(most * (ALL_EPOCHS / n) ** effort.fewer)
        ), "more documents need fewer epochs"
    needed = math.ceil(MORE_STEPS * effort.steps / math.ceil(n / batch_size(facts, effort)[0]))
    if needed > most:
        return min(needed, MORE_STEPS * most), "few documents need more epochs"
    return most, "the encoder learns what words mean, too"


#: By the names of settings.
READING_RULES: dict[str, Rule] = {
    "scaling": _always("none", "the encoder reads words"),
    "char_ngrams": _always(None, "the encoder reads words"),
    "min_df": _min_df,
    "max_features": _always(None, "all of them"),
    "hidden": _hidden,
    "dropout": _dropout,
    "first_layer": _always("same", "the encoder reads words, and has no features"),
    "epochs": _epochs,
    "lr": _always(3e-3, "words that mean nothing at first are learned faster"),
}
