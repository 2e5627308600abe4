"""Presets, and the rules that decide open settings from the data; a preset's effort scales the rules.

Most numbers of the rules come from trials on held-out training rows, run by `benchmarks/choices.py`, with results
in `experiments/results/choices`. Only one of the datasets has very many documents, and all datasets with few-shot
labels are parts of it. The numbers for calibration runs, and for the epochs of fewer than 15,000 documents, come
from trials without stored results. No rule decides the optimizer of the first layer well; `circlet.model.plan`
tries it out.

Encoders of texts may have rules of their own (`circlet.encoders.TextEncoder.rules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from circlet.errors import ParameterError
from circlet.settings.network import Decision

__all__ = [
    "ALL_EPOCHS",
    "DECIDABLE",
    "EFFORTS",
    "MANY_DOCUMENTS",
    "PRESETS",
    "VERY_MANY",
    "Effort",
    "Facts",
    "batch_size",
    "by_rule",
    "effort_of",
    "resolve",
]


@dataclass(frozen=True)
class Effort:
    """The effort of a preset; the defaults are those of the preset `default`."""

    epochs: int = 7  # on few documents
    fewest: int = 3  # epochs on very many documents
    fewer: float = 0.55  # exponent of the decrease in epochs with more documents: 1 for constant steps
    hidden: int = 2048  # width of the hidden layer
    #: Pairs of a number of documents and the dropout there; between them, it is linear in their logarithm.
    dropout: tuple[tuple[float, float], ...] = ((6e3, 0.5), (1.5e4, 0.3), (7.5e4, 0.1))
    few_features: float = 0.7  # dropout with fewer features than hidden units, which makes the units similar
    dim: float = 1  # factor of the dimension
    batch_size: int = 128  # unless there are very few documents or very many
    lr: float = 1e-3  # the peak learning rate
    many: tuple[int, float, int] = (128, 1e-3, 2048)  # batch size, lr and hidden above 50,000 documents
    steps: int = 400  # minimum number of training steps, however few documents there are
    #: Up to this many documents, first train a network without the held-out documents, only to calibrate the one
    #: that is trained on all: a few steps on them at the end are not enough.
    calibration_run: int = 10_000
    char_ngrams: bool = True  # whether small sets of texts get character n-grams
    trial: bool = True  # whether a trial chooses the optimizer of the first layer


#: The presets that decide open settings from the data, with more or less effort: fast takes seconds, accurate has
#: almost six times the epochs, with more dropout and smaller batches.
EFFORTS = {
    "fast": Effort(
        epochs=4,
        fewest=2,
        hidden=1024,
        dropout=((1, 0.0),),
        few_features=0.5,
        batch_size=192,
        lr=1.5e-3,
        many=(256, 2e-3, 768),
        steps=300,
        calibration_run=0,
        char_ngrams=False,
        trial=False,
    ),
    "default": Effort(),
    "accurate": Effort(
        epochs=40,
        fewest=5,
        fewer=0.75,
        dropout=((2e4, 0.8), (7.5e4, 0.3)),
        few_features=0.8,
        dim=2,
        batch_size=64,
        many=(64, 1e-3, 2048),
    ),
}
#: The settings of each preset that differ from the defaults; presets without open settings start from
#: `RunSettings()`.
PRESETS: dict[str, dict[str, Any]] = {
    **{name: {} for name in EFFORTS},
    # The paper's section 4.3: two hidden layers, batch 64, 100 epochs, learning rate 1, its own loss and codes. It
    # names no optimizer; a rate of 1 is usual for Adadelta. It does not say which epoch it reports either. After
    # 100 epochs without dropout these networks have overfitted, so held-out rows choose the epoch, as elsewhere,
    # and training stops after 20 epochs without a better one.
    "paper": {
        "head": "chrr",
        "hidden": (768, 768),
        "loss": "cosine",
        "dropout": 0.0,
        "epochs": 100,
        "batch_size": 64,
        "optimizer": "adadelta",
        "lr": 1.0,
        "schedule": "constant",
        "scaling": "l2",
        "patience": 20,
    },
    # The authors' published scripts, where they differ from the paper's text or add to it: Adam at 0.001, × 0.7
    # per epoch, 25 epochs, unscaled features, leaky ReLU, torch's initial weights, and the epoch with the least
    # loss on a tenth of the rows. Loss and ranking take the absolute value of the cosine; the text does not, like
    # loss cosine.
    "authors": {
        "head": "chrr",
        "hidden": (768, 768),
        "activation": "leaky-relu",
        "initial": "torch",
        "loss": "absolute-cosine",
        "dropout": 0.0,
        "epochs": 25,
        "batch_size": 64,
        "optimizer": "adam",
        "lr": 1e-3,
        "schedule": "step",
        "precision": "float32",
        "scaling": "none",
        "validation": 0.1,
        "metric": "loss",
    },
}
#: The loss of head fc in the presets that follow the paper.
_FULL_LOSS = {"paper": "bce", "authors": "mean-bce"}


def resolve(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a preset, overridden by the values of `given` that are not None."""
    if name not in PRESETS:
        raise ParameterError(f"`preset`: found {name!r}; wanted one of {', '.join(PRESETS)}")
    own = dict(PRESETS[name])
    head = given.get("head") or own.get("head")
    if name in _FULL_LOSS and head == "fc":
        own |= {"hidden": (2048, 2048), "loss": _FULL_LOSS[name]}
    elif name in _FULL_LOSS and head != "hrr":
        own["codebook"] = "independent"
    return {**own, **{key: value for key, value in given.items() if value is not None}}


#: Texts up to this number get character n-grams, and at most this many features.
FEW_TEXTS, MOST_FEATURES = 20_000, 50_000
#: More texts get character n-grams too if labels are few-shot, with at most this many features.
MORE_FEATURES = 100_000
#: Labels are few-shot if the typical one has at most this fraction of the documents, or this number of them. Rare
#: words then distinguish labels, and the network must memorize these, by Adam and with many dimensions.
FEW_SHOT_SHARE, FEW_SHOT = 1e-3, 3
#: More dimensions than these do not separate few-shot labels any better.
FEW_SHOT_DIM = 5000
MEMORIZED = "rare labels are memorized"
#: Above this number of documents, batches are larger, and Adam also trains the first layer, since rare words occur
#: often enough. The trial is too short to decide this.
VERY_MANY = 200_000
#: Up to this many documents, batches are so small that an epoch has enough steps.
SMALL_BATCHES = 3500
#: The number of documents up to which a preset's `epochs` apply.
ALL_EPOCHS = 15_000
#: Above this number of documents, a preset has its settings for many.
MANY_DOCUMENTS = 50_000
#: Dimension of the codes of a few thousand labels; above this product of documents and labels, it grows.
DIM, MANY = 800, 6e8


@dataclass(frozen=True)
class Facts:
    """Facts about the data, the input of the rules.

    Parameters
    ----------
    documents : int
        Number of training documents.
    labels : int
        Number of labels.
    texts : bool
        Whether documents are texts, of which features are made.
    sparse : bool
        Whether features are sparse, like those of texts.
    adam : bool
        Whether Adam or AdamW trains the other layers.
    features : int or None
        Number of features; None for texts, which have many.
    typical : float
        Documents of a typical label: half of all assignments are to labels with at most so many.
    final_epoch : bool
        Whether held-out documents are trained on in the end, so that holding out many costs nothing.
    """

    documents: int
    labels: int
    texts: bool
    sparse: bool
    adam: bool = True
    features: int | None = None
    typical: float = math.inf
    final_epoch: bool = True

    @property
    def few_shot(self) -> bool:
        """Whether labels are few-shot, and documents not so many that other rules apply."""
        rare = self.typical <= max(FEW_SHOT, FEW_SHOT_SHARE * self.documents)
        return rare and self.adam and self.documents <= VERY_MANY


def _validation(facts: Facts, effort: Effort) -> tuple[int, str]:
    n = facts.documents
    if n < 20:
        return 0, "too few documents to hold any out"
    if facts.final_epoch and n <= effort.calibration_run:
        return min(600, round(0.3 * n)), "enough to calibrate; the model is trained on them, too"
    return min(2000, max(round(0.02 * n), min(n // 10, 300))), "enough to decide and to calibrate"


def _epochs(facts: Facts, effort: Effort) -> tuple[int, str]:
    n, own = facts.documents, effort.epochs
    if facts.few_shot:
        own = min(own, 15) + 5
    if n > ALL_EPOCHS:
        epochs = max(effort.fewest, round(own * (ALL_EPOCHS / n) ** effort.fewer))
        return epochs, "more documents need fewer epochs"
    needed = math.ceil(effort.steps / math.ceil(n / batch_size(facts, effort)[0]))
    if facts.few_shot:
        return max(own, 2 * min(needed, effort.epochs + 10)), MEMORIZED
    if n > SMALL_BATCHES:
        # A dozen epochs are enough, however few documents there are.
        needed = max(needed, min(12, round(effort.epochs * (ALL_EPOCHS / n) ** effort.fewer)))
    if needed > effort.epochs:
        return min(needed, 2 * effort.epochs + 20), "few documents need more epochs"
    return effort.epochs, "as the preset says"


def batch_size(facts: Facts, effort: Effort) -> tuple[int, str]:
    """Return the number of documents per step, and the reason."""
    n = facts.documents
    if n <= SMALL_BATCHES:
        return max(8, min(64, n // 8)), "with few documents, small batches give more steps"
    if n > VERY_MANY:
        return 512, "many documents allow larger steps"
    if facts.few_shot and n > FEW_TEXTS:
        return 256, "as good for rare labels, and faster"
    if n > MANY_DOCUMENTS:
        return effort.many[0], "as the preset says for many documents"
    if n <= 10_000:
        return min(128, effort.batch_size), "few documents make few steps, unless these are small"
    return effort.batch_size, "as the preset says"


def _hidden(facts: Facts, effort: Effort) -> tuple[tuple[int, ...], str]:
    if facts.texts and (facts.documents <= FEW_TEXTS or _char_ngrams(facts, effort)[0]):
        return (effort.hidden // 2,), "enough for texts; their many features would make a wider layer large"
    if facts.documents > VERY_MANY:
        return (1024,), "larger codes do as much, and need less memory with many features"
    if facts.documents > MANY_DOCUMENTS:
        return (effort.many[2],), "as the preset says for many documents"
    return (effort.hidden,), "as the preset says"


def _dropout(facts: Facts, effort: Effort) -> tuple[float, str]:
    points, n = effort.dropout, max(1, facts.documents)
    if facts.few_shot:
        return (0.1 if SMALL_BATCHES < n <= FEW_TEXTS else 0.3), MEMORIZED
    if facts.features is not None and facts.features < effort.hidden and n <= VERY_MANY:
        return effort.few_features, "fewer features than hidden units"
    if n > VERY_MANY and facts.adam:
        return 0.4, "very many documents: AdamW learns their rare words"
    if n <= points[0][0] or len(points) == 1:
        return points[0][1], "as the preset says"
    for (below, high), (above, low) in pairwise(points):
        if n < above:
            share = math.log(n / below) / math.log(above / below)
            return round(high + share * (low - high), 2), "more documents need less of it"
    return points[-1][1], "many documents need little of it"


def _dim(facts: Facts, effort: Effort) -> tuple[int, str]:
    if 1.25 * facts.labels < DIM:
        return max(32, math.ceil(1.25 * facts.labels)), "a few more than there are labels"
    if facts.few_shot:
        return min(math.ceil(facts.labels / 20) * 10, FEW_SHOT_DIM), "enough to tell rare labels apart"
    product = facts.documents * facts.labels
    grown = DIM * effort.dim * max(1.0, product / MANY) ** 0.45
    if facts.documents > VERY_MANY:
        grown *= 2
    # More dimensions than half the number of labels do not separate labels any better.
    dim = round(min(grown, max(DIM, facts.labels / 2)) / 10) * 10
    return dim, "as the preset says" if product <= MANY else "many documents and labels need more"


def _char_ngrams(facts: Facts, effort: Effort) -> tuple[tuple[int, int] | None, str]:
    if facts.texts and effort.char_ngrams:
        if facts.documents <= FEW_TEXTS:
            return (3, 5), "few texts show few of all words, but many of their parts"
        if facts.few_shot:
            return (3, 5), "texts with a rare label show few of all words, but many of their parts"
    return None, "words are enough" if facts.texts else "documents are not texts"


def _max_features(facts: Facts, effort: Effort) -> tuple[int | None, str]:
    if _char_ngrams(facts, effort)[0] is None:
        return None, "all of them"
    most = MOST_FEATURES if facts.documents <= FEW_TEXTS else MORE_FEATURES
    return most, "more parts of words would make the model large"


def _min_df(facts: Facts, effort: Effort) -> tuple[int, str]:
    if facts.texts and facts.documents > FEW_TEXTS and not facts.few_shot:
        return 2, "a word in a single text of many is of no use"
    return 1, "all words" if facts.texts else "documents are not texts"


def _first_layer(facts: Facts, effort: Effort) -> tuple[str, str]:
    if not facts.adam:
        return "same", "its learning rate was tuned only together with Adam"
    if not facts.sparse:
        return "same", "the features are dense"
    if facts.few_shot:
        return "same", MEMORIZED
    if facts.documents > VERY_MANY:
        return "same", "very many documents show rare words often enough"
    return "sgd", "usually better for sparse features"


def _lr(facts: Facts, effort: Effort) -> tuple[float, str]:
    if facts.few_shot and facts.documents <= FEW_TEXTS:
        return 3e-3, MEMORIZED
    if MANY_DOCUMENTS < facts.documents <= VERY_MANY:
        return effort.many[1], "as the preset says for many documents"
    return effort.lr, "as the preset says"


def _scaling(facts: Facts, effort: Effort) -> tuple[str, str]:
    if facts.texts:
        return "none", "tf-idf has weighted the words"
    if facts.sparse:
        return "sqrt", "square roots of sparse features dampen repeated words"
    return "standard", "the features are dense"


Rule = Callable[[Facts, Effort], tuple[Any, str]]
#: The rule of each setting that may be left open, in the order of the output.
_RULES: dict[str, Rule] = {
    "validation": _validation,
    "scaling": _scaling,
    "char_ngrams": _char_ngrams,
    "min_df": _min_df,
    "max_features": _max_features,
    "dim": _dim,
    "hidden": _hidden,
    "dropout": _dropout,
    "first_layer": _first_layer,
    "epochs": _epochs,
    "batch_size": batch_size,
    "lr": _lr,
}
DECIDABLE = tuple(_RULES)


def effort_of(preset: str) -> Effort:
    """Return the effort of a preset; a preset without open settings has the effort of the default preset."""
    return EFFORTS.get(preset, EFFORTS["default"])


def by_rule(
    preset: str, names: frozenset[str], facts: Facts, own: Mapping[str, Rule] | None = None
) -> list[Decision]:
    """Decide these settings by rules, with the effort of the preset; `own` rules replace the others."""
    effort, rules = effort_of(preset), {**_RULES, **(own or {})}
    return [Decision(name, *rules[name](facts, effort)) for name in _RULES if name in names]
